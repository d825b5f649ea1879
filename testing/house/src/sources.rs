//! The sources of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of Rust.
pub struct Source {
    /// The file's path from the workspace's top.
    pub path: String,
    /// The file's text.
    pub text: String,
}

/// The workspace's top.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files of Rust below `dir`, a path from the top, in the order of their paths.
///
/// # Panics
/// If they cannot be read.
pub fn below(dir: &str) -> Vec<Source> {
    let mut all = Vec::new();
    add(&top(), dir, &mut all);
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn add(top: &Path, dir: &str, all: &mut Vec<Source>) {
    for entry in fs::read_dir(top.join(dir)).expect("the folder is there") {
        let entry = entry.expect("it can be read");
        let name = entry.file_name().into_string().expect("plain names");
        let path = format!("{dir}/{name}");
        if entry.file_type().expect("it has one").is_dir() {
            if name != "target" {
                add(top, &path, all);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(top.join(&path)).expect("it is text");
            all.push(Source { path, text });
        }
    }
}

/// The text of a line's comment, if it is a comment alone.
pub fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}
