//! The house rules that no compiler knows.

use siftfs_house::sources::{below, comment, top};
use std::collections::{HashMap, HashSet};
use std::fs;

/// Crates by layer, the lowest first. A crate may depend on those of lower layers alone: so Runtime
/// and Service do not know each other, and fsck knows no protocol.
const LAYERS: [&[&str]; 8] = [
    &["shared/base", "shared/status", "service/intervals"],
    &["shared/device", "shared/ext4", "shared/log", "shared/proto"],
    &["shared/wire", "shared/volume", "fsck"],
    &["shared/transport"],
    &["runtime", "service"],
    &["placement"],
    &["frontend/fuse", "frontend/embed", "frontend/client"],
    &["frontend/cli", "frontend/capi"],
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

/// A public function without a caller, not even a test, is dead weight that the compiler keeps.
#[test]
fn public_functions_have_callers() {
    let sources: Vec<_> = ["bench", "crates", "testing"].into_iter().flat_map(below).collect();
    let mut words: HashMap<&str, u32> = HashMap::new();
    for source in &sources {
        for line in source.text.lines().filter(|l| comment(l).is_none()) {
            for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                *words.entry(word).or_default() += 1;
            }
        }
    }
    let mut unused: HashSet<String> = HashSet::new();
    for source in sources.iter().filter(|s| s.path.starts_with("crates/")) {
        for line in source.text.lines() {
            let code = line.trim_start();
            let rest = ["pub fn ", "pub(crate) fn ", "pub const fn ", "pub unsafe fn "]
                .iter()
                .find_map(|start| code.strip_prefix(start));
            let Some(rest) = rest else { continue };
            let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
            let name = name.expect("a function has a name");
            if words[name] < 2 {
                unused.insert(format!("{}: {name}", source.path));
            }
        }
    }
    assert!(unused.is_empty(), "no caller: {unused:#?}");
}
