//! Names of striped volumes.

use super::*;

#[test]
fn names_and_what_they_name() {
    let place = StripePlace::parse(Path::new("stripe:/a/x,b,./c")).unwrap().unwrap();
    let wanted: Vec<PathBuf> = ["/a/x", "b", "./c"].map(PathBuf::from).into();
    assert_eq!(place.members(), wanted);
    assert_eq!(place.name(), Path::new("stripe:/a/x,b,./c"));
    assert_eq!(StripePlace::new(wanted.clone()), place);
    assert_eq!(parts_of(&place.name()), wanted);
    assert_eq!(principal(&place.name()), Path::new("/a/x"));
}

/// A member may be at a target; then it is no path of this machine.
#[test]
fn members_at_targets() {
    let name = Path::new("stripe:target:unix:/s/a,b,target:tcp:host:1/c");
    let place = StripePlace::parse(name).unwrap().unwrap();
    assert_eq!(place.name(), name);
    let at: Vec<_> = place.members().iter().map(|member| is_at_target(member)).collect();
    assert_eq!(at, [true, false, true]);
    assert_eq!(parts_of(name), [Path::new("b")]);
    assert_eq!(principal(name), Path::new("target:unix:/s/a"));
}

#[test]
fn other_names_are_paths() {
    for name in ["/a/x", "./stripe:a,b", "stripes:a,b", "a,b", "target:unix:/s/v", ""] {
        assert!(StripePlace::parse(Path::new(name)).is_none(), "{name}");
        assert_eq!(parts_of(Path::new(name)), [Path::new(name)]);
        assert_eq!(principal(Path::new(name)), Path::new(name));
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let many = format!("stripe:{}", (0..17).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let wrong = [
        ("stripe:", "in their order"),
        ("stripe:a", "in their order"),
        (&*many, "in their order"),
        ("stripe:a,", "empty"),
        ("stripe:,a", "empty"),
        ("stripe:a,b,a", "twice"),
    ];
    for (name, why) in wrong {
        let said = StripePlace::parse(Path::new(name)).unwrap().unwrap_err().to_string();
        assert!(said.contains(why), "{name}: {said}");
    }
}
