use super::*;

const SAID: &str = "pgbench (15.8)
transaction type: <builtin: TPC-B (sort of)>
number of clients: 4
number of threads: 2
duration: 3 s
number of transactions actually processed: 3142
number of failed transactions: 0 (0.000%)
latency average = 3.812 ms
initial connection time = 9.716 ms
tps = 1049.312211 (without initial connection time)
";

#[test]
fn what_pgbench_prints_is_read() {
    assert_eq!(processed(SAID), Some((3142, 1_049.312_211)));
}

#[test]
fn failed_transactions_and_other_text_are_no_result() {
    let failed = SAID.replace("failed transactions: 0", "failed transactions: 7");
    assert_eq!(processed(&failed), None);
    assert_eq!(processed(&SAID.replace("tps =", "rate =")), None);
    assert_eq!(processed("pgbench: error: connection failed"), None);
}

#[test]
fn the_newest_whole_version_is_taken() {
    let tmp = tempfile::tempdir().expect("a directory");
    assert_eq!(newest(&tmp.path().join("nothing")), None);
    for (version, programs) in [("9", 3), ("15", 3), ("16", 2), ("common", 3)] {
        let bin = tmp.path().join(version).join("bin");
        fs::create_dir_all(&bin).expect("a directory");
        for program in &["postgres", "initdb", "pgbench"][..programs] {
            fs::write(bin.join(program), "").expect("a file");
        }
    }
    assert_eq!(newest(tmp.path()), Some(tmp.path().join("15/bin")), "16 has no pgbench");
}
