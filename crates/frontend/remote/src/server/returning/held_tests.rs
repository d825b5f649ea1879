//! A server that does not know whether it still has its volume.

use super::*;

/// While a server takes nobody, nobody's term runs: a lock is not lost because the cluster is
/// silent.
#[test]
fn nobody_is_late_who_could_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir.path().join("book"), 4, None);
    let (_, connection) = arrive(&server, 1, 0);
    leave(&server, connection, Leaving::Lost);
    let late = |after: u64| {
        let mut state = server.lock();
        let now = Instant::now() + Duration::from_secs(after);
        state.clients.values_mut().map(|client| client.take_late(now).len()).sum::<usize>()
    };
    server.excuse(Duration::from_secs(15));
    assert_eq!(late(20), 0);
    assert_eq!(late(40), 1, "it could have come back");
}
