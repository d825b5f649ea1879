use super::*;
use std::time::Instant;

fn shell(script: &str, seconds: Option<u64>, progress: &AtomicU64) -> Ran {
    let child = Child::start(Command::new("sh").args(["-c", script]), Signal::KILL).unwrap();
    child.wait(seconds.map(Duration::from_secs), progress).unwrap()
}

#[test]
fn the_end_and_both_outputs_are_told() {
    let ran = shell("echo out; echo err >&2; exit 12", Some(1), &AtomicU64::new(0));
    assert_eq!((ran.status.code(), ran.given_up), (Some(12), None));
    assert_eq!((&ran.stdout[..], &ran.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

/// One that ends when it is asked to, and one that does not.
#[test]
fn a_loop_is_ended() {
    for script in ["while :; do :; done", "trap '' TERM; while :; do :; done"] {
        let ran = shell(script, Some(1), &AtomicU64::new(0));
        assert!(ran.given_up.is_some_and(|work| work > Duration::from_secs(1)), "{script}");
        assert_eq!(ran.status.code(), None, "{script}");
    }
}

/// Neither one that waits for something, nor one that gets further, is ended.
#[test]
fn slow_work_is_waited_for() {
    let still = AtomicU64::new(0);
    let ran = shell("sleep 2.5; exit 3", Some(1), &still);
    assert_eq!((ran.status.code(), ran.given_up), (Some(3), None));
    let moving = AtomicU64::new(0);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(60) && moving.load(Ordering::Acquire) < 1000
            {
                moving.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // About two seconds of work, by the shell's own count of it.
        let work = "u=0; while [ $u -lt 200 ]; do \
                    read -r a b c d e f g h j k l m n u o < /proc/$$/stat; done; exit 5";
        let ran = shell(work, Some(1), &moving);
        moving.store(1000, Ordering::Release);
        ran
    });
    assert_eq!((ran.status.code(), ran.given_up), (Some(5), None));
}

/// Output without an end does not fill the memory.
#[test]
fn output_is_bounded() {
    let ran = shell("yes | head -c 40000000; exit 0", None, &AtomicU64::new(0));
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(0), MAX_OUTPUT));
}

#[test]
fn times_of_a_process_are_read() {
    let stat = "12 (a) b) c) R 1 2 3 4 5 6 7 8 9 10 700 42 0 0 20";
    assert_eq!(ticks_of(stat), Some(742));
    for broken in
        ["", "12 (x) R 1", "12 x R 1 2 3 4 5 6 7 8 9 10 11 12", "1 (x) R 1 2 3 4 5 6 7 8 9 10 -1 2"]
    {
        assert_eq!(ticks_of(broken), None, "{broken}");
    }
    assert!(processor_time(rustix::process::getpid()).is_some());
}
