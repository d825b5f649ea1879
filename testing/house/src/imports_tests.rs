use super::*;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

#[test]
fn circles_are_seen_and_comments_are_not() {
    let sources = [
        source("x/src/lib.rs", "use crate::{a, b::c};"),
        source("x/src/a.rs", "use crate::b::{c::C, D};\nuse self::inner;"),
        source("x/src/b/mod.rs", "pub struct D;"),
        source("x/src/b/c.rs", "use super::e::E;\n// use crate::a;\n"),
        source("x/src/b/e.rs", "fn f() { crate::a::g() }"),
        source("x/src/b/e_tests.rs", "use crate::b::c;"),
    ];
    let imports = Imports::of(&sources, "x/src");
    assert_eq!(imports.count(), (4, 3), "a to b and c, c to e, e to a");
    let circles = imports.circles();
    assert_eq!(circles, [["a.rs", "b/c.rs", "b/e.rs"]]);
    assert!(Imports::leaves_its_folder(&circles[0]));
    let others = sources.iter().filter(|s| s.path != "x/src/b/e.rs");
    let others: Vec<_> = others.map(|s| source(&s.path, &s.text)).collect();
    assert!(Imports::of(&others, "x/src").circles().is_empty());
}
