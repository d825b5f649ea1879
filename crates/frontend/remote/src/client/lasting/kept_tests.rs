use super::*;
use siftfs_proto::WriteData;

fn change(file: Option<InodeNr>, (instance, order): (u64, u64), len: usize) -> Change {
    let data = WriteData::Bytes(vec![0; len]);
    Change {
        request: Request::write(file.unwrap_or(1), 0, data),
        credentials: Credentials::default(),
        proofs: Vec::new(),
        file,
        inode: None,
        instance,
        done: Done { order, ..Done::default() },
        tried: Vec::new(),
    }
}

fn orders(kept: &Kept, instance: u64) -> Vec<u64> {
    let all = kept.of_others(instance).into_iter();
    all.map(|at| kept.get(at).expect("it is kept").done.order).collect()
}

#[test]
fn a_sync_ends_what_was_answered_before_it_of_that_file() {
    let kept = Kept::default();
    kept.add(change(Some(5), (1, 1), 10));
    kept.add(change(Some(6), (1, 2), 10));
    kept.add(change(None, (1, 3), 10));
    let next = kept.next();
    kept.add(change(Some(5), (1, 4), 10));
    kept.synced(5, next);
    assert_eq!(orders(&kept, 9), [2, 3, 4]);
    kept.all_synced(kept.next());
    assert_eq!((kept.len(), kept.lock().bytes), (0, 0));
}

/// What a server says to be durable may come before the thread of the change that it is about.
#[test]
fn what_is_durable_is_not_kept() {
    let kept = Kept::default();
    for order in 1..=5 {
        kept.add(change(Some(5), (1, order), 10));
    }
    kept.durable(1, 3);
    assert_eq!(orders(&kept, 9), [4, 5]);
    kept.durable(1, 6);
    kept.add(change(Some(5), (1, 6), 10));
    kept.add(change(Some(5), (1, 7), 10));
    assert_eq!(orders(&kept, 9), [7]);
    kept.add(change(Some(5), (2, 2), 10));
    assert_eq!(orders(&kept, 9), [7, 2], "another server's order is another one");
}

/// In the server's order, whatever the order in which threads were woken; what was repeated at a
/// server that died, too, comes first.
#[test]
fn changes_are_repeated_in_the_order_in_which_they_were_made() {
    let kept = Kept::default();
    for order in [2, 1, 4, 3] {
        kept.add(change(Some(5), (1, order), 10));
    }
    assert_eq!(orders(&kept, 2), [1, 2, 3, 4]);
    let [first, second, ..] = kept.of_others(2)[..] else { panic!("four are kept") };
    kept.repeated(first, 2, Done { order: 7, ..Done::default() });
    kept.repeated(second, 2, Done { order: 8, ..Done::default() });
    assert_eq!(orders(&kept, 2), [3, 4]);
    assert_eq!(orders(&kept, 3), [7, 8, 3, 4]);
}

#[test]
fn what_is_kept_is_bounded() {
    let kept = Kept::default();
    for order in 0..64 {
        assert!(!kept.is_full());
        kept.add(change(Some(5), (1, order + 1), 1 << 20));
    }
    assert!(kept.is_full());
    kept.durable(1, 1);
    assert!(!kept.is_full());
    let kept = Kept::default();
    for order in 0..MOST as u64 {
        assert!(!kept.is_full());
        kept.add(change(Some(5), (1, order + 1), 0));
    }
    assert!(kept.is_full());
}

/// An append is repeated where it landed, O_TRUNC as a change of size, and a file that was made
/// keeps its number.
#[test]
fn requests_are_kept_as_they_can_be_repeated() {
    let done = Done { order: 1, lsn: 0, at: Some(700) };
    let handle = siftfs_proto::Handle(3);
    let append = Request::Append {
        file: handle.into(),
        end: 600,
        data: WriteData::Bytes(vec![1; 5]),
        kill_priv: true,
        times: true,
    };
    let written = Reply::Written { len: 5 };
    let (request, file, made) = repeatable(append, Some(9), &written, &done).unwrap();
    assert_eq!((file, made), (Some(9), None));
    let Request::Write { file, offset, append, kill_priv, .. } = request else {
        panic!("no write")
    };
    assert_eq!((file, offset, append, kill_priv), (Target::Inode(9), 700, false, true));
    let access = siftfs_proto::compound::Access::Both;
    let (truncate, kill_priv, times, beside_lease) = (true, false, true, false);
    let open = Request::Open { ino: 9, access, truncate, kill_priv, times, beside_lease };
    let opened = Reply::Opened { handle };
    let (request, file, _) = repeatable(open, None, &opened, &done).unwrap();
    assert_eq!(file, Some(9));
    assert!(matches!(request, Request::SetAttr { set: SetAttr { size: Some(0), .. }, .. }));
    let create = Request::Create { parent: 2, name: b"n".to_vec(), perm: 0o600 };
    let attr = crate::client::looked::tests::attr(17);
    let (request, file, made) =
        repeatable(create, None, &Reply::Created { attr, handle }, &done).unwrap();
    assert!(matches!(request, Request::MakeNode { kind: FileKind::Regular, perm: 0o600, .. }));
    assert_eq!((file, made), (None, Some((17, 0))));
    let unnamed = Request::TmpFile { parent: 2, perm: 0o600, exclusive: false };
    assert_eq!(repeatable(unnamed, None, &Reply::Done, &done), None);
}

/// A file that was changed by what nobody can repeat is lost with its server, unless that was made
/// durable: by a sync that began later, or because the server has said so.
#[test]
fn what_nobody_can_repeat_is_noted() {
    let kept = Kept::default();
    kept.add_loose(&[1, 2], (7, 10));
    let next = kept.next();
    kept.add_loose(&[3], (7, 11));
    assert_eq!(kept.len(), 3);
    kept.synced(2, next);
    kept.synced(3, next);
    kept.durable(6, 99);
    kept.durable(7, 10);
    kept.add_loose(&[4], (7, 9));
    assert_eq!(kept.take_loose_of_others(7), [] as [InodeNr; 0]);
    assert_eq!(kept.take_loose_of_others(8), [3], "its sync began before");
    kept.add_loose(&[5], (8, 1));
    kept.all_synced(kept.next());
    assert_eq!((kept.len(), kept.take_loose_of_others(9)), (0, Vec::new()));
    for file in 0..MOST as InodeNr {
        assert!(!kept.is_full());
        kept.add_loose(&[file], (8, 2));
    }
    assert!(kept.is_full(), "then a change waits");
}

/// A wait for what is under way is one for what was sent before it, of the same file, which is kept
/// at its end.
#[test]
fn what_is_under_way_is_waited_for() {
    let (kept, long) = (Kept::default(), Duration::from_secs(30));
    assert!(kept.have_ended(5, Duration::ZERO), "nothing is under way");
    let sent = kept.begins(5);
    assert!(kept.have_ended(6, Duration::ZERO), "another file");
    assert!(!kept.have_ended(5, Duration::from_millis(20)), "its answer has not come");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| kept.have_ended(5, long).then(|| kept.has_of(5)));
        std::thread::sleep(Duration::from_millis(20));
        kept.add(change(Some(5), (1, 1), 10));
        drop(sent);
        assert_eq!(waits.join().expect("no panic"), Some(true));
    });
    // What is sent meanwhile is not waited for.
    let first = kept.begins(5);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| kept.have_ended(5, long));
        std::thread::sleep(Duration::from_millis(20));
        let _later = kept.begins(5);
        drop(first);
        assert!(waits.join().expect("no panic"));
    });
    assert!(kept.lock().under_way.is_empty());
}
