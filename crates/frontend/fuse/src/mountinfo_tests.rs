use super::*;

#[test]
fn a_line_with_optional_fields_and_escapes() {
    let line =
        br"36 35 0:98 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - fuse.siftfs /v\011x rw";
    let m = parse_line(line).unwrap();
    assert_eq!((m.major, m.minor), (0, 98));
    assert_eq!(m.mount_point, Path::new("/mnt/a b\\c"));
    assert_eq!(m.source, Path::new("/v\tx"));
    assert!(m.is_fuse());
    assert_eq!((m.root.as_path(), &m.options[..]), (Path::new("/"), "rw,noatime"));
    assert!(m.has_option("noatime") && !m.has_option("atime") && !m.has_option("ro"));
    let bind = br"99 35 0:98 /d\040e /x ro - fuse.siftfs /v\011x rw";
    let bind = parse_line(bind).unwrap();
    assert!(bind.is_same_as(&m) && bind.root == Path::new("/d e"));
    let other = parse_line(br"37 35 0:99 / /x ro - fuse.siftfs /v\011x rw").unwrap();
    assert!(!other.is_same_as(&m));
}

#[test]
fn broken_lines_are_left_out() {
    for line in ["", "1 2", "1 2 x / / rw - ext4 /dev/x", "1 2 0:1 / / rw -", "1 2 0:1 / / rw"] {
        assert_eq!(parse_line(line.as_bytes()), None, "{line}");
    }
    let odd = unescape(br"\9\0");
    assert_eq!(odd, Path::new(r"\9\0"));
}

#[test]
fn this_machine_has_a_root() {
    let root = containing(Path::new("/")).unwrap().unwrap();
    assert_eq!(root.mount_point, Path::new("/"));
    assert_eq!(top_mount(Path::new("/no/such/mount")).unwrap(), None);
}
