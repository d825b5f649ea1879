use super::*;

fn parsed(name: &str) -> RbdPlace {
    RbdPlace::parse(Path::new(name)).unwrap().unwrap()
}

#[test]
fn pools_namespaces_images_and_configurations() {
    let place = parsed("rbd:fast/mail");
    assert_eq!((&place.pool[..], &place.image[..]), ("fast", "mail"));
    assert_eq!((place.namespace, place.conf), (None, None));
    let place = parsed("rbd:fast/team/mail@/etc/ceph/b.conf");
    assert_eq!(place.namespace.as_deref(), Some("team"));
    assert_eq!(place.conf.as_deref(), Some(Path::new("/etc/ceph/b.conf")));
    // A configuration's name may have what parts the other names.
    assert_eq!(parsed("rbd:p/i@a@b/c").conf.as_deref(), Some(Path::new("a@b/c")));
}

#[test]
fn a_name_is_shown_as_it_is_parsed() {
    for name in ["rbd:p/i", "rbd:p/n/i", "rbd:p/i@/c", "rbd:p/n/i@./c"] {
        assert_eq!(parsed(name).to_string(), name);
    }
}

#[test]
fn what_names_no_image_is_refused_and_paths_are_left_alone() {
    for name in ["/x/rbd:p/i", "./rbd:p/i", "stripe:rbd:p/i,b", ""] {
        assert!(RbdPlace::parse(Path::new(name)).is_none(), "{name}");
        assert!(!is_rbd(Path::new(name)));
    }
    let long = format!("rbd:{}/i", "p".repeat(256));
    for name in [
        "rbd:",
        "rbd:p",
        "rbd:p/",
        "rbd:/i",
        "rbd:p//i",
        "rbd:a/b/c/d",
        "rbd:p/i@",
        "rbd:p/\n",
        &long,
    ] {
        let said = RbdPlace::parse(Path::new(name)).unwrap().unwrap_err().to_string();
        assert!(said.contains("rbd:POOL/IMAGE[@CONF]"), "{said}");
        assert!(is_rbd(Path::new(name)));
    }
}

#[test]
fn one_image_by_two_configurations() {
    assert!(parsed("rbd:p/i@a").is_same_image(&parsed("rbd:p/i")));
    assert!(!parsed("rbd:p/n/i").is_same_image(&parsed("rbd:p/i")));
    let absolute = parsed("rbd:p/i@conf").absolute().unwrap();
    assert!(absolute.conf.unwrap().is_absolute());
}
