use super::*;

const INO: InodeNr = 20;
const RW: u32 = O_RDWR;
const O_DSYNC: u32 = libc::O_DSYNC.cast_unsigned();

fn open(files: &OpenFiles, handle: u64, flags: u32) -> Handle {
    files.note(Handle(handle), INO, flags);
    Handle(handle)
}

#[test]
fn who_may_have_dirty_pages() {
    let files = OpenFiles::default();
    assert!(!files.may_be_dirty(INO) && !files.is_written(INO));
    let reader = open(&files, 1, O_RDONLY);
    let log = open(&files, 2, libc::O_WRONLY.cast_unsigned());
    assert!(!files.may_be_dirty(INO) && files.is_written(INO));
    let map = open(&files, 3, RW | O_DSYNC);
    assert!(files.may_be_dirty(INO));
    assert_eq!(files.inodes(), [INO]);
    assert_eq!(Owed::by(files.flags(map)), Owed::Data);
    assert_eq!(Owed::by(files.flags(log)), Owed::Nothing);
    assert_eq!(Owed::by(O_SYNC), Owed::All);
    files.remove(map);
    assert!(!files.may_be_dirty(INO) && files.is_written(INO));
    files.remove(reader);
    files.remove(log);
    assert!(files.inodes().is_empty());
}

#[test]
fn pages_read_beside_a_direct_writer_are_dropped() {
    let files = OpenFiles::default();
    let direct = open(&files, 1, RW | O_DIRECT);
    assert_eq!(files.written_past(INO, direct, 0, 4096), None, "nobody read");
    files.note_cached(INO, 4096, 8192);
    assert_eq!(files.written_past(INO, direct, 0, 4096), None, "nobody read here");
    let first = files.written_past(INO, direct, 5000, 10).unwrap();
    assert_eq!(first, (4096, 8192));
    let second = files.written_past(INO, direct, 4096, 4096);
    assert_eq!(second, Some(first), "the first one's pages are not gone yet");
    files.dropped(INO, first);
    files.dropped(INO, first);
    assert_eq!(files.written_past(INO, direct, 4096, 4096), None);
    assert_eq!(files.written_past(INO, direct, 8192, 1), Some((8192, 12_288)));
    files.remove(direct);
    files.note_cached(INO, 0, 4096);
    let direct = open(&files, 2, RW | O_DIRECT);
    assert_eq!(files.written_past(INO, direct, 0, 4096), None, "the kernel drops those itself");
}

#[test]
fn a_flag_set_after_open_counts() {
    let files = OpenFiles::default();
    let plain = open(&files, 1, RW);
    files.note_cached(INO, 0, 4096);
    assert_eq!(files.written_past(INO, plain, 0, 1), Some((0, 4096)));
    assert_eq!(Owed::by(files.flags(plain)), Owed::Nothing);
    files.remove(plain);
    assert_eq!(files.direct.load(Ordering::SeqCst), 0);
}

#[test]
fn many_ranges_are_all_of_it() {
    let files = OpenFiles::default();
    let direct = open(&files, 1, RW | O_DIRECT);
    for i in 0..=RANGES as u64 {
        files.note_cached(INO, i * 8 * PAGE, 1);
    }
    assert!(files.written_past(INO, direct, 4 * PAGE, 1).is_some());
}
