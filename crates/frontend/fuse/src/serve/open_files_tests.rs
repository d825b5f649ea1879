use super::*;
use siftfs_base::errno;

const INO: InodeNr = 20;
const RW: u32 = O_RDWR;
const O_WRONLY: u32 = libc::O_WRONLY.cast_unsigned();
const O_DSYNC: u32 = libc::O_DSYNC.cast_unsigned();

fn user(uid: u32) -> Credentials {
    Credentials { uid, ..Credentials::default() }
}

fn open(files: &OpenFiles, handle: u64, flags: u32) -> Handle {
    files.opened(&user(0), Handle(handle), INO, flags);
    Handle(handle)
}

#[test]
fn who_may_have_dirty_pages() {
    for writeback in [false, true] {
        let files = OpenFiles::new(writeback);
        assert!(!files.may_be_dirty(INO) && !files.is_written(INO) && !files.any());
        let reader = open(&files, 1, O_RDONLY);
        assert!(!files.any());
        let log = open(&files, 2, O_WRONLY);
        assert!(files.may_be_dirty(INO) == writeback && files.is_written(INO) && files.any());
        let map = open(&files, 3, RW | O_DSYNC);
        assert!(files.may_be_dirty(INO) && !files.may_be_dirty(INO + 1));
        assert_eq!(files.inodes(), [INO]);
        assert_eq!(Owed::by(files.flags(map)), Owed::Data);
        assert_eq!(Owed::by(files.flags(log)), Owed::Nothing);
        assert_eq!(Owed::by(O_SYNC), Owed::All);
        files.closed(map);
        assert!(files.may_be_dirty(INO) == writeback && files.is_written(INO));
        files.closed(reader);
        files.closed(log);
        assert!(files.inodes().is_empty() && !files.may_be_dirty(INO) && !files.any());
    }
}

/// Root's account goes before others'.
#[test]
fn handles_say_on_whose_account() {
    let files = OpenFiles::new(true);
    assert!(files.account(7).is_none());
    files.opened(&user(5), Handle(1), 7, RW);
    files.opened(&user(0), Handle(2), 7, O_WRONLY);
    files.opened(&user(6), Handle(3), 4, O_WRONLY);
    assert_eq!(files.account(7), Some(user(0)));
    assert_eq!(files.account(4), Some(user(6)));
    assert!(files.is_opened_by(7, 5) && !files.is_opened_by(7, 6) && !files.is_opened_by(8, 5));
    files.closed(Handle(2));
    assert_eq!(files.account(7), Some(user(5)));
    files.closed(Handle(9));
    files.closed(Handle(1));
    assert_eq!(files.account(7), None);
    assert_eq!(files.inodes(), [4]);
}

/// What could not be written is remembered until the file is closed, and counted.
#[test]
fn lost_pages_are_known_while_the_file_is_open() {
    let files = OpenFiles::new(true);
    assert!(!files.failed(INO, &errno(libc::EIO)));
    assert_eq!(files.lost(INO), None, "nobody has it open");
    let first = open(&files, 1, O_WRONLY);
    assert!(files.failed(INO, &errno(libc::EIO)));
    assert!(!files.failed(INO, &errno(libc::ENOSPC)), "the kernel asks already");
    assert_eq!(files.lost(INO).map(|l| (l.times, l.error)), Some((2, errno(libc::ENOSPC))));
    assert_eq!(files.tell(INO), Some(errno(libc::ENOSPC)));
    assert_eq!(files.tell(INO), None, "once");
    assert!(files.failed(INO, &errno(libc::EIO)));
    files.closed(first);
    open(&files, 2, O_WRONLY);
    assert_eq!(files.lost(INO), None);
}

/// A write(2) to a file that was emptied has nothing to do with what was lost before. What is lost
/// later is told again.
#[test]
fn an_empty_file_has_lost_nothing() {
    let files = OpenFiles::new(true);
    files.emptied(INO);
    open(&files, 1, O_WRONLY);
    assert!(files.failed(INO, &errno(libc::ENOSPC)));
    files.emptied(INO);
    assert_eq!(files.tell(INO), None);
    assert_eq!(files.lost(INO).map(|l| l.times), Some(1), "a sync of ours still counts it");
    assert!(files.failed(INO, &errno(libc::EIO)), "the kernel is made to ask again");
    assert_eq!(files.tell(INO), Some(errno(libc::EIO)));
}

#[test]
fn direct_writers_are_told_what_was_cached_beside_them() {
    let files = OpenFiles::new(false);
    files.note_cached(INO, 0, 4096);
    let direct = open(&files, 1, RW | O_DIRECT);
    assert!(!files.written_past(INO, direct, 0, 4096), "the kernel drops those itself");
    files.note_cached(INO, 0, 4096);
    assert!(files.written_past(INO, direct, 0, 4096));
    files.closed(direct);
    assert!(!files.is_written(INO) && files.inodes().is_empty());
    let again = open(&files, 2, RW | O_DIRECT);
    assert!(files.written_past(INO, again, 0, 4096), "the first one's pages are not gone yet");
    files.closed(again);
    files.dropped(INO);
    files.dropped(INO);
    assert!(files.table().files.is_empty());
    assert_eq!(files.direct.load(Ordering::SeqCst), 0);
}

#[test]
fn a_flag_set_after_open_counts() {
    let files = OpenFiles::new(false);
    let plain = open(&files, 1, RW);
    files.note_cached(INO, 0, 4096);
    assert!(files.written_past(INO, plain, 0, 1));
    assert_eq!(Owed::by(files.flags(plain)), Owed::Nothing);
    files.closed(plain);
    assert_eq!(files.direct.load(Ordering::SeqCst), 0);
}

#[test]
fn a_file_is_sealed_while_it_is_open() {
    let files = OpenFiles::new(true);
    assert!(!files.seal(INO, true), "nobody can write to it");
    let writer = open(&files, 1, O_WRONLY);
    assert!(!files.is_sealed(INO) && files.sealed().is_empty());
    assert!(files.seal(INO, true) && files.is_sealed(INO));
    assert!(!files.seal(INO, false) && !files.is_sealed(INO));
    assert!(files.seal(INO, true) && files.seal(INO, true));
    assert_eq!(files.sealed(), [INO]);
    files.closed(writer);
    open(&files, 2, O_WRONLY);
    assert!(!files.is_sealed(INO) && files.sealed().is_empty());
}
