//! What the pages for newcomers name is there: files and folders, and, in pages about the code,
//! types and functions, in the files that are named beside them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages, and whether what looks like an identifier in them has to be one of the sources.
const PAGES: [(&str, bool); 7] = [
    ("ARCHITECTURE.md", true),
    ("README.md", false),
    ("docs/manual.md", false),
    ("docs/limits.md", false),
    ("docs/counts.md", false),
    ("CONTRIBUTING.md", false),
    ("testing/README.md", false),
];
/// Made by a command, or the system's.
const ELSEWHERE: [&str; 9] = [
    "target/bench",
    "/dev/fuse",
    "/sbin",
    "/etc/siftfs/NAME.conf",
    "/etc/siftfs/key",
    "/etc/siftfs/authorized",
    "/etc/siftfs/known_servers",
    "~/.config/siftfs",
    "/etc/modprobe.d/",
];

/// What a page can name.
struct Sources {
    /// Files and folders, from the top.
    paths: Vec<String>,
    /// All words of the sources.
    words: HashSet<String>,
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.split(other).filter(|word| !word.is_empty())
}

fn is_identifier(span: &str) -> bool {
    let one = |part: &str| {
        let first = part.chars().next();
        first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && words(part).eq([part])
    };
    span.strip_suffix("()").unwrap_or(span).split("::").all(one)
}

fn is_path(span: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".sh"];
    span.contains('/') || ends.iter().any(|end| span.ends_with(end))
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self { paths: Vec::new(), words: HashSet::new() };
        sources.add(&top(), "");
        assert!(sources.paths.len() > 300, "the sources were found: {}", sources.paths.len());
        sources
    }

    fn add(&mut self, dir: &Path, name: &str) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let file = entry.file_name().into_string().unwrap();
            if file == ".git" || file == "target" {
                continue;
            }
            let path = format!("{name}{file}");
            if entry.file_type().unwrap().is_dir() {
                self.add(&entry.path(), &format!("{path}/"));
            } else if file.ends_with(".rs") {
                let text = fs::read_to_string(entry.path()).unwrap();
                self.words.extend(words(&text).map(str::to_owned));
            }
            self.paths.push(path);
        }
    }

    /// Paths of which `name` is the end: pages leave out what is clear.
    fn find<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        let name = name.trim_end_matches('/');
        let whole = move |path: &str| {
            path.strip_suffix(name).is_some_and(|p| p.is_empty() || p.ends_with('/'))
        };
        self.paths.iter().filter(move |path| whole(path))
    }

    /// Is this identifier's last part in one of the files of that name?
    fn has(&self, file: &str, identifier: &str) -> bool {
        let last = words(identifier).last().unwrap_or_default();
        self.find(file).any(|path| {
            let text = fs::read_to_string(top().join(path)).unwrap_or_default();
            words(&text).any(|word| word == last)
        })
    }

    /// What is wrong on a page.
    fn wrong(&self, page: &str, identifiers: bool) -> Vec<String> {
        let prose = prose(page);
        let parts: Vec<&str> = prose.split('`').collect();
        let mut wrong = Vec::new();
        for (i, span) in parts.iter().enumerate().skip(1).step_by(2) {
            if is_path(span) {
                let there = ELSEWHERE.contains(span) || self.find(span).next().is_some();
                // Mount options and addresses have slashes, too.
                let path = !span.contains([' ', '=', ':']) && !span.starts_with('-');
                if path && !there {
                    wrong.push(format!("`{span}` is not there"));
                }
            } else if identifiers && is_identifier(span) {
                let unknown = words(span).find(|word| !self.words.contains(*word));
                wrong.extend(unknown.map(|word| format!("`{span}`: no source has {word}")));
            }
            let Some([gap, next]) = parts.get(i + 1..i + 3) else { continue };
            let pair = match *gap {
                " " => Some((*span, *next)),
                " (" => Some((*next, *span)),
                _ => None,
            };
            if let Some((file, identifier)) = pair
                && file.ends_with(".rs")
                && is_identifier(identifier)
                && self.find(file).next().is_some()
                && !self.has(file, identifier)
            {
                wrong.push(format!("`{identifier}` is not in `{file}`"));
            }
        }
        wrong
    }
}

/// A page without its examples, on one line.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        let fence = line.starts_with("```");
        fenced ^= fence;
        if !fenced && !fence && !line.starts_with("    ") {
            lines.extend(line.split_whitespace());
        }
    }
    lines.join(" ")
}

#[test]
fn what_the_pages_name_is_there() {
    let sources = Sources::read();
    let mut wrong = Vec::new();
    for (page, identifiers) in PAGES {
        let text = fs::read_to_string(top().join(page)).unwrap();
        let found = sources.wrong(&text, identifiers);
        wrong.extend(found.into_iter().map(|what| format!("{page}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_there_is_found() {
    let sources = Sources::read();
    let absent = |name: &str| ["no", "such", name].join("_");
    let page = format!(
        "See `rig/src/place.rs` `step` and `Place` (`place.rs`), `{0}/place.rs`, `Place::{0}`,\n\
         `rig/src/place.rs`\n`with_kernel_mount`. `a b/c` `-o x=/y`\n```\n`{0}.rs`\n```\n",
        absent("thing")
    );
    let wrong = sources.wrong(&page, true);
    let expected = [
        format!("`{}/place.rs` is not there", absent("thing")),
        format!("`Place::{0}`: no source has {0}", absent("thing")),
        "`with_kernel_mount` is not in `rig/src/place.rs`".to_owned(),
    ];
    assert_eq!(wrong, expected);
}
