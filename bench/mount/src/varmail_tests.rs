use super::*;

#[test]
fn a_step_leaves_as_many_messages_and_appends_to_one() {
    let tmp = tempfile::tempdir().expect("a directory");
    for n in 0..MESSAGES {
        fs::write(path(tmp.path(), 0, n), vec![0; 10]).expect("a message");
    }
    let data = vec![1; MESSAGE];
    for n in 0..3 {
        step(tmp.path(), 0, n, &data).expect("a step");
    }
    assert_eq!(fs::read_dir(tmp.path()).expect("messages").count() as u64, MESSAGES);
    let size = |n| fs::metadata(path(tmp.path(), 0, n)).expect("a message").len();
    assert_eq!((size(0), size(61)), (MESSAGE as u64, MESSAGE as u64 + 10));
}

#[test]
fn the_messages_of_a_step_are_different_ones() {
    let dir = Path::new("d");
    for n in 0..1000 {
        let mut names: Vec<_> = (0..4).map(|w| path(dir, 0, n * 7 + w * 61)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4);
    }
}
