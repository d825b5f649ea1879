use super::*;

#[test]
fn modes_are_read_as_they_are_shown() {
    for mode in [ReplayMode::Ordered, ReplayMode::Coalesce, ReplayMode::Auto] {
        assert_eq!(mode.to_string().parse::<ReplayMode>().unwrap(), mode);
    }
    let e = "Auto".parse::<ReplayMode>().unwrap_err();
    assert!(e.to_string().contains("ordered, coalesce and auto"), "{e}");
}

#[test]
fn memory_is_divided_and_never_exceeded() {
    for memory in [MIN_MEMORY, 100 << 20, 256 << 20, 8 << 30] {
        for window in [0, 1 << 20, 64 << 20, 1 << 40] {
            let b = Budget::new(memory, window);
            assert!(b.batch >= 14 << 20, "{memory} {window}: {b:?}");
            assert_eq!(b.window.max(MIN_WINDOW) + b.batch + FIXED, memory);
        }
    }
    assert_eq!(Budget::new(256 << 20, 64 << 20).window, 64 << 20);
    assert_eq!(Budget::new(1 << 20, 64 << 20), Budget { window: 512 << 10, batch: 0 });
}
