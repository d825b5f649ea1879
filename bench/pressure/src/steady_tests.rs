use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_stall_is_seen_in_latency_gap_and_slots() {
    let opens = Instant::now() + ms(1000);
    let mut steady = Steady::new(opens, ms(1000));
    // Each takes 2 ms, one every 10 ms; nothing ends between 400 and 700.
    for n in 0..100 {
        let begin = opens + ms(10 * n);
        let end = begin + ms(2);
        match n {
            40 => steady.note(begin, opens + ms(702)),
            41..70 => {}
            _ => steady.note(begin, end),
        }
    }
    let s = steady.sum_up();
    assert_eq!(s.operations, 71);
    assert_eq!(s.slots, [10, 10, 10, 10, 0, 0, 0, 11, 10, 10]);
    assert_eq!((s.p50_us, s.max_us), (2000.0, 302_000.0));
    assert_eq!(s.gap_ms, 310.0, "from the end of the one before");
    assert_eq!(s.slow_slots(), (0, 0));
}

#[test]
fn what_is_outside_does_not_count_and_what_reaches_out_does() {
    let opens = Instant::now() + ms(1000);
    let mut steady = Steady::new(opens, ms(1000));
    steady.note(opens - ms(9), opens - ms(1));
    steady.note(opens - ms(500), opens + ms(150));
    steady.note(opens + ms(200), opens + ms(201));
    steady.note(opens + ms(900), opens + ms(1300));
    steady.note(opens + ms(1300), opens + ms(9000));
    let s = steady.sum_up();
    assert_eq!(s.operations, 2);
    assert_eq!(s.max_us, 650_000.0, "it began before the window and ended inside");
    assert_eq!(s.gap_ms, 1099.0, "the window's end is no end of a stall");
}

#[test]
fn a_window_without_an_operation_is_one_gap() {
    let s = Steady::new(Instant::now(), ms(300)).sum_up();
    assert_eq!((s.operations, s.gap_ms, s.slots.len()), (0, 300.0, 3));
}
