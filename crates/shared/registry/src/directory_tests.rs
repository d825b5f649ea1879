use super::*;
use crate::{Left, MOST_LEASES, RegisteredLease};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const VOLUME: [u8; 16] = *b"volume-uuid-0001";

/// A directory on a disk: where this test program was built. The one for temporary files may lie in
/// memory.
fn disk() -> TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn own() -> u32 {
    std::process::id()
}

fn lease(number: u64) -> RegisteredLease {
    RegisteredLease { slot: number as u32, number, ino: 12, generation: 3 }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Refused(why)) => why,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("not refused"),
    }
}

/// A log's file that lies in something else than its row says is a copy (rule R16).
///
/// Seen to fail when the medium is not looked at.
#[test]
fn r16_a_log_lies_in_what_its_row_says() {
    let (top, memory) = (disk(), tempfile::tempdir_in("/dev/shm").unwrap());
    for (dir, medium, refused) in [
        (top.path(), LogMedium::File, None),
        (top.path(), LogMedium::Byte, Some("no DAX")),
        (top.path(), LogMedium::Volatile, None),
        (memory.path(), LogMedium::File, Some("lies in memory")),
        (memory.path(), LogMedium::Byte, Some("no DAX")),
        (memory.path(), LogMedium::Volatile, None),
    ] {
        let dir = dir.join(format!("logs-{}", medium.name()));
        let made = Directory::create(LogsPlace::volatile(&dir), VOLUME).unwrap();
        let log = made.new_log(own()).unwrap();
        // The row as a daemon wrote it where the file lay then.
        let (mut row, number) = made.shared.draw().unwrap();
        let entry = LogEntry {
            number,
            key: 1,
            len: LOG_BYTES,
            medium,
            begin: 0,
            process: Process::of(own()).unwrap(),
            leases: vec![lease(1)],
        };
        row.write(&made.shared.file, Some(entry)).unwrap();
        let name = |number| dir.join(log_name(made.name().uuid(), number));
        std::fs::copy(name(log.number()), name(number)).unwrap();
        let left = Left::open(made.name(), VOLUME).unwrap();
        let found = left.logs().iter().find(|log| log.number() == number).unwrap();
        match (left.file(found), refused) {
            (Ok(_), None) => {}
            (Err(Error::Refused(why)), Some(what)) => {
                assert!(why.contains(what) && why.contains("--discard-log"), "{why}");
            }
            (Ok(_), Some(what)) => panic!("{}: not refused: {what}", medium.name()),
            (Err(error), _) => panic!("{}: {error}", medium.name()),
        }
    }
}

#[test]
fn what_the_daemon_wrote_is_found_again() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let dir = made.name().dir().to_path_buf();
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    let mut first = made.new_log(own()).unwrap();
    let second = made.new_log(own()).unwrap();
    assert_ne!((first.number(), first.shape().key), (second.number(), second.shape().key));
    for path in files(&dir) {
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600, "{}", path.display());
    }
    for number in 1..=MOST_LEASES as u64 {
        assert_eq!(first.register(lease(number)), Ok(true));
    }
    assert_eq!(first.register(lease(1000)), Ok(false), "the row is full");
    assert_eq!(first.register(lease(7)), Ok(true), "it is there already");
    first.end(&[1, 2, 3, 5000]).unwrap();
    first.begin(4096).unwrap();
    first.begin(4096).unwrap();
    let (number, shape) = (first.number(), first.shape());
    second.remove().unwrap();
    drop(first);

    let left = Left::open(made.name(), VOLUME).unwrap();
    let [log] = left.logs() else { panic!("one log is left") };
    assert_eq!((log.number(), log.shape(), log.begin()), (number, shape, 4096));
    assert_eq!((shape.len, shape.medium), (LOG_BYTES, LogMedium::File));
    assert!(log.counts() && left.file(log).is_ok() && left.may_be_written());
    assert_eq!(log.lease(4, 4), Some(&lease(4)));
    assert_eq!([log.lease(3, 3), log.lease(5, 4), log.lease(1000, 1000)], [None; 3]);
    left.remove();
    assert_eq!(files(&dir), Vec::<PathBuf>::new());
}

