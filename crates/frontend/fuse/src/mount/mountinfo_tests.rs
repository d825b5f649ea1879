use super::*;

#[test]
fn a_line_with_optional_fields_and_escapes() {
    let line =
        br"36 35 0:98 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - fuse.siftfs /v\011x rw";
    let m = parse_line(line).unwrap();
    assert_eq!((m.id, m.parent, m.major, m.minor), (36, 35, 0, 98));
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
    for line in [
        "",
        "1 2",
        "1 x 0:1 / / rw - ext4 /dev/x",
        "1 2 x / / rw - ext4 /dev/x",
        "1 2 0:1 / / rw -",
        "1 2 0:1 / / rw",
    ] {
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

/// A directory like /proc, whose processes see `table` in namespace `space` each.
fn process(proc: &Path, name: &str, space: &str, table: &str) -> PathBuf {
    let dir = proc.join(name);
    std::fs::create_dir_all(dir.join("ns")).unwrap();
    std::os::unix::fs::symlink(space, dir.join("ns/mnt")).unwrap();
    std::fs::write(dir.join("mountinfo"), table).unwrap();
    std::fs::write(dir.join("comm"), format!("p{name}\n")).unwrap();
    dir
}

#[test]
fn a_process_that_keeps_its_readers_waiting_hides_no_other_mount() {
    let tmp = tempfile::tempdir().unwrap();
    let line = "93 28 0:57 / /m rw - fuse.siftfs /v rw\n";
    let ours = parse_line(line.trim_end().as_bytes()).unwrap();
    let elsewhere = "12 28 0:57 / /n rw - fuse.siftfs /v rw\n";
    process(tmp.path(), "self", "mnt:[1]", line);
    process(tmp.path(), "3", "mnt:[1]", line);
    process(tmp.path(), "4", "mnt:[2]", "");
    assert_eq!(mounted_in(tmp.path(), &ours), None);
    process(tmp.path(), "5", "mnt:[3]", elsewhere);
    let hung = process(tmp.path(), "6", "mnt:[4]", "").join("mountinfo");
    std::fs::remove_file(&hung).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &hung, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let start = std::time::Instant::now();
    let found = mounted_in(tmp.path(), &ours);
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    let (program, mount_point) = ("p5".into(), PathBuf::from("/n"));
    assert_eq!(found, Some(Elsewhere { pid: 5, program, mount_point }));
}
