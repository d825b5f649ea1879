//! The shape of the sources: circles of imports, lengths of functions, files and comments. What is
//! beyond a bound today stands in a list here with its number, which may not grow. An entry must go
//! once its subject is within the bound: the lists only shrink.

use siftfs_house::functions::functions;
use siftfs_house::imports::Imports;
use siftfs_house::methods::methods;
use siftfs_house::sources::{Source, below, comment};
use std::collections::BTreeMap;

/// Longest line of a comment, in columns.
const COLUMNS: usize = 100;

/// Longest file, in lines.
const LINES: usize = 650;

/// Longest function, in lines: what a screen shows.
const SCREEN: usize = 70;

/// Files that may name each other in a circle, if they are in one folder.
const CIRCLE: usize = 3;

/// Crates with a larger circle, or one that leaves its folder: the crate's `src` and the files of
/// each such circle.
const CIRCLES: &[(&str, usize)] = &[];

/// Most files of one folder, without those of tests.
const FOLDER: usize = 18;

/// Folders with more, and how many.
const LARGE_FOLDERS: &[(&str, usize)] =
    &[("bench/mount/src", 25), ("crates/service/src", 22), ("testing/model/src", 32)];

/// Files longer than [`LINES`], with their lines.
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions longer than [`SCREEN`]: file, name and lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Most methods of a type. A signature then tells its reader what may change.
const METHODS: usize = 100;

/// Types with more methods: crate, name and how many.
const WIDE_TYPES: &[(&str, &str, usize)] = &[];

fn all() -> Vec<Source> {
    ["bench", "crates", "testing"].into_iter().flat_map(below).collect()
}

/// Compares what is beyond a bound with the list of what may be.
fn compare<K: Ord + std::fmt::Debug>(
    what: &str,
    found: BTreeMap<K, usize>,
    list: BTreeMap<K, usize>,
) {
    let more: Vec<_> =
        found.iter().filter(|(k, n)| list.get(k).is_none_or(|most| *n > most)).collect();
    assert!(more.is_empty(), "{what}, not in the list: {more:#?}");
    let within: Vec<_> = list.keys().filter(|key| !found.contains_key(key)).collect();
    assert!(within.is_empty(), "{what}, within the bound: take them off the list: {within:#?}");
}

/// Idioms that a reader has to read twice, and how many comments still have each.
const IDIOMS: [(&str, usize); 4] =
    [("so many", 0), ("as many", 12), ("that is none", 0), ("whoever", 0)];

/// The `src` of every crate.
fn crates(sources: &[Source]) -> Vec<&str> {
    let ends = ["/src/lib.rs", "/src/main.rs"];
    let root =
        |s: &'_ Source| ends.iter().find_map(|end| Some(s.path.strip_suffix(end)?.len() + 4));
    let mut all: Vec<&str> = sources.iter().filter_map(|s| s.path.get(..root(s)?)).collect();
    all.dedup();
    all
}

#[test]
fn circles_of_imports_are_small() {
    let sources = all();
    let (mut found, mut arrows) = (BTreeMap::new(), 0);
    for root in crates(&sources) {
        let imports = Imports::of(&sources, &format!("{root}/"));
        arrows += imports.count().0;
        let large = |c: &Vec<String>| c.len() > CIRCLE || Imports::leaves_its_folder(c);
        for circle in imports.circles().into_iter().filter(large) {
            println!("{root}: {circle:#?}");
            *found.entry(root).or_default() += circle.len();
        }
    }
    assert!(arrows > 1000, "the sources were read: {arrows} imports");
    compare("files in circles", found, CIRCLES.iter().copied().collect());
}

#[test]
fn functions_fit_a_screen() {
    let sources = all();
    let (mut found, mut count) = (BTreeMap::new(), 0);
    for source in &sources {
        for function in functions(&source.text) {
            count += 1;
            if function.lines > SCREEN {
                found.insert((source.path.clone(), function.name), function.lines);
            }
        }
    }
    assert!(count > 5000, "the sources were read: {count} functions");
    let list =
        LONG_FUNCTIONS.iter().map(|(file, name, n)| ((file.to_string(), name.to_string()), *n));
    compare("functions that no screen shows", found, list.collect());
}

#[test]
fn types_are_narrow() {
    let sources = all();
    let (mut found, mut count) = (BTreeMap::new(), 0);
    for root in crates(&sources) {
        let inside = |s: &&Source| s.path.starts_with(root) && !s.path.ends_with("_tests.rs");
        for name in sources.iter().filter(inside).flat_map(|s| methods(&s.text)) {
            count += 1;
            *found.entry((root, name)).or_default() += 1;
        }
    }
    assert!(count > 3000, "the sources were read: {count} methods");
    found.retain(|_, methods| *methods > METHODS);
    let list = WIDE_TYPES.iter().map(|(root, name, n)| ((*root, name.to_string()), *n));
    compare("types of many methods", found, list.collect());
}

#[test]
fn files_end() {
    let sources = all();
    let lines = |s: &Source| s.text.lines().count();
    let long = sources.iter().filter(|s| lines(s) > LINES).map(|s| (s.path.as_str(), lines(s)));
    compare("long files", long.collect(), LONG_FILES.iter().copied().collect());
}

#[test]
fn folders_are_looked_through_at_a_glance() {
    let sources = all();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|s| !s.path.ends_with("_tests.rs")) {
        if let Some((folder, _)) = source.path.rsplit_once('/') {
            *found.entry(folder).or_default() += 1;
        }
    }
    assert!(found.len() > 50, "the sources were read: {} folders", found.len());
    found.retain(|folder, files| *files > FOLDER && folder.contains("/src"));
    compare("folders of many files", found, LARGE_FOLDERS.iter().copied().collect());
}

#[test]
fn lines_of_comments_end() {
    let mut long = Vec::new();
    for source in all() {
        for (number, line) in (1..).zip(source.text.lines()) {
            let table = comment(line).is_some_and(|c| c.contains("| ") || c.contains("http"));
            if comment(line).is_some() && !table && line.chars().count() > COLUMNS {
                long.push(format!("{}:{number}", source.path));
            }
        }
    }
    assert!(long.is_empty(), "comments of more than {COLUMNS} columns: {long:#?}");
}

#[test]
fn comments_are_read_once() {
    let mut found = BTreeMap::new();
    for source in all() {
        for line in source.text.lines().filter_map(comment) {
            let words: Vec<_> = line.split(|c: char| !c.is_alphanumeric()).collect();
            let line = format!(" {} ", words.join(" ").to_lowercase());
            let has = |idiom: &str| line.contains(&format!(" {idiom} "));
            for (idiom, _) in IDIOMS.iter().filter(|(idiom, _)| has(idiom)) {
                *found.entry(*idiom).or_insert(0) += 1;
            }
        }
    }
    for (idiom, most) in IDIOMS {
        let here = found.get(idiom).copied().unwrap_or(0);
        assert!(here <= most, "`{idiom}`: {here} comments, and {most} were left: say it plainly");
        assert!(here == most, "`{idiom}`: {here} comments are left: lower the number, {most}");
    }
}
