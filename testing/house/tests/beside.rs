//! Each file of the Runtime has tests: beside it, or where the page says.

use siftfs_house::sources::{below, top};
use std::collections::{BTreeMap, BTreeSet};

const FOLDER: &str = "crates/runtime/src/";
const PAGE: &str = "docs/design/runtime-tests.md";

/// Each file of the page, and the tests that it names.
fn rows(page: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let mut names = line.split('`').skip(1).step_by(2);
        let file = names.next().expect("a row begins with a file");
        assert!(rows.insert(file, names.collect()).is_none(), "{file} stands twice in {PAGE}");
    }
    rows
}

#[test]
fn every_file_of_the_runtime_has_its_tests() {
    let page = std::fs::read_to_string(top().join(PAGE)).expect("the page is there");
    let rows = rows(&page);
    let sources = below("crates");
    let files = sources.iter().filter_map(|s| s.path.strip_prefix(FOLDER));
    let files: BTreeSet<&str> = files.collect();
    assert!(files.len() > 90, "the sources were read: {} files", files.len());
    let lists = |file: &str| file == "lib.rs" || file.ends_with("mod.rs");
    let has_own = |file: &str| {
        file.strip_suffix(".rs").is_some_and(|f| files.contains(&*format!("{f}_tests.rs")))
    };
    let mut wrong = Vec::new();
    for file in files.iter().filter(|f| !f.ends_with("_tests.rs") && !lists(f)) {
        match (has_own(file), rows.contains_key(file)) {
            (false, false) => wrong.push(format!("{file} has no tests beside it and no row")),
            (true, true) => wrong.push(format!("{file} has tests beside it, and a row")),
            _ => {}
        }
    }
    for (file, tests) in &rows {
        if !files.contains(file) {
            wrong.push(format!("{file} is not there"));
        }
        let has_tests = |test: &&str| {
            std::fs::read_to_string(top().join(test)).is_ok_and(|text| text.contains("#[test]"))
        };
        if tests.is_empty() || !tests.iter().all(has_tests) {
            wrong.push(format!("{file}: not all of {tests:?} are files with tests"));
        }
    }
    assert!(wrong.is_empty(), "{PAGE}: {wrong:#?}");
}