/// A log's bytes have homes before the program gets it, and its descriptor goes past the cache.
#[test]
fn a_new_log_is_written_with_zeroes() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let log = made.new_log(own()).unwrap();
    let flags = rustix::fs::fcntl_getfl(log.descriptor()).unwrap();
    assert!(flags.contains(OFlags::DIRECT | OFlags::RDWR));
    let stat = rustix::fs::fstat(log.descriptor()).unwrap();
    assert_eq!(stat.st_size as u64, LOG_BYTES);
    assert!(stat.st_blocks as u64 * 512 >= LOG_BYTES);
}

/// Where memory is named as such, a log is mapped, in whole lines; nothing else lies in memory.
#[test]
fn a_log_in_memory_is_named_so() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = memory.path().join("logs");
    let why = refusal(Directory::create(&dir, VOLUME));
    assert!(why.contains("in memory") && why.contains("volatile:/dev/shm"), "{why}");
    let made = Directory::create(LogsPlace::volatile(&dir), VOLUME).unwrap();
    assert!(made.is_at(&LogsPlace::volatile(&dir)) && !made.is_at(&LogsPlace::from(&dir)));
    let mut log = made.new_log(own()).unwrap();
    let shape = log.shape();
    assert_eq!((shape.len, shape.medium), (LOG_BYTES, LogMedium::Volatile));
    assert!(log.promise().contains("nothing survives a power cut"), "{}", log.promise());
    let flags = rustix::fs::fcntl_getfl(log.descriptor()).unwrap();
    assert!(flags.contains(OFlags::RDWR) && !flags.contains(OFlags::DIRECT));
    log.register(lease(1)).unwrap();
    log.begin(64).unwrap();
    assert!(matches!(log.begin(96), Err(Error::Corrupt { .. })), "no line begins there");
    // What its program has mapped stays as it is, and the log is another file.
    rustix::io::pwrite(log.descriptor(), b"a batch", 128).unwrap();
    log.empty().unwrap();
    let left = Left::open(made.name(), VOLUME).unwrap();
    let [found] = left.logs() else { panic!("one log is left") };
    assert_eq!((found.shape(), found.begin()), (shape, 64));
    let mut read = [1; 7];
    left.file(found).unwrap().read(128, &mut read).unwrap();
    assert_eq!(read, [0; 7]);
    assert_eq!(rustix::fs::fstat(log.descriptor()).unwrap().st_size as u64, LOG_BYTES);
}

/// A log that is given up has nothing, whatever its program writes to its descriptor from then on.
///
/// Seen to fail when it is emptied in its place.
#[test]
fn a_log_that_is_given_up_is_no_longer_its_programs() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let mut log = made.new_log(own()).unwrap();
    assert_eq!(log.register(lease(1)), Ok(true));
    let program = std::fs::File::from(log.descriptor().try_clone_to_owned().unwrap());
    log.empty().unwrap();
    // What a write of its own behind the end would do.
    program.set_len(4096).unwrap();
    let left = Left::open(made.name(), VOLUME).unwrap();
    let [row] = left.logs() else { panic!("one log is left") };
    assert!(row.counts(), "the row says so");
    let name = made.name().dir().join(log_name(made.name().uuid(), log.number()));
    assert_eq!(name.metadata().unwrap().len(), 0);
    assert!(left.file(row).is_ok());
    left.remove();
    assert_eq!(files(made.name().dir()), Vec::<PathBuf>::new());
}

