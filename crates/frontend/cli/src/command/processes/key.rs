//! `siftfs key`: the machine's key pair.

use crate::options::keys::{Key, KeyCommand, KeyNew, KeyShow};
use crate::show::failure::{Failure, Outcome};
use crate::show::output::{print_json, say};
use serde_json::json;
use siftfs_keys::{KEY_TYPE, KeyPair, paths};
use std::path::{Path, PathBuf};

/// `siftfs key`.
pub fn key(a: &Key) -> Outcome {
    match &a.what {
        KeyCommand::New(a) => new(a),
        KeyCommand::Show(a) => show(a),
    }
}

fn new(a: &KeyNew) -> Outcome {
    let file = place(a.file.as_deref())?;
    let comment = a.comment.clone().unwrap_or_else(user_and_host);
    let pair = KeyPair::generate(&comment).map_err(Failure::plain)?;
    pair.save(&file).map_err(Failure::plain)?;
    tell(&file, &pair, a.json)
}

fn show(a: &KeyShow) -> Outcome {
    let file = place(a.file.as_deref())?;
    let pair = KeyPair::load(&file).map_err(Failure::plain)?;
    tell(&file, &pair, a.json)
}

fn place(file: Option<&Path>) -> Result<PathBuf, Failure> {
    let own = || paths::key().map_err(Failure::plain);
    file.map_or_else(own, |file| Ok(file.to_path_buf()))
}

/// Shows what may be shown of a pair.
fn tell(file: &Path, pair: &KeyPair, as_json: bool) -> Outcome {
    let (public, print) = (pair.public(), pair.public().fingerprint());
    match as_json {
        true => print_json(&json!({
            "file": file,
            "type": KEY_TYPE,
            "public_key": public.to_string(),
            "comment": pair.comment(),
            "line": pair.line(),
            "fingerprint": print.to_string(),
        }))?,
        false => say(format_args!("{}\n{print}", pair.line()))?,
    }
    Ok(0)
}

/// What a key is called unless its owner says otherwise.
fn user_and_host() -> String {
    let root = rustix::process::geteuid().is_root();
    let user = if root { Some("root".into()) } else { std::env::var("USER").ok() };
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let text = format!("{}@{host}", user.as_deref().unwrap_or("user"));
    text.chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(64).collect()
}
