use super::*;
use siftfs_base::Timestamp;
use siftfs_log::NameOpKind;

fn link(lsn: u64, ino: InodeNr) -> NameOp {
    let kind = NameOpKind::Link { dir: 2, name: b"n".to_vec(), ino };
    NameOp { lsn: Lsn(lsn), time: Timestamp::default(), kind }
}

fn call(replies: &mut Replies, (client, slot, number): (u64, u32, u64), ops: &[NameOp]) {
    replies.enter(&Arc::new(Origin::new(client, slot, number)));
    ops.iter().for_each(|op| replies.made(op));
    replies.leave();
}

fn reply(lsn: u64, ino: InodeNr, (client, slot, number): (u64, u32, u64)) -> Item {
    Item::Reply(ReplyItem { client, slot, number, lsn: Lsn(lsn), ino })
}

#[test]
fn a_call_of_several_operations_is_its_newest_about_the_inode_of_its_first() {
    let mut replies = Replies::default();
    call(&mut replies, (7, 0, 1), &[link(10, 20), link(11, 21)]);
    assert_eq!(replies.of(Lsn(10)), None, "the record has both");
    assert_eq!(replies.of(Lsn(11)), Some(reply(11, 20, (7, 0, 1))));
    assert_eq!(replies.items(), [reply(11, 20, (7, 0, 1))]);
}

#[test]
fn a_slots_next_call_ends_what_is_noted_and_a_second_try_does_not() {
    let mut replies = Replies::default();
    call(&mut replies, (7, 0, 1), &[link(10, 20)]);
    call(&mut replies, (7, 0, 1), &[]);
    assert_eq!(replies.len(), 1, "the same call");
    call(&mut replies, (7, 0, 2), &[]);
    assert_eq!((replies.len(), replies.of(Lsn(10))), (0, None));
    assert!(replies.clients.is_empty() && replies.by_lsn.is_empty());
}

#[test]
fn operations_without_a_call_are_nobodys() {
    let mut replies = Replies::default();
    call(&mut replies, (7, 0, 1), &[link(10, 20)]);
    replies.made(&link(11, 20));
    assert_eq!((replies.len(), replies.of(Lsn(11))), (1, None));
}

#[test]
fn a_client_that_is_gone_leaves_nothing_and_others_stay() {
    let mut replies = Replies::default();
    for (lsn, call_of) in [(10, (6, 3, 1)), (11, (7, 0, 1)), (12, (7, 63, 1)), (13, (8, 0, 1))] {
        call(&mut replies, call_of, &[link(lsn, 20)]);
    }
    replies.cut(true);
    replies.forget_client(7);
    assert_eq!(replies.items(), [reply(10, 20, (6, 3, 1)), reply(13, 20, (8, 0, 1))]);
    assert_eq!(replies.clients.len(), 2);
    assert!(!replies.is_stale());
    replies.forget_all();
    assert!(replies.is_stale(), "the record behind the cut says what nobody needs");
    replies.cut(false);
    assert!(!replies.is_stale());
}
