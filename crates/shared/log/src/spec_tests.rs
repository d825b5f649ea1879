use super::*;

struct Two {
    first: u32,
    second: u64,
}

/// The comparison fails for a structure that is not the page's.
#[test]
fn another_structure_is_seen() {
    let two = fields!(Two { first, second });
    assert_eq!((two[0].size, two[1].size), (4, 8));
    let _ = Two { first: 0, second: 0 }.first;
    let _ = Two { first: 0, second: 0 }.second;
    let fails = |f: &(dyn Fn() + std::panic::RefUnwindSafe)| {
        assert!(std::panic::catch_unwind(f).is_err());
    };
    fails(&|| check("Static part:", 0, &fields!(Two { first, second }), &[]));
    fails(&|| check_list("### Items", "1 inode", 0, &fields!(Two { first, second })));
    fails(&|| check("no such heading", 0, &[], &[]));
}
