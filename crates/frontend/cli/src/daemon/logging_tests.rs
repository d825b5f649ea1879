use super::*;

#[test]
fn a_level_counts_more_than_the_variable() {
    let text = |level, variable| filter(level, variable).unwrap().to_string();
    assert_eq!(text(None, None), "info");
    assert_eq!(text(None, Some("")), "info");
    assert_eq!(text(None, Some("siftfs_fuse=trace")), "siftfs_fuse=trace");
    assert_eq!(text(Some(Level::Warn), Some("trace")), "warn");
    assert_eq!(text(Some(Level::Warn), Some("=,=")), "warn");
    let wrong = filter(None, Some("siftfs=loud")).unwrap_err();
    assert!(wrong.code == USAGE && wrong.message.contains("SIFTFS_LOG=siftfs=loud"), "{wrong:?}");
}
