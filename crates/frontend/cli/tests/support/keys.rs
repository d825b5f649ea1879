//! The keys of two machines that know each other, made as an administrator makes them.

use super::siftfs;
use serde_json::Value;
use std::path::{Path, PathBuf};

pub struct Keys {
    dir: PathBuf,
    print: String,
}

impl Keys {
    /// In `dir`; the line that admits the client has these options.
    pub fn new(dir: &Path, line: &str) -> Self {
        let dir = dir.join("keys");
        std::fs::create_dir(&dir).unwrap();
        let make = |name: &str| -> Value {
            let file = dir.join(name).display().to_string();
            siftfs(&["key", "new", "--file", &file, "--comment", name]).ok();
            serde_json::from_str(&siftfs(&["key", "show", "--json", &file]).out).unwrap()
        };
        let (server, client) = (make("server"), make("client"));
        let print = server["fingerprint"].as_str().unwrap().to_string();
        let keys = Self { dir, print };
        keys.admit(&format!("{line} {}\n", client["line"].as_str().unwrap()));
        keys
    }

    /// Writes the server's `authorized` anew.
    pub fn admit(&self, lines: &str) {
        std::fs::write(self.file("authorized"), lines).unwrap();
    }

    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    pub fn fingerprint(&self) -> &str {
        &self.print
    }

    /// What a server that is started gets.
    pub fn admits(&self) -> [String; 4] {
        let (key, authorized) = (self.file("server"), self.file("authorized"));
        ["--key".into(), key, "--authorized".into(), authorized]
    }

    /// What a mount is told of the server.
    pub fn option(&self) -> String {
        let (key, known) = (self.file("client"), self.file("known_servers"));
        format!("key={key},known_servers={known},fingerprint={}", self.print)
    }
}