/// Where its newest batch ends is what a program says: no answer does the daemon harm.
///
/// Seen to fail when the row is written unchecked.
#[test]
fn a_program_says_where_its_log_ends() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let mut log = made.new_log(own()).unwrap();
    log.begin(8192).unwrap();
    for bad in [0, 4096, 8193, 12_289, 1 << 62, u64::MAX - 4095, u64::MAX] {
        let refused = log.begin(bad);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{bad}: {refused:?}");
    }
    log.begin((1 << 62) - 4096).unwrap();
    let left = Left::open(made.name(), VOLUME).unwrap();
    assert_eq!(left.logs()[0].begin(), (1 << 62) - 4096, "and the row goes on");
}

/// Rows of logs that went serve again, and the newest log of a row is the one that is found.
#[test]
fn rows_are_used_again() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let log = made.new_log(own()).unwrap();
        assert!(log.number() > last, "a number stands for one log");
        last = log.number();
        log.remove().unwrap();
    }
    assert_eq!(made.shared.rows().unused, 1);
    assert_eq!(Left::open(made.name(), VOLUME).unwrap().logs().len(), 0);
    let log = made.new_log(own()).unwrap();
    let left = Left::open(made.name(), VOLUME).unwrap();
    assert_eq!(left.logs()[0].number(), log.number());
    assert!(!left.logs()[0].counts());
}

#[test]
fn a_place_that_cannot_keep_logs_is_refused() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    assert!(refusal(Directory::create(memory.path(), VOLUME)).contains("in memory"));
    let top = disk();
    let dir = top.path().join("logs");
    std::fs::create_dir(&dir).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
        let why = refusal(Directory::create(&dir, VOLUME));
        assert!(why.contains("may write to it"), "{mode:o}: {why}");
    }
    let file = top.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    refusal(Directory::create(&file, VOLUME));
    refusal(Directory::create(&top.path().join("missing/logs"), VOLUME));
    assert_eq!(files(&dir), Vec::<PathBuf>::new());
}

#[test]
fn a_registry_that_is_missing_or_another_is_refused() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let dir = made.name().dir().to_path_buf();
    let says = |name: &RegistryName, volume| {
        let why = refusal(Left::open(name, volume));
        assert!(why.contains("siftfs recover --discard-log"), "{why}");
    };
    says(made.name(), [9; 16]);
    says(&RegistryName::new([7; 16], &dir).unwrap(), VOLUME);
    says(&RegistryName::new(*made.name().uuid(), Path::new("/nowhere/at/all")).unwrap(), VOLUME);
    let [file] = &files(&dir)[..] else { panic!("the registry alone") };
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, &whole[..8192]).unwrap();
    says(made.name(), VOLUME);
    std::fs::remove_file(file).unwrap();
    says(made.name(), VOLUME);
    let other = top.path().join("other");
    std::fs::write(&other, whole).unwrap();
    symlink(other, file).unwrap();
    says(made.name(), VOLUME);
    std::fs::remove_file(file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    says(made.name(), VOLUME);
}

/// Whatever became of a log's file, it is read or told missing, and nothing waits.
#[test]
fn a_log_is_read_whatever_became_of_its_file() {
    let top = disk();
    let made = Directory::create(&top.path().join("logs"), VOLUME).unwrap();
    let log = made.new_log(own()).unwrap();
    let path = made.name().dir().join(log_name(made.name().uuid(), log.number()));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"bytes", 4090).unwrap();
    file.set_len(4092).unwrap();
    let read = |at| {
        let left = Left::open(made.name(), VOLUME).unwrap();
        let mut buf = [9; 8];
        left.file(&left.logs()[0]).map(|file| file.read(at, &mut buf)).ok().map(|_| buf)
    };
    assert_eq!(read(4088), Some(*b"\0\0by\0\0\0\0"));
    assert_eq!(read(LOG_BYTES), Some([0; 8]));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(0), None);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert_eq!(read(0), None);
    let left = Left::open(made.name(), VOLUME).unwrap();
    let why = refusal(left.file(&left.logs()[0]));
    assert!(why.contains("siftfs recover --discard-log"), "{why}");
    Left::give_up(made.name());
    assert_eq!(files(made.name().dir()), Vec::<PathBuf>::new());
}
