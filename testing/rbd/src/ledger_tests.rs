use super::*;

fn written(dir: &Path, records: u64) {
    for n in 0..WRITERS {
        let bytes: Vec<u8> = (1..=records).flat_map(|number| record(n, number)).collect();
        fs::write(path_of(dir, n), bytes).unwrap();
    }
}

#[test]
fn what_was_acknowledged_has_to_be_there() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 5);
    let mut ledger = Ledger { acknowledged: [5; WRITERS] };
    ledger.judge(dir.path()).unwrap();
    ledger.acknowledged[2] = 6;
    let Failed(said) = ledger.judge(dir.path()).unwrap_err();
    assert!(said.contains("6 records were acknowledged, and 5 are there"), "{said}");
    fs::remove_file(path_of(dir.path(), 0)).unwrap();
    assert!(Ledger { acknowledged: [1; WRITERS] }.judge(dir.path()).is_err());
}

#[test]
fn a_byte_that_differs_is_a_record_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), 3);
    let path = path_of(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(Ledger { acknowledged: [3; WRITERS] }.judge(dir.path()).is_err());
    // What was not acknowledged may be half there, and is cut off.
    Ledger { acknowledged: [2; WRITERS] }.judge(dir.path()).unwrap();
    let kept = fs::metadata(&path).unwrap().len();
    assert_eq!(kept, (record(1, 1).len() + record(1, 2).len()) as u64);
}

#[test]
fn writers_go_on_where_others_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    for _ in 0..2 {
        let writers = ledger.write(dir.path()).unwrap();
        writers.wait_for_more(Duration::from_secs(30)).unwrap();
        let before = ledger.total();
        let seen = writers.end(&mut ledger);
        assert!(seen.error.is_none() && ledger.total() > before);
        ledger.judge(dir.path()).unwrap();
    }
}
