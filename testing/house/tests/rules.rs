//! The house rules that no compiler knows.

use siftfs_house::sources::{below, comment, top};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;

/// Crates by layer, the lowest first. A crate may depend on those of lower layers alone: so Runtime
/// and Service do not know each other, and fsck knows no protocol.
const LAYERS: [&[&str]; 9] = [
    &["shared/base", "shared/status", "service/intervals"],
    &[
        "shared/device",
        "shared/ext4",
        "shared/log",
        "shared/proto",
        "shared/lease",
        "shared/codec",
        "shared/keys",
        "shared/rdma",
    ],
    &[
        "shared/wire",
        "shared/calls",
        "shared/volume",
        "shared/registry",
        "shared/device-rbd",
        "shared/device-stripe",
        "fsck",
    ],
    &["shared/transport"],
    &["shared/device-target", "runtime", "service", "frontend/ingest", "frontend/remote"],
    &["placement", "frontend/direct"],
    &["frontend/fuse", "frontend/embed", "frontend/client", "frontend/grantor"],
    &["frontend/cli", "frontend/capi", "frontend/accel"],
    &["frontend/preload"],
];

fn crate_name(folder: &str) -> String {
    match folder {
        "frontend/embed" => "siftfs".into(),
        _ => format!("siftfs-{}", folder.rsplit('/').next().expect("a name")),
    }
}

#[test]
fn no_arrow_upwards_between_crates() {
    let layer: HashMap<String, usize> = (0..)
        .zip(LAYERS)
        .flat_map(|(layer, crates)| crates.iter().map(move |c| (crate_name(c), layer)))
        .collect();
    let mut seen = 0;
    for folder in LAYERS.into_iter().flatten() {
        let manifest = top().join("crates").join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("every crate has one");
        let own = layer[&crate_name(folder)];
        let needs = text.split("[dependencies]").nth(1).unwrap_or_default();
        let needs = needs.split("\n[").next().unwrap_or_default();
        for line in needs.lines().filter(|l| l.starts_with("siftfs")) {
            let name = line.split(['.', ' ', '=']).next().expect("a name");
            let below = *layer.get(name).unwrap_or_else(|| panic!("{name} has no layer"));
            assert!(below < own, "{folder} depends on {name}, which is not below it");
            seen += 1;
        }
    }
    assert!(seen > 30, "the manifests were read: {seen} arrows");
}

/// Code that tests alone may call: the fault device, what makes images and messages for tests, and
/// libraries, whose callers are other programs.
const FOR_TESTS: [&str; 13] = [
    "crates/shared/device/src/fault/",
    "crates/shared/ext4/src/test_image.rs",
    "crates/shared/ext4/src/dir/mem.rs",
    "crates/shared/wire/src/samples.rs",
    "crates/shared/log/src/spec.rs",
    "crates/frontend/embed/",
    "crates/frontend/client/",
    "crates/frontend/direct/src/atomic.rs",
    "crates/frontend/accel/",
    "crates/shared/proto/src/builder.rs",
    "for_tests",
    "reseal",
    "buffer_len",
];

fn is_test(path: &str) -> bool {
    let ends = ["_tests.rs", "/test_util.rs", "/testing.rs"];
    ends.iter().any(|end| path.ends_with(end))
        || ["/tests/", "/examples/"].iter().any(|part| path.contains(part))
}

/// A public function that only tests call is dead weight that the compiler keeps.
#[test]
fn public_functions_have_callers() {
    let sources: Vec<_> = ["bench", "crates", "testing"].into_iter().flat_map(below).collect();
    let mut words: HashMap<&str, u32> = HashMap::new();
    for source in sources.iter().filter(|s| !is_test(&s.path)) {
        for line in source.text.lines().filter(|l| comment(l).is_none()) {
            for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                *words.entry(word).or_default() += 1;
            }
        }
    }
    let mut unused: HashSet<String> = HashSet::new();
    for source in sources.iter().filter(|s| s.path.starts_with("crates/") && !is_test(&s.path)) {
        for line in source.text.lines() {
            let code = line.trim_start();
            let rest = ["pub fn ", "pub(crate) fn ", "pub const fn ", "pub unsafe fn "]
                .iter()
                .find_map(|start| code.strip_prefix(start));
            let Some(rest) = rest else { continue };
            let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
            let name = name.expect("a function has a name");
            let exempt = FOR_TESTS.iter().any(|e| source.path.starts_with(e) || *e == name);
            if words[name] < 2 && !exempt {
                unused.insert(format!("{}: {name}", source.path));
            }
        }
    }
    assert!(unused.is_empty(), "no caller but tests: {unused:#?}");
}

/// Every rule that code or a page cites is explained by the page of rules.
#[test]
fn cited_rules_are_explained() {
    let page = "docs/design/crash-model.md";
    let text = |path: &str| fs::read_to_string(top().join(path)).expect("the page is there");
    let explained = rules_in(&text(page));
    assert!(explained.len() > 30, "{page} was read: {explained:?}");
    let sources = ["bench", "crates", "testing"].into_iter().flat_map(below);
    let code = sources.map(|s| (s.path, s.text));
    let pages = ["ARCHITECTURE.md", "testing/README.md", "docs/spec/log-format.md"];
    let pages = pages.map(|path| (path.to_string(), text(path)));
    for (path, text) in code.chain(pages) {
        let unknown: Vec<_> = rules_in(&text).difference(&explained).copied().collect();
        assert!(unknown.is_empty(), "{path} cites rules that {page} does not explain: {unknown:?}");
    }
}

/// The numbers of rules in a text: "R7" and "r07_".
fn rules_in(text: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(['R', 'r']) {
        let before =
            text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, behind) = rest.split_at(end);
        let ends = match text[at..].starts_with('R') {
            true => !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_'),
            false => behind.starts_with('_') && end == 2,
        };
        if !before && ends && (1..3).contains(&end) {
            found.extend(digits.parse::<u32>().ok().filter(|n| *n > 0));
        }
    }
    found
}
