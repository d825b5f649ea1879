//! Handshakes that are cut off, changed or no handshakes.

use super::*;
use proptest::prelude::*;

/// A meeting whose bytes pass through `change`.
fn changed(site: &Site, change: impl FnMut(usize, Vec<u8>) -> Vec<u8>) -> Meeting {
    let tls = site.client();
    let (client, client_check) = tls.fresh(Some(site.known())).unwrap();
    let (config, server_check) = site.server.fresh().unwrap();
    let server = ServerConnection::new(config).unwrap();
    let mut meeting =
        Meeting { tls, client, client_check, server, server_check, errors: [None, None] };
    meeting.talk(change);
    meeting
}

/// How many bytes each end sends in a handshake.
fn lengths(site: &Site) -> [usize; 2] {
    let mut lengths = [0, 0];
    let meeting = changed(site, |side, bytes| {
        lengths[side] += bytes.len();
        bytes
    });
    assert!(meeting.peer().is_some());
    lengths
}

/// Cut off at each byte, neither end takes the handshake for whole.
#[test]
fn truncated() {
    let site = Site::new();
    let whole = lengths(&site);
    for side in [0, 1] {
        for keep in 0..whole[side] {
            let mut left = keep;
            let meeting = changed(&site, |from, mut bytes| {
                if from == side {
                    bytes.truncate(left);
                    left -= bytes.len();
                }
                bytes
            });
            assert!(meeting.peer().is_none(), "{keep} of {} bytes of {side}", whole[side]);
            // A client has done its part when it has heard all that the server says.
            assert!(side == 0 || meeting.client.is_handshaking(), "{keep}");
        }
    }
}

/// Is byte `at` of these records one of a record's version?
fn in_version(records: &[u8], at: usize) -> bool {
    let mut first = 0;
    while let Some([_, _, _, high, low]) = records.get(first..first + 5) {
        if (first + 1..first + 3).contains(&at) {
            return true;
        }
        first += 5 + usize::from(*high) * 256 + usize::from(*low);
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// One changed byte anywhere ends the handshake, the version in a record's head excepted, which
    /// nobody reads.
    #[test]
    fn tampered(side in 0usize..2, place: prop::sample::Index, flip in 1u8..) {
        let site = Site::new();
        let at = place.index(lengths(&site)[side]);
        let mut sent: [Vec<u8>; 2] = Default::default();
        let meeting = changed(&site, |from, mut bytes| {
            let before = sent[from].len();
            sent[from].extend(&bytes);
            if from == side && let Some(byte) = at.checked_sub(before).and_then(|i| bytes.get_mut(i)) {
                *byte ^= flip;
            }
            bytes
        });
        let over = meeting.peer().is_some() && meeting.errors.iter().all(Option::is_none);
        prop_assert!(!over || in_version(&sent[side], at), "byte {} of {}", at, side);
    }

    /// Bytes that are no handshake, also behind a plausible head.
    #[test]
    fn garbage(bytes in prop::collection::vec(any::<u8>(), 0..600), head: bool) {
        let site = Site::new();
        let bytes = if head { [&[22, 3, 1][..], &bytes].concat() } else { bytes };
        let (config, check) = site.server.fresh().unwrap();
        let mut server = ServerConnection::new(config).unwrap();
        let _ = server.take(&bytes);
        prop_assert!(server.is_handshaking() && check.peer().is_none());
        let (mut client, _) = site.client().fresh(Some(site.known())).unwrap();
        let _ = client.take(&bytes);
        prop_assert!(client.is_handshaking());
    }
}

/// A handshake message that says it has 16 MiB is not waited for.
#[test]
fn an_endless_hello_takes_little_memory() {
    let site = Site::new();
    let (config, _) = site.server.fresh().unwrap();
    let mut server = ServerConnection::new(config).unwrap();
    let record = |first: bool| {
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend(if first { [1, 0xff, 0xff, 0xff] } else { [0; 4] });
        record.resize(5 + 0x4000, 0);
        record
    };
    let taken = (0..64).take_while(|n| server.take(&record(*n == 0)).is_ok()).count();
    assert!(taken < 8, "{taken} records of 16 KiB were kept");
}

/// What is not TLS at all.
#[test]
fn other_protocols() {
    let site = Site::new();
    for text in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n"] {
        let (config, _) = site.server.fresh().unwrap();
        let mut server = ServerConnection::new(config).unwrap();
        let e = server.take(text.as_bytes()).unwrap_err();
        let e = std::io::Error::new(std::io::ErrorKind::InvalidData, e);
        let said = crate::tls::link::reason(&e);
        assert!(said.contains("does not speak TLS"), "{said}");
    }
}
