use super::*;
use siftfs_device::MemDevice;

/// A place where no process can be reached, and the system says why, or does not.
struct Nowhere {
    empty: bool,
}

impl Connector for Nowhere {
    fn connect(&self) -> Result<HostEnd> {
        Err(Error::Refused("not reached".into()))
    }
    fn address(&self) -> String {
        "tcp:nowhere:1".into()
    }
    fn nobody_listens(&self) -> bool {
        self.empty
    }
}

const AGES: Duration = Duration::from_secs(3600);

fn remote(empty: bool) -> Remote {
    let who = Identity { volume: [7; 16], epoch: Epoch(1), txn_seq: TxnSeq(0) };
    let media = Arc::new(MemDevice::new(1 << 20)).into();
    let connector = Arc::new(Nowhere { empty });
    Remote::new(Arc::default(), who, connector, Some(AGES), media, Replay::default())
}

/// While a volume goes on, a device process has its time to come back. One that is being closed
/// waits only if a process may be there, and says for which.
#[test]
fn nobody_is_waited_for_at_the_end_who_is_not_there() {
    for empty in [true, false] {
        let remote = remote(empty);
        assert!(!remote.is_due(), "it may be started again");
        assert_eq!(remote.waiting(), None);
        remote.fall_back_within(AGES);
        assert_eq!(remote.is_due(), empty);
        let text = remote.waiting();
        assert_eq!(text.is_some(), !empty, "{text:?}");
        if let Some(text) = text {
            assert!(text.starts_with("waiting up to 3600 s for "), "{text}");
            assert!(text.ends_with(" the device process at tcp:nowhere:1"), "{text}");
        }
    }
}

/// The lock is kept: the message to the caller names the process that has it.
#[test]
fn a_lock_that_is_kept_is_named() {
    let remote = remote(true);
    remote.fall_back_within(Duration::ZERO);
    assert!(remote.is_due());
    lock(&remote.state).refused = Some(Instant::now());
    remote.note_away("in use by process 7");
    let text = remote.waiting().unwrap();
    assert!(text.contains("tcp:nowhere:1") && text.contains("in use by process 7"), "{text}");
}

/// A device process that was just killed holds its lock for a moment: nobody is told by then that
/// it keeps its place.
#[test]
fn a_takeover_is_refused_for_a_while_before_callers_are_told() {
    let start = Instant::now();
    assert!(!keeps_its_place(None, start + 2 * DYING));
    assert!(!keeps_its_place(Some(start), start));
    assert!(!keeps_its_place(Some(start), start + DYING - Duration::from_millis(1)));
    assert!(keeps_its_place(Some(start), start + DYING));
}
