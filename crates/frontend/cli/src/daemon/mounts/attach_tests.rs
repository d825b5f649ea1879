use super::*;
use crate::options::mount::{parse, usual};

/// The options of one more mount of a volume that was mounted with `first`.
fn one_more(first: &str, words: &str) -> Result<Options, String> {
    let first = parse(&[first.into()], false).unwrap();
    let noatime = first.open.noatime;
    let mount = MountOptions { noatime, shared: true, ..usual() };
    let usual = Options { mount, subdir: None, ..first };
    let words: Vec<String> =
        words.split(',').filter(|word| !word.is_empty()).map(str::to_string).collect();
    attached(&usual, &words)
}

#[test]
fn what_is_a_mounts_is_its_own() {
    let first =
        "shared,ro,nosuid,noexec,threads=7,requests=device,subtype=x,operations=off,subdir=a";
    let o = one_more(first, "").unwrap();
    assert_eq!(o.mount, MountOptions { shared: true, ..usual() });
    assert_eq!(o.subdir, None);
    assert!(o.open.read_only, "the volume's");
    let own = "ro,nodev,noexec,sync,noallow_other,idmap,threads=3,priority=normal,subdir=/b/c,user";
    let o = one_more("shared,commit=7", own).unwrap();
    let m = &o.mount;
    assert!(m.read_only && m.nodev && m.noexec && m.nosuid && m.sync && m.idmap && m.shared);
    assert!(!m.allow_other && m.threads == 3 && o.subdir.as_deref() == Some("b/c".as_ref()));
    assert_eq!(o.open.commit_ms, 7000);
}

#[test]
fn what_is_the_volumes_may_be_said_as_it_is() {
    let first =
        "shared,commit=7,cache=32M,noatime,replay=ordered,metrics=127.0.0.1:9,log_level=warn";
    let o = one_more(first, &first.replace("shared,", "")).unwrap();
    assert!(o.mount.noatime && o.open.noatime);
    for word in [
        "commit=8",
        "cache=33M",
        "relatime",
        "replay=auto",
        "metrics=127.0.0.1:8",
        "log_level=info",
        "log=/nowhere",
        "log_spare=/nowhere",
        "log_stall=99",
        "record_area=/nowhere",
        "service=unix:/x",
        "service_fallback=3",
        "memory_group=own",
    ] {
        let said = one_more(first, &format!("ro,{word},nosuid")).unwrap_err();
        assert!(said.starts_with(&format!("{word}: ")) && said.contains("volume"), "{said}");
    }
}

/// The last word counts, as everywhere.
#[test]
fn no_writeback_cache() {
    let said = one_more("shared", "write_cache=writeback").unwrap_err();
    assert!(said.contains("write_cache=writeback") && said.contains("exclude"), "{said}");
    one_more("shared", "write_cache=writeback,write_cache=writethrough").unwrap();
}

#[test]
fn another_namespace_is_seen() {
    same_namespace(std::process::id().cast_signed()).unwrap();
    // A process that is not to be seen, as of another PID namespace.
    assert!(same_namespace(0).unwrap_err().contains("cannot be seen"));
}
