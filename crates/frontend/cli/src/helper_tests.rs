use super::*;

fn converted(line: &str) -> String {
    let given = line.split(' ').map(OsString::from).collect();
    let out: Vec<_> = arguments(given).into_iter().map(|a| a.into_string().unwrap()).collect();
    out.join(" ")
}

#[test]
fn called_as_a_helper() {
    assert_eq!(
        converted("/sbin/mount.siftfs /v /d -n -o rw,commit=1"),
        "siftfs mount /v /d -o rw,commit=1"
    );
    assert_eq!(converted("mount.fuse.siftfs /v /d -t siftfs"), "siftfs mount /v /d");
    assert_eq!(converted("/sbin/umount.fuse.siftfs -l /d"), "siftfs umount --lazy /d");
    assert_eq!(converted("/usr/bin/siftfs fsck -n"), "/usr/bin/siftfs fsck -n");
}
