use super::*;
use proptest::prelude::*;

#[test]
fn maps_are_strict() {
    let map = |text: &str| maps("uids", text);
    assert!(map("*").unwrap().is_identity());
    let two = map("1000:5000:10,0:100000:1000").unwrap();
    assert_eq!((two.to_server(1009), two.to_server(0)), (Some(5009), Some(100000)));
    assert_eq!(two.to_server(1010), None);
    for (bad, what) in [
        ("", "is not CLIENT:SERVER:COUNT"),
        ("1:2", "is not CLIENT"),
        ("1:2:3:4", "is not CLIENT"),
        ("1:2:3,", "is not CLIENT"),
        ("+1:2:3", "is not CLIENT"),
        ("01:2:3", "is not CLIENT"),
        ("1:2:4294967296", "is not CLIENT"),
        ("-1:2:3", "is not CLIENT"),
        ("1:2:0", "is empty"),
        ("4294967295:2:1", "goes beyond"),
        ("1:2:4294967294", "goes beyond"),
        ("65534:1:1", "stands for"),
        ("0:100:10,9:200:1", "id 9 of the client is in two maps"),
        ("0:100:10,50:109:1", "id 109 of the server is in two maps"),
        ("0:100:10,0:200:10", "id 0 of the client"),
    ] {
        let said = map(bad).unwrap_err();
        assert!(said.starts_with("uids=") && said.contains(what), "{bad}: {said}");
    }
    assert!(map("1:2:4294967293").is_ok());
    let many = |n: u32| (0..n).map(|i| format!("{i}:{i}:1")).collect::<Vec<_>>().join(",");
    assert!(map(&many(64)).is_ok());
    assert!(map(&many(65)).unwrap_err().contains("more than 64 maps"));
}

#[test]
fn subtrees_stay_below_the_root() {
    for good in ["/", "/a", "/a/b c", "/..a/b."] {
        assert_eq!(subtree(good).as_deref(), Ok(good));
    }
    let long = format!("/{}", "x".repeat(256));
    let deep = "/x".repeat(2048);
    for bad in ["a", "", "//", "/a/", "/a//b", "/..", "/a/../b", "/.", "/a/./b", &long, &deep] {
        assert!(subtree(bad).unwrap_err().contains("subtree="), "{bad}");
    }
}

#[test]
fn volumes_are_names() {
    assert_eq!(volumes("*"), Ok(Volumes::All));
    let two = volumes("data,mail").unwrap();
    let holds = |volumes: &Volumes, name| volumes.contain(|known| known == name);
    assert!(holds(&two, "data") && holds(&two, "mail") && !holds(&two, "dat"));
    assert!(holds(&Volumes::All, "x"));
    for bad in ["", "a,", ",a", "a,a", "*,a", "da*"] {
        assert!(volumes(bad).is_err(), "{bad}");
    }
    let many = |n: u32| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    assert!(volumes(&many(64)).is_ok() && volumes(&many(65)).is_err());
}

#[test]
fn the_anonymous_are_not_root() {
    assert_eq!(anon("65534:100"), Ok((65534, 100)));
    for bad in ["", "1", "1:2:3", "0:1", "1:0", "4294967295:1", "a:b", "1:-1"] {
        assert!(anon(bad).unwrap_err().contains("anon="), "{bad}");
    }
    assert!(role("root").is_err() && squash("yes").is_err());
}

proptest! {
    #[test]
    fn any_value_is_taken_or_refused(text in "[0-9:,*/.a-z]{0,40}") {
        let _ = (role(&text), squash(&text), volumes(&text), maps("uids", &text), anon(&text));
        if let Ok(path) = subtree(&text) {
            let rest = path.strip_prefix('/').unwrap();
            prop_assert!(rest.is_empty() || rest.split('/').all(|n| !["", ".", ".."].contains(&n)));
        }
    }
}
