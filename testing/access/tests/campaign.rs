//! A session's rights beside the kernel's: the seed is in `SIFTFS_SEED`.

use siftfs_access::campaign::Pair;
use siftfs_access::session::Speaks;

/// Cases of each run, and of a long one.
const CASES: u64 = 10_000;
const LONG: u64 = 100_000;

fn beside_the_kernel(speaks: Speaks) {
    let seed = std::env::var("SIFTFS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let cases = if std::env::var_os("SIFTFS_LONG").is_some() { LONG } else { CASES };
    let pair = Pair::new().unwrap_or_else(|e| panic!("{}", e.0));
    let report = pair.run(speaks, seed, cases).unwrap_or_else(|e| panic!("{}", e.0));
    println!("{report:?}");
    assert!(report.done > cases / 10, "too few calls are carried out: {report:?}");
    for errno in [libc::EACCES, libc::EPERM] {
        assert!(report.refused.get(&errno).is_some_and(|n| *n > cases / 50), "{report:?}");
    }
}

#[test]
fn a_session_may_do_what_the_kernel_would_let_its_caller_do() {
    beside_the_kernel(Speaks::ForOne);
}

/// A machine's session, by inodes' numbers, and with a caller that each call brings (rule R52).
#[test]
fn r52_a_call_may_do_what_the_kernel_would_let_its_caller_do() {
    beside_the_kernel(Speaks::ForAll);
}
