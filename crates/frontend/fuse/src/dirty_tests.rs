use super::*;
use siftfs_base::errno;

fn user(uid: u32) -> Credentials {
    Credentials { uid, ..Credentials::default() }
}

/// A file is dirty from its first handle to its last; root's account goes before others'.
#[test]
fn handles_say_what_may_be_dirty_and_on_whose_account() {
    let files = DirtyFiles::default();
    assert!(!files.any() && files.account(7).is_none());
    files.opened(&user(5), Handle(1), 7);
    files.opened(&user(0), Handle(2), 7);
    files.opened(&user(6), Handle(3), 4);
    assert!(files.may_be_dirty(7) && !files.may_be_dirty(8) && files.any());
    assert_eq!(files.account(7), Some(user(0)));
    assert_eq!(files.account(4), Some(user(6)));
    assert!(files.is_opened_by(7, 5) && !files.is_opened_by(7, 6) && !files.is_opened_by(8, 5));
    files.closed(Handle(2));
    assert_eq!(files.account(7), Some(user(5)));
    files.closed(Handle(9));
    files.closed(Handle(1));
    assert!(!files.may_be_dirty(7));
    files.closed(Handle(3));
    assert!(!files.any());
}

/// What could not be written is remembered until the file is closed, and counted.
#[test]
fn lost_pages_are_known_while_the_file_is_open() {
    let files = DirtyFiles::default();
    assert!(!files.failed(7, &errno(libc::EIO)));
    assert_eq!(files.lost(7), None, "nobody has it open");
    files.opened(&user(0), Handle(1), 7);
    assert!(files.failed(7, &errno(libc::EIO)));
    assert!(!files.failed(7, &errno(libc::ENOSPC)), "the kernel asks already");
    assert_eq!(files.lost(7).map(|l| (l.times, l.error)), Some((2, errno(libc::ENOSPC))));
    assert_eq!(files.tell(7), Some(errno(libc::ENOSPC)));
    assert_eq!(files.tell(7), None, "once");
    assert!(files.failed(7, &errno(libc::EIO)));
    files.closed(Handle(1));
    files.opened(&user(0), Handle(2), 7);
    assert_eq!(files.lost(7), None);
}
