use super::*;

#[test]
fn a_progress_line() {
    let line = "2026/01/02-03:04:05  ... thread 0: (100,2300) ops and (9.1,8.2) ops/second in (1,2) seconds";
    assert_eq!(finished(line), Some(2300));
    assert_eq!(finished("put error: IO error"), None);
    assert_eq!(finished("thread 0: (x) ops"), None);
}

#[test]
fn a_count() {
    assert_eq!(counted("Keys in range: 42\nStats: x\n"), Some(42));
    assert_eq!(counted("Failed: no such database"), None);
}
