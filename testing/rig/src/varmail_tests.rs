use super::*;

const ONE: Varmail = Varmail { threads: 1, messages: 250, any_size: false };

#[test]
fn a_step_leaves_as_many_messages_and_appends_to_one() {
    let tmp = tempfile::tempdir().expect("a directory");
    for n in 0..ONE.messages {
        fs::write(ONE.path(tmp.path(), 0, n), vec![0; 10]).expect("a message");
    }
    let data = vec![1; MESSAGE];
    for n in 0..3 {
        ONE.step(tmp.path(), 0, n, &data).expect("a step");
    }
    assert_eq!(fs::read_dir(tmp.path()).expect("messages").count() as u64, ONE.messages);
    let size = |n| fs::metadata(ONE.path(tmp.path(), 0, n)).expect("a message").len();
    assert_eq!((size(0), size(61)), (MESSAGE as u64, MESSAGE as u64 + 10));
}

#[test]
fn the_messages_of_a_step_are_different_ones() {
    for n in 0..1000 {
        let mut names: Vec<_> =
            (0..4).map(|w| ONE.path(Path::new("d"), 0, n * 7 + w * 61)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4);
    }
}

#[test]
fn appends_of_any_size_are_within_bounds() {
    let mail = Varmail { any_size: true, ..ONE };
    let sizes: Vec<usize> = (0..2000).map(|n| mail.size(n)).collect();
    assert!(sizes.iter().all(|size| (1..=MESSAGE).contains(size)));
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    assert!((7000..9400).contains(&mean), "{mean}");
}
