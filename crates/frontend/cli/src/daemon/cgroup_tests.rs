use super::*;

#[test]
fn controllers_and_homes_are_found() {
    let table = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
25 1 8:1 / / rw - ext4 /dev/sda1 rw";
    let own = "8:pids:/\n3:memory:/job\n1:cpu,cpuacct:/a/b\n0::/user.slice";
    let found = |controller, at: &str, version, own| {
        let all = Hierarchy::of(controller, table, own);
        let one = all.into_iter().find(|h| h.top == Path::new(at)).unwrap();
        assert_eq!(one.version, version, "{at}");
        one.home
    };
    let (unified, cpu) = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu");
    assert_eq!(Hierarchy::of("cpu", table, own).len(), 2);
    assert_eq!(found("cpu", cpu, Version::One, own), Path::new(cpu).join("a/b"));
    assert_eq!(found("cpu", unified, Version::Two, own), Path::new(unified).join("user.slice"));
    assert_eq!(found("cpu", unified, Version::Two, ""), Path::new(unified));
    let memory = "/sys/fs/cgroup/memory";
    assert_eq!(found("memory", memory, Version::One, own), Path::new(memory).join("job"));
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
