//! Which file of a crate names which other, by the paths that begin with `crate::` or `super::`.

use crate::sources::{Source, comment};
use std::collections::{BTreeMap, BTreeSet};

/// Files and the files that each of them names. Paths are from the crate's `src`.
pub struct Imports {
    arrows: BTreeMap<String, BTreeSet<String>>,
}

/// The module path of a file: `state/lane.rs` and `state/mod.rs` are `state::lane` and `state`.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).replace('/', "::")
}

/// The folder of a file in `src`.
fn folder(file: &str) -> &str {
    file.split_once('/').map_or("", |(folder, _)| folder)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Paths behind `prefix` in `text`, each with the names of a group behind it as paths of their own.
fn paths(text: &str, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let end = rest.find(|c| !is_word(c) && c != ':').unwrap_or(rest.len());
        let (path, group) = (rest[..end].trim_end_matches(':'), &rest[end..]);
        found.push(path.to_string());
        if let Some(group) = group.strip_prefix('{') {
            let inside = group.split('}').next().unwrap_or_default();
            let join = |name: &str| match path {
                "" => name.to_string(),
                _ => format!("{path}::{name}"),
            };
            found.extend(inside.split(',').map(str::trim).map(join));
        }
    }
    found
}

impl Imports {
    /// Of the sources of one crate, whose `src` is at `root`. Tests and the crate's face (`lib.rs`,
    /// `main.rs`), which names everything, are left out.
    pub fn of(sources: &[Source], root: &str) -> Self {
        let inside =
            |s: &Source| s.path.strip_prefix(root).map(|p| p.trim_start_matches('/').to_string());
        let files: Vec<(String, &Source)> = sources
            .iter()
            .filter_map(|s| Some((inside(s)?, s)))
            .filter(|(file, _)| !file.ends_with("_tests.rs") && !file.ends_with("test_util.rs"))
            .filter(|(file, _)| file != "lib.rs" && file != "main.rs")
            .collect();
        let modules: BTreeMap<String, &str> =
            files.iter().map(|(file, _)| (module_of(file), file.as_str())).collect();
        let arrows = files.iter().map(|(file, source)| {
            let code: Vec<&str> = source.text.lines().filter(|l| comment(l).is_none()).collect();
            let code = code.join("\n");
            let here = module_of(file);
            let above = here.rsplit_once("::").map_or(String::new(), |(m, _)| format!("{m}::"));
            let by_super = paths(&code, "super::").into_iter().map(|p| format!("{above}{p}"));
            let named = paths(&code, "crate::").into_iter().chain(by_super);
            let mut targets: BTreeSet<String> =
                named.filter_map(|path| nearest(&modules, &path)).collect();
            targets.remove(file);
            (file.clone(), targets)
        });
        Self { arrows: arrows.collect() }
    }

    /// How many arrows there are, and how many of them lead from one folder to another.
    pub fn count(&self) -> (usize, usize) {
        let all = self.arrows.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        let between = all.clone().filter(|(from, to)| folder(from) != folder(to)).count();
        (all.count(), between)
    }

    /// Circles of imports: files that name each other, directly or through others. Each circle has
    /// its files in order, and every file is in one circle at most.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|file| (file.as_str(), self.reachable(file))).collect();
        let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
        for (file, from_here) in &reach {
            let back = |other: &&&str| reach.get(**other).is_some_and(|set| set.contains(file));
            let circle: BTreeSet<&str> = from_here.iter().filter(back).copied().collect();
            if circle.len() > 1 {
                circles.insert(circle.into_iter().map(str::to_string).collect());
            }
        }
        circles.into_iter().collect()
    }

    /// Has this circle files of more than one folder?
    pub fn leaves_its_folder(circle: &[String]) -> bool {
        circle.iter().map(|file| folder(file)).collect::<BTreeSet<_>>().len() > 1
    }

    fn reachable(&self, file: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = self.arrows[file].iter().map(String::as_str).collect();
        while let Some(file) = next.pop() {
            if seen.insert(file) {
                next.extend(self.arrows[file].iter().map(String::as_str));
            }
        }
        seen
    }
}

/// The file of the longest part of `path` that is a module.
fn nearest(modules: &BTreeMap<String, &str>, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if let Some(file) = modules.get(path) {
            return Some((*file).to_string());
        }
        path = path.rsplit_once("::")?.0;
    }
}

#[cfg(test)]
#[path = "imports_tests.rs"]
mod tests;
