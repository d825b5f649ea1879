use super::*;
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
    ]
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
                                           head in 0u32..12) {
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
    assert!(error.contains("version 1 instead of 3"), "{error}");
}

#[test]
fn more_than_one_packet_has_is_not_asked_for() {
    let held = Held { slot: 0, number: 1 };
    let packet = Ask::Read { held, offset: 0, len: MOST_DATA as u32 + 1 }.encode();
    assert!(Ask::decode(&packet).is_err());
}
