use super::*;
use serde_json::json;

#[test]
fn a_disks_line() {
    let line = " 10 0 80 5 200 3 4096 28 0 6 36 22 47 15 6 77 21\n";
    let io = parse(line).expect("seventeen fields");
    assert_eq!((io.writes, io.write_bytes, io.flushes), (200, 4096 * 512, 77));
}

#[test]
fn a_line_without_flushes_counts_nothing() {
    assert!(parse("1 2 3 4 5 6 7 8 9 10 11").is_none());
}

fn status() -> Value {
    let origin = |n: u64| json!({"writes": n, "flushes": 2 * n, "write_bytes": 4096 * n});
    let region = |n: u64| json!({"foreground": origin(n), "background": origin(10 * n)});
    json!({"storage": {"area": region(1), "staging": region(2), "journal": region(3),
        "header": region(4)}})
}

#[test]
fn all_regions_are_summed_by_origin() {
    let all = Backend::from_status(&status()).expect("complete");
    assert_eq!((all.writes, all.flushes, all.write_bytes), (10, 20, 40960));
    assert_eq!((all.background_writes, all.background_flushes), (100, 200));
    let twice = all.plus(&all);
    assert_eq!(twice.since(&all).writes, all.writes);
}

#[test]
fn a_missing_counter_is_named() {
    let mut status = status();
    status["storage"]["journal"]["background"] = json!({});
    let Failed(message) = Backend::from_status(&status).expect_err("a counter is missing");
    assert!(message.contains("/storage/journal/background/writes"), "{message}");
}
