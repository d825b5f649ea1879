//! Executors of a served volume: what a session may expect beside others. Counts, no times.

use siftfs_base::Result;
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_proto::compound::{BytesArg, Checksum, Codec, Compound, Step, StepNr, Wanted};
use siftfs_proto::{
    Cache, Completion, Credentials, FileService, Handle, Level, Notice, Opening, ROOT_INO, Reply,
    Request, Rights, Target,
};
use siftfs_remote::{Claim, Client, Execution, Schedule, Served};
use siftfs_served::{Setup, Way};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::SMALL));
    open(media).unwrap()
}

fn ask(service: &dyn FileService, request: Request) -> Result<Reply> {
    service.call(&Credentials::default(), request)
}

fn created(client: &Client, name: &str) -> Handle {
    let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o600 };
    ask(client, create).unwrap().created().unwrap().1
}

/// What happened, in order.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// A long command began.
    Long,
    /// A read was sent.
    Sent,
    /// It began.
    Read,
}

type Events = Arc<Mutex<Vec<Event>>>;

/// A volume that writes down what begins.
struct Watched {
    volume: Arc<dyn Served>,
    events: Events,
}

struct WatchedSession {
    service: Arc<dyn FileService>,
    events: Events,
}

impl Served for Watched {
    fn uuid(&self) -> [u8; 16] {
        self.volume.uuid()
    }

    fn is_called(&self, name: &str) -> bool {
        self.volume.is_called(name)
    }

    fn open(
        &self,
        opening: Opening,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<dyn FileService>> {
        let (service, events) = (self.volume.open(opening, cache)?, self.events.clone());
        Ok(Arc::new(WatchedSession { service, events }))
    }
}

impl FileService for WatchedSession {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.service.call(cred, req)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match &req {
            Request::Compound(_) => self.events.lock().unwrap().push(Event::Long),
            Request::Read { .. } => self.events.lock().unwrap().push(Event::Read),
            _ => {}
        }
        self.service.submit(cred, req, done);
    }
}

/// Compresses, and sums up what that gave, many times.
fn long_compound() -> Request {
    let data = (0..64 << 10).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let compress = Step::Compress { codec: Codec::Zstd, data: BytesArg::Given(data) };
    let sum = Step::Checksum { kind: Checksum::Crc32c, data: BytesArg::Step(StepNr(0)) };
    let steps = std::iter::once(compress).chain(std::iter::repeat_n(sum, 200)).collect();
    let (base, level, rights) = (ROOT_INO, Level::Visible, Rights::all());
    let wanted = Wanted::Some { steps: Vec::new(), most: 0 };
    Request::Compound(Box::new(Compound { base, steps, level, rights, wanted }))
}

/// Sessions with long commands. The library sends three compounds at a time in each, by their data.
const FLOODS: usize = 12;

/// Long commands that begin between the sending of a read and its begin, for each of some reads,
/// while other sessions have all of them under way that they may have.
fn long_ones_before_reads(schedule: Schedule, executors: usize) -> Vec<usize> {
    const READS: usize = 12;
    let driver = driver();
    let events = Events::default();
    let volume =
        Watched { volume: driver.volume.served("volume").unwrap(), events: events.clone() };
    let execution = Execution { executors, schedule, ..Execution::default() };
    let setup = Setup::with(Arc::new(volume), Way::Shared, execution);
    let reads = setup.client(Claim::Owner).unwrap();
    let floods = [(); FLOODS].map(|()| setup.client(Claim::Owner).unwrap());
    let file = created(&reads, "f");
    ask(&reads, Request::write(file, 0, vec![7; 4096])).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for flood in floods.iter().cycle().take(3 * FLOODS) {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    ask(flood, long_compound()).unwrap();
                }
            });
        }
        // Each of the others has all under way that it may have.
        while events.lock().unwrap().len() < 4 * FLOODS {
            std::thread::yield_now();
        }
        for _ in 0..READS {
            events.lock().unwrap().push(Event::Sent);
            let file = file.into();
            ask(&reads, Request::Read { file, offset: 0, len: 256 }).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    drop((floods, reads));
    assert_eq!(setup.server.counts().ended, 0);
    drop(setup);
    driver.volume.close().unwrap();
    let events = events.lock().unwrap();
    // The flood goes on between a read's begin and the next one's sending, too.
    let mut counted = vec![0; READS];
    let (mut read, mut waits) = (0, false);
    for event in events.iter() {
        match event {
            Event::Sent => waits = true,
            Event::Long if waits => counted[read] += 1,
            Event::Long => {}
            Event::Read => (read, waits) = (read + 1, false),
        }
    }
    counted
}

