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

#[test]
fn a_pool_is_named_by_what_ends_with_a_slash() {
    let pool = |name: &str| RbdPool::parse(Path::new(name));
    for name in ["rbd:p/", "rbd:p/n/", "rbd:p/@/etc/c", "rbd:p/n/@c"] {
        let parsed = pool(name).unwrap().unwrap();
        assert_eq!(parsed.to_string(), name);
        let image = parsed.image("i").unwrap();
        let with_image = name
            .split_once('@')
            .map_or_else(|| format!("{name}i"), |(before, conf)| format!("{before}i@{conf}"));
        assert_eq!(image.to_string(), with_image);
        assert_eq!(image.pool(), parsed);
        assert_eq!(RbdPlace::parse(Path::new(&image.to_string())).unwrap().unwrap(), image);
    }
    for name in ["rbd:/", "rbd:p//", "rbd:p/n/m/", "rbd:p/@", "rbd:p\n/"] {
        assert!(pool(name).unwrap().is_err(), "{name:?}");
    }
    for name in ["rbd:p/i", "rbd:p", "/p/", "p/", "rbd:p/i@/etc/"] {
        assert!(pool(name).is_none(), "{name}");
    }
}

#[test]
fn a_name_that_a_client_says_leads_to_no_other_pool() {
    let pool = RbdPool::parse(Path::new("rbd:p/")).unwrap().unwrap();
    let long = "n".repeat(256);
    for name in ["", "n/i", "/i", "i@/tmp/mine", "@", "i\n", &long] {
        assert!(pool.image(name).is_err(), "{name:?}");
    }
    assert!(pool.image(&long[1..]).is_ok() && pool.image(".i.making").is_ok());
}

/// An operator's word about one owner does not count for the next one.
#[test]
fn an_operator_means_one_owner() {
    assert!(Whom::Anybody.is_meant("process 1 of a"));
    let one = Whom::Described("process 1 of a".into());
    assert!(one.is_meant("process 1 of a") && !one.is_meant("process 2 of a"));
}
