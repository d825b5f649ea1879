use super::*;
use crate::command::remount::{is_asked, meant};

fn change(now: &str, to: &str, complete: bool) -> Result<Options, String> {
    let now = mount::parse(&[now.to_string()], false).unwrap();
    changed(&now, &Change { options: meant(&[to.into()]), complete, only_check: false })
}

#[test]
fn what_is_named_changes_and_the_rest_stays() {
    let o = change("commit=1,nosuid,cache=64M", "remount,ro,noatime,commit=7", false).unwrap();
    assert!(o.open.read_only && o.mount.read_only && o.open.noatime && o.mount.nosuid);
    assert_eq!((o.open.commit_ms, o.open.page_cache), (7000, 64 << 20));
    let o = change("ro,noatime", "remount,rw,relatime,cache=8M,group_wait=0", false).unwrap();
    assert!(!o.open.read_only && !o.open.noatime);
    assert_eq!((o.open.page_cache, o.open.group_wait_us), (8 << 20, 0));
}

/// mount(8) names every flag that shall hold, and repeats what the kernel shows.
#[test]
fn mount_names_all_flags() {
    let all =
        "rw,remount,user_id=0,group_id=0,default_permissions,allow_other,commit=1,helper=siftfs";
    let o = change("ro,nosuid,noatime,commit=9", all, true).unwrap();
    assert!(!o.open.read_only && !o.mount.nosuid && !o.open.noatime);
    assert_eq!(o.open.commit_ms, 1000);
}

/// What cannot be changed is named; named as it is, it is no change.
#[test]
fn what_stays_is_named() {
    for (now, to) in [
        ("", "ro,threads=7"),
        ("", "subtype=x"),
        ("", "noallow_other"),
        ("", "sync"),
        ("sync", "async"),
        ("", "nodirect"),
        ("", "nouring"),
        ("", "replay=ordered"),
        ("", "checkpoint_memory=64M"),
        ("", "service_spin=3"),
        ("", "service_fallback=3"),
        ("", "service=unix:/x"),
        ("", "metrics=127.0.0.1:1"),
        ("", "log_file=/x"),
        ("", "log_format=json"),
        ("", "log=/nowhere"),
        ("threads=3", "threads=4"),
    ] {
        let word = to.split(',').next_back().unwrap();
        let said = change(now, to, false).unwrap_err();
        assert!(said.starts_with(&format!("{word}: ")), "{to}: {said}");
    }
    change("threads=3,replay=ordered", "threads=3,replay=ordered,defaults,x-a=b", true).unwrap();
    assert!(is_asked(&["ro,remount".into()]) && !is_asked(&["ro,x-remount=1".into()]));
}