/// Hostile neighbours: some 36 long compounds wait at any time. A read waits for all of them where
/// the first that came is the first, and for what is at work where sessions have their shares: at
/// the most for a round, one command of each other session. A few begin while the read is on its
/// way to the server, more where its thread is held up between the note of its sending and that.
#[test]
fn a_flood_of_long_compounds_keeps_no_read_back() {
    for executors in [1, 2] {
        let mut fair = long_ones_before_reads(Schedule::Fair, executors);
        let mut fcfs = long_ones_before_reads(Schedule::Fcfs, executors);
        fair.sort_unstable();
        fcfs.sort_unstable();
        println!("{executors} executors: fair {fair:?}, fcfs {fcfs:?}");
        assert!(fair[fair.len() / 2] <= 2, "{fair:?}");
        // One of the reads may have been held up.
        assert!(fair[fair.len() - 2] <= 8, "{fair:?}");
        assert!(*fair.last().unwrap() <= FLOODS, "{fair:?}");
        assert!(fcfs[fcfs.len() / 2] >= 2 * FLOODS, "{fcfs:?}");
    }
}

/// Gives each notice to a thread, which has to ask the server something before it drops it.
struct Asks(Mutex<Sender<Notice>>);

impl Cache for Asks {
    fn take_back(&self, notice: Notice) {
        self.0.lock().unwrap().send(notice).unwrap();
    }
}

/// Rule R51: a command that waits for a notice to be taken back lends the only executor to the
/// command that has to be carried out before. `Taken` itself needs none.
#[test]
fn r51_what_waits_for_a_notice_lends_its_executor() {
    let driver = driver();
    let execution = Execution { executors: 1, ..Execution::default() };
    let setup = Setup::with(driver.volume.served("volume").unwrap(), Way::Shared, execution);
    let writer = setup.client(Claim::Owner).unwrap();
    let file = created(&writer, "f");
    let (sender, notices) = channel();
    let cache = Arc::new(Asks(Mutex::new(sender)));
    let caches =
        Client::connect(&setup.address, (&setup.options, None), "", Claim::Kernel, Some(cache))
            .unwrap();
    let lookup = Request::Lookup { parent: ROOT_INO, name: b"f".into() };
    ask(&caches, lookup).unwrap();
    let asked = std::thread::scope(|scope| {
        let asks = scope.spawn(move || {
            let mut asked = 0;
            for notice in notices {
                ask(&caches, Request::StatFs).unwrap();
                asked += usize::from(!notice.attributes.is_empty());
                drop(notice);
                if asked == 5 {
                    break;
                }
            }
            // The session goes with its thread.
            drop(caches);
            asked
        });
        for n in 0..5 {
            ask(&writer, Request::write(file, 0, vec![n; 4096])).unwrap();
        }
        asks.join().unwrap()
    });
    assert_eq!(asked, 5);
    let counts = setup.server.counts();
    assert!(counts.lent >= 5 && counts.ended == 0, "{counts:?}");
    drop(writer);
    drop(setup);
    driver.volume.close().unwrap();
}

/// Writes of one file that were sent without a wait take effect in that order, and a read behind
/// them sees the last, whatever number of executors there is.
#[test]
fn calls_of_a_file_take_effect_in_their_order() {
    let driver = driver();
    let execution = Execution { executors: 8, ..Execution::default() };
    for way in [Way::Unix, Way::Shared] {
        let setup = Setup::with(driver.volume.served("volume").unwrap(), way, execution.clone());
        let client = setup.client(Claim::Owner).unwrap();
        let file = created(&client, &format!("{way:?}"));
        for round in 0..100u8 {
            let (sent, answers) = channel();
            let submit = |request: Request| {
                let sent = sent.clone();
                let done = move |result| drop(sent.send(result));
                client.submit(&Credentials::default(), request, Box::new(done));
            };
            for n in 0..30 {
                let len = if n % 3 == 0 { 300_000 } else { 4096 };
                submit(Request::write(file, 0, vec![round ^ n; len]));
            }
            submit(Request::Read { file: Target::Open(file), offset: 0, len: 4096 });
            drop(sent);
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(answers.len(), 31);
            let read = answers.into_iter().find_map(|reply| reply.data().ok());
            let read = read.unwrap();
            assert_eq!((read[0], read.len()), (round ^ 29, 4096), "{way:?}, round {round}");
        }
        drop(client);
    }
    driver.volume.close().unwrap();
}
