//! Which threads a call wakes, by counts, and that none of those that are not woken is missed
//! ("Threads" in `docs/design/network.md`).

use siftfs_base::Result;
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_proto::{Cache, Credentials, FileService, Opening, ROOT_INO, Reply, Request};
use siftfs_remote::{Claim, Served};
use siftfs_served::{Setup, Way};
use std::fs;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// One test at a time has threads.
static ALONE: Mutex<()> = Mutex::new(());

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::SMALL));
    open(media).unwrap()
}

fn ask(service: &dyn FileService, request: Request) -> Result<Reply> {
    service.call(&Credentials::default(), request)
}

/// How often threads of this process with one of these names went to sleep by themselves.
fn sleeps(names: &[&str]) -> u64 {
    let count = |task: fs::DirEntry| -> Option<u64> {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines().filter(|_| names.contains(&name.trim()));
        lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
    };
    fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(count).sum()
}

/// A caller that makes one call after the other: at the server the thread sleeps that receives,
/// once for each, and at the client the caller's own. What a busy machine adds to that is not in
/// each of many rounds.
#[test]
fn one_thread_of_each_side_sleeps_for_a_call() {
    const CALLS: u64 = 100;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = driver();
    for way in [Way::Shared, Way::Unix, Way::Secret] {
        let setup = Setup::new(&driver.volume, way);
        let client = setup.client(Claim::Owner).unwrap();
        let mut least = (u64::MAX, u64::MAX);
        for _ in 0..100 {
            let server = ["siftfs-session", "siftfs-call"];
            let before = (sleeps(&server), sleeps(&["siftfs-client"]));
            for _ in 0..CALLS {
                ask(&client, Request::StatFs).unwrap();
            }
            let after = (sleeps(&server), sleeps(&["siftfs-client"]));
            let now = (after.0 - before.0, after.1 - before.1);
            least = least.min(now);
            if least.0 <= CALLS * 11 / 10 && least.1 <= CALLS / 4 {
                break;
            }
        }
        assert!(least.0 <= CALLS * 11 / 10, "{way:?}: {} sleeps at the server", least.0);
        assert!(least.1 <= CALLS / 4, "{way:?}: {} sleeps of the session's own thread", least.1);
        drop(client);
    }
    driver.volume.close().unwrap();
}

/// A volume in which one call waits for another one.
struct Waits {
    volume: Arc<dyn Served>,
    came: Arc<(Mutex<bool>, Condvar)>,
}

struct WaitingSession {
    service: Arc<dyn FileService>,
    came: Arc<(Mutex<bool>, Condvar)>,
}

impl Served for Waits {
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
        let (service, came) = (self.volume.open(opening, cache)?, self.came.clone());
        Ok(Arc::new(WaitingSession { service, came }))
    }
}

impl FileService for WaitingSession {
    /// A checkpoint waits until attributes have been asked for.
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (came, woken) = &*self.came;
        match req {
            Request::Checkpoint => {
                let came = came.lock().unwrap();
                *woken.wait_while(came, |came| !*came).unwrap() = false;
            }
            Request::GetAttr { .. } => {
                *came.lock().unwrap() = true;
                woken.notify_all();
            }
            _ => {}
        }
        self.service.call(cred, req)
    }
}

/// A call that waits for what another call of its own session does, after many that came one after
/// the other: the session is listened to all the same (rule R51), and both are answered.
#[test]
fn r51_a_call_that_waits_does_not_keep_the_receiver() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = driver();
    for way in Way::TRUSTED {
        let (volume, came) = (driver.volume.served("volume").unwrap(), Arc::default());
        let volume = Waits { volume, came };
        let setup = Setup::serving(Arc::new(volume), way, "role=admin squash=none");
        let client = setup.client(Claim::Owner).unwrap();
        for _ in 0..3 {
            for _ in 0..20 {
                ask(&client, Request::StatFs).unwrap();
            }
            std::thread::scope(|scope| {
                let calls = setup.server.counts().calls;
                let waits = scope.spawn(|| ask(&client, Request::Checkpoint));
                while setup.server.counts().calls == calls {
                    std::thread::yield_now();
                }
                ask(&client, Request::GetAttr { file: ROOT_INO.into() }).unwrap();
                waits.join().unwrap().unwrap();
            });
        }
        drop(client);
        drop(setup);
    }
    driver.volume.close().unwrap();
}
