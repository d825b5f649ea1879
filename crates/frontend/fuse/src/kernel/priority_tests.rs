use super::*;

/// Policy and nice value of the calling thread, as the kernel sees them.
fn seen() -> (i32, i64) {
    // SAFETY: the call takes the thread's number, and 0 for the calling one.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (policy & !libc::SCHED_RESET_ON_FORK, fields[16].parse().unwrap())
}

#[test]
fn threads_are_scheduled_as_wanted() {
    for (priority, want) in [
        (Priority::Normal, (libc::SCHED_OTHER, 0)),
        (Priority::Slice, (libc::SCHED_OTHER, 0)),
        (Priority::Nice, (libc::SCHED_OTHER, i64::from(NICE))),
        (Priority::Realtime, (libc::SCHED_RR, 0)),
    ] {
        let thread = std::thread::spawn(move || {
            set(Attributes::default()).unwrap();
            enter(priority).unwrap();
            seen()
        });
        assert_eq!(thread.join().unwrap(), want, "{priority:?}");
    }
}

/// A thread that computed for too long is not realtime for its next request, nor is a new one.
#[test]
fn overtime_ends_realtime() {
    let schedule = Schedule::new(Priority::Realtime);
    std::thread::spawn(move || {
        schedule.enter();
        schedule.check();
        assert_eq!(seen().0, libc::SCHED_RR);
        let limit = getrlimit(Resource::Rttime);
        assert_eq!((limit.current, limit.maximum), (Some(OVERTIME.0), Some(OVERTIME.1)));
        schedule.overtime().store(true, Ordering::Relaxed);
        schedule.check();
        assert_eq!(seen(), (libc::SCHED_OTHER, i64::from(NICE)));
        let other = std::thread::spawn(move || {
            schedule.enter();
            seen().0
        });
        assert_eq!(other.join().unwrap(), libc::SCHED_OTHER);
    })
    .join()
    .unwrap();
}
