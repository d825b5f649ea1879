use super::*;
use siftfs_device::MemDevice;

/// A device that another process takes when a test says so, and that may not answer.
struct Taken {
    device: MemDevice,
    taken: AtomicBool,
    silent: AtomicBool,
    can_be_taken: bool,
}

impl Device for Taken {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        while self.silent.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        match self.was_taken() {
            Some(why) => Err(Error::Latched(why)),
            None => self.device.read(offset, buf),
        }
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.device.write(offset, data, fua)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn can_be_taken(&self) -> bool {
        self.can_be_taken
    }
    fn was_taken(&self) -> Option<String> {
        self.taken.load(Ordering::SeqCst).then(|| "fenced".into())
    }
}

fn device(can_be_taken: bool) -> (Arc<Taken>, Arc<dyn Device>) {
    let (taken, silent) = Default::default();
    let device = Arc::new(Taken { device: MemDevice::new(8192), taken, silent, can_be_taken });
    (device.clone(), device)
}

#[test]
fn a_device_that_nobody_takes_has_no_term() {
    let (_, device) = device(false);
    assert!(Term::of(&device).unwrap().is_none());
}

/// Answers count while looks are answered, and no longer than the term of the last one; and they
/// count again when the next one is.
#[test]
fn a_look_counts_for_its_term() {
    let (state, device) = device(true);
    let term = Term::of(&device).unwrap().unwrap();
    assert!(term.wait(&|| false), "the first look is waited for");
    state.silent.store(true, Ordering::SeqCst);
    thread::sleep(TERM + LOOK);
    assert!(!term.counts_now());
    assert!(!term.wait(&|| true), "its connection is over");
    assert_eq!(term.lost(), None, "silence says nothing");
    state.silent.store(false, Ordering::SeqCst);
    assert!(term.wait(&|| false));
    term.end();
}

/// What is told that the volume is another's waits for nothing, also if an access and not a look
/// was told first, in the middle of a term.
#[test]
fn nothing_counts_once_the_device_was_taken() {
    let (state, device) = device(true);
    let term = Term::of(&device).unwrap().unwrap();
    assert!(term.wait(&|| false));
    state.taken.store(true, Ordering::SeqCst);
    assert!(!term.counts_now() && !term.wait(&|| false));
    assert_eq!(term.lost().as_deref(), Some("fenced"));
}

/// A successor waits the terms of all before it out, by a clock that may be a tenth slower.
#[test]
fn a_successor_outlasts_the_terms_before_it() {
    let (_, device) = device(true);
    let read_at = Instant::now();
    outlast_others(&*device, read_at);
    assert!(read_at.elapsed() >= TERM + TERM / 10);
    let half = Duration::from_millis(550);
    assert_eq!(left_of_others(read_at, read_at + half), half, "recovery is a part of it");
    assert_eq!(left_of_others(read_at, read_at + 2 * TERM), Duration::ZERO);
}
