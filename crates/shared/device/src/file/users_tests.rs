use super::*;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

/// What a query may take here: its limit, on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

/// A directory like /proc, with processes that have a file open.
struct Proc {
    dir: tempfile::TempDir,
    file: File,
}

impl Proc {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("volume")).unwrap();
        Self { dir, file }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    /// A process with the file as descriptor 3.
    fn process(&self, pid: u32, info: &str) -> PathBuf {
        let process = self.root().join(pid.to_string());
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join("fdinfo")).unwrap();
        symlink(self.dir.path().join("volume"), process.join("fd/3")).unwrap();
        fs::write(process.join("fdinfo/3"), info).unwrap();
        fs::write(process.join("comm"), format!("p{pid}\n")).unwrap();
        process
    }
}

/// In place of a file whose reader waits for ever.
fn hang(path: &Path) {
    let _ = fs::remove_file(path);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[track_caller]
fn in_time<T>(ask: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = ask();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    answer
}

#[test]
fn the_process_that_locks_the_byte_is_named() {
    let proc = Proc::new();
    proc.process(17, "pos:\t0\n");
    proc.process(400, "pos:\t0\nlock:\t1: OFDLCK ADVISORY WRITE -1 00:01:77 7 7\n");
    proc.process(9, "lock:\t1: OFDLCK ADVISORY WRITE -1 00:01:77 8 8\n");
    fs::create_dir(proc.root().join("sys")).unwrap();
    assert_eq!(lock_holders_in(&proc.root(), &proc.file, 7), ["process 400 (p400)"]);
    let all = ["process 9 (p9)", "process 17 (p17)", "process 400 (p400)"];
    assert_eq!(lock_holders_in(&proc.root(), &proc.file, 5), all);
}

#[test]
fn a_process_that_keeps_its_readers_waiting_is_passed_over() {
    let proc = Proc::new();
    hang(&proc.process(17, "").join("fdinfo/3"));
    proc.process(400, "lock:\t1: OFDLCK ADVISORY WRITE -1 00:01:77 7 7\n");
    let who = in_time(|| lock_holders_in(&proc.root(), &proc.file, 7));
    assert_eq!(who, ["process 400 (p400)"]);
    hang(&proc.process(500, "").join("comm"));
    let who = in_time(|| lock_holders_in(&proc.root(), &proc.file, 3));
    assert_eq!(who, ["process 17 (p17)", "process 400 (p400)"]);
}

#[test]
fn a_file_below_a_loop_device_that_keeps_its_readers_waiting_is_passed_over() {
    let sys = Proc::new();
    let backed = |name: &str| {
        let dir = sys.root().join(name).join("loop");
        fs::create_dir_all(&dir).unwrap();
        let volume = sys.dir.path().join("volume");
        fs::write(dir.join("backing_file"), format!("{}\n", volume.display())).unwrap();
        dir.join("backing_file")
    };
    backed("sda");
    hang(&backed("loop1"));
    assert_eq!(in_time(|| loop_in(&sys.root(), &sys.file)), None);
    backed("loop2");
    let device = in_time(|| loop_in(&sys.root(), &sys.file));
    assert_eq!(device, Some("/dev/loop2".into()));
}
