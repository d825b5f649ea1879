//! The pages can be read in any window: lines end, and what has to be wide is a table or a command.

use siftfs_house::sources::top;
use std::path::{Path, PathBuf};

/// Longest line of a page, in columns.
const COLUMNS: usize = 120;

/// Written by a program, with lines as they come.
const WRITTEN: [&str; 1] = ["docs/RESULTS.md"];

/// The pages below `dir`, but those of what cargo and pip have made.
fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let made = ["target", "node_modules"].iter().any(|made| name == *made);
        if made || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn lines_of_pages_end() {
    let mut found = Vec::new();
    pages(&top(), &mut found);
    assert!(found.len() > 25, "the pages were found: {}", found.len());
    let mut long = Vec::new();
    for path in found.iter().filter(|p| !WRITTEN.iter().any(|w| p.ends_with(w))) {
        let text = std::fs::read_to_string(path).expect("a page");
        let mut command = false;
        for (number, line) in (1..).zip(text.lines()) {
            command ^= line.trim_start().starts_with("```");
            let apart = command || line.trim_start().starts_with('|') || line.starts_with("    ");
            if !apart && line.chars().count() > COLUMNS {
                long.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "lines of more than {COLUMNS} columns: {long:#?}");
}
