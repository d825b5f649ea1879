use super::*;
use crate::granted::{GrantedRun, MOST_GRANTED, MOST_NAME, MOST_RUNS};
use proptest::prelude::*;

fn held() -> impl Strategy<Value = Held> {
    any::<(u32, u64)>().prop_map(|(slot, number)| Held { slot, number })
}

fn asks() -> impl Strategy<Value = Ask> {
    prop_oneof![
        any::<Token>().prop_map(Ask::Enter),
        any::<Token>().prop_map(Ask::Lease),
        (held(), any::<u64>(), 0..=MOST_DATA as u32).prop_map(|(held, offset, len)| Ask::Read {
            held,
            offset,
            len
        }),
        (held(), any::<bool>(), any::<u64>()).prop_map(|(held, datasync, log)| Ask::Fsync {
            held,
            datasync,
            log
        }),
        Just(Ask::Log),
        any::<u64>().prop_map(Ask::Forget),
        Just(Ask::Ingest),
        Just(Ask::Nudge),
        held().prop_map(Ask::Return),
        (held(), any::<u64>()).prop_map(|(held, room)| Ask::Direct { held, room }),
        (held(), any::<u64>(), any::<u64>()).prop_map(|(held, first, end)| Ask::Extend {
            held,
            first,
            end
        }),
    ]
}

fn granted() -> impl Strategy<Value = Granted> {
    let run = (any::<u64>(), any::<u64>(), 0..=u64::MAX >> 1, any::<bool>());
    let runs = proptest::collection::vec(run, 0..9).prop_map(|runs| {
        let run = |(first, block, count, fresh)| GrantedRun { first, block, count, fresh };
        runs.into_iter().map(run).collect()
    });
    (any::<[u8; 32]>(), ".{0,20}", runs).prop_map(|(token, target, runs)| Granted {
        token,
        target,
        runs,
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(epoch, largest)| Answer::Entered { epoch, largest }),
        (held(), any::<u64>(), any::<i64>(), any::<u64>())
            .prop_map(|(held, size, mtime, ino)| Answer::Leased { held, size, mtime, ino }),
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(Answer::Data),
        (any::<(u64, u64)>(), 0u32..3).prop_map(|((len, key), medium)| {
            let medium = crate::LogMedium::of(medium).unwrap();
            Answer::Log(LogShape { len, key, medium })
        }),
        granted().prop_map(Answer::Granted),
        granted().prop_map(|granted| Answer::Extended(granted.runs)),
        Just(Answer::Done),
        Just(Answer::Ended),
        any::<i32>().prop_map(Answer::Failed),
    ]
}

proptest! {
    #[test]
    fn what_is_asked_is_understood(ask in asks()) {
        prop_assert_eq!(Ask::decode(&ask.encode()).unwrap(), ask);
    }

    #[test]
    fn what_is_answered_is_understood(answer in answers()) {
        prop_assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
    }

    /// A message that was changed is another message, in its one form, or an error.
    #[test]
    fn hostile_packets(ask in asks(), answer in answers(), at in 0..HEADER,
                       to in prop_oneof![0u8..10, any::<u8>()], cut in 0..HEADER + 8) {
        let mut packet = ask.encode();
        packet[at] = to;
        if let Ok(other) = Ask::decode(&packet) {
            prop_assert_eq!(other.encode(), packet);
        }
        let mut packet = answer.encode();
        packet[at] = to;
        if let Ok(other) = Answer::decode(&packet) {
            prop_assert_eq!(other.encode(), packet);
        }
        let mut packet = ask.encode().to_vec();
        packet.resize(cut, 0);
        prop_assert_eq!(Ask::decode(&packet).is_ok(), cut == HEADER);
        let packet = answer.encode();
        if cut < HEADER {
            prop_assert!(Answer::decode(&packet[..cut]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                           head in 0u32..13) {
        let mut likely = [VERSION.to_le_bytes(), head.to_le_bytes()].concat();
        likely.extend_from_slice(&bytes);
        for packet in [&bytes, &likely] {
            if let Ok(ask) = Ask::decode(packet) {
                prop_assert_eq!(&ask.encode()[..], &packet[..]);
            }
            if let Ok(answer) = Answer::decode(packet) {
                prop_assert_eq!(&answer.encode(), packet);
            }
        }
    }
}

#[test]
fn another_version_is_refused_before_anything_else_is_looked_at() {
    let mut packet = Ask::Enter([7; TOKEN]).encode();
    packet[0] = 1;
    packet[4] = 99;
    let error = Ask::decode(&packet).unwrap_err().to_string();
    assert!(error.contains("version 1 instead of 5"), "{error}");
}

#[test]
fn more_than_one_packet_has_is_not_asked_for() {
    let held = Held { slot: 0, number: 1 };
    let packet = Ask::Read { held, offset: 0, len: MOST_DATA as u32 + 1 }.encode();
    assert!(Ask::decode(&packet).is_err());
}

/// As much as one grant may have, and not one more.
#[test]
fn a_grant_has_bounds() {
    let run = GrantedRun { first: 1, block: 2, count: 3, fresh: true };
    let (token, target) = ([1; 32], "t".repeat(MOST_NAME));
    let most = Granted { token, target, runs: vec![run; MOST_RUNS] };
    let packet = Answer::Granted(most.clone()).encode();
    assert_eq!(packet.len(), HEADER + MOST_GRANTED);
    assert_eq!(Answer::decode(&packet).unwrap(), Answer::Granted(most.clone()));
    let more = [Granted { runs: vec![run; MOST_RUNS + 1], ..most.clone() }, {
        Granted { target: "t".repeat(MOST_NAME + 1), ..most }
    }];
    assert!(more.iter().all(|more| !more.fits()));
    // Its header says more than a grant has, though the bytes are there.
    for (at, count) in [(16, MOST_NAME as u64 + 1), (24, MOST_RUNS as u64 + 1)] {
        let mut packet = packet.clone();
        packet[at..at + 8].copy_from_slice(&count.to_le_bytes());
        packet.resize(HEADER + MOST_GRANTED + 24, b't');
        assert!(Answer::decode(&packet).is_err());
    }
    // A byte less or more, and a name that is no text.
    assert!(Answer::decode(&packet[..packet.len() - 1]).is_err());
    assert!(Answer::decode(&[&packet[..], &[0]].concat()).is_err());
    let mut packet = packet;
    packet[HEADER + 40] = 0xFF;
    assert!(Answer::decode(&packet).is_err());
}

/// What is granted besides has the bounds of one grant.
#[test]
fn what_is_granted_besides_has_bounds() {
    let run = GrantedRun { first: 1, block: 2, count: 3, fresh: true };
    let most = Answer::Extended(vec![run; MOST_RUNS]);
    let packet = most.encode();
    assert_eq!(Answer::decode(&packet).unwrap(), most);
    let mut more = packet.clone();
    more[24..32].copy_from_slice(&(MOST_RUNS as u64 + 1).to_le_bytes());
    more.resize(packet.len() + 24, 0);
    assert!(Answer::decode(&more).is_err(), "one more than a message has");
    assert!(Answer::decode(&packet[..packet.len() - 1]).is_err());
    assert!(Answer::decode(&[&packet[..], &[0]].concat()).is_err());
}
