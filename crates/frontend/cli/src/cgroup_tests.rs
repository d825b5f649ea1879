use super::*;

#[test]
fn controllers_and_homes_are_found() {
    let table = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
25 1 8:1 / / rw - ext4 /dev/sda1 rw";
    let one = PathBuf::from("/sys/fs/cgroup/cpu");
    let two = PathBuf::from("/sys/fs/cgroup/unified");
    assert_eq!(controllers(table), vec![(Version::One, one.clone()), (Version::Two, two.clone())]);
    let own = "8:pids:/\n1:cpu,cpuacct:/a/b\n0::/user.slice";
    assert_eq!(home(Version::One, &one, own), one.join("a/b"));
    assert_eq!(home(Version::Two, &two, own), two.join("user.slice"));
    assert_eq!(home(Version::Two, &two, ""), two);
}

#[test]
fn shares_are_never_too_small_for_the_kernel() {
    assert_eq!(share(25), (2500, 10_000));
    assert_eq!(share(200), (20_000, 10_000));
    for percent in 1..=100_000 {
        let (allowed, period) = share(percent);
        assert!(allowed >= LEAST && period <= 100_000, "{percent}");
        assert!(percent * period - allowed * 100 < 100, "{percent}: rounded down to a microsecond");
    }
}
