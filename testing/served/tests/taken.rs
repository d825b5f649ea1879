//! A server whose volume another process may have taken over: it answers nobody while it does not
//! know (`docs/design/replicated.md`, "Takeover of a served volume").

use siftfs_base::{Error, Result};
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_proto::{Cache, Credentials, FileService, Opening, ROOT_INO, Request};
use siftfs_remote::{Claim, Served, Tenure};
use siftfs_served::{Setup, Way};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The hold of a server on its volume, as a test has it.
#[derive(Debug)]
struct Hold {
    counts: AtomicBool,
    lost: AtomicBool,
}

impl Tenure for Hold {
    fn counts_now(&self) -> bool {
        self.counts.load(Ordering::SeqCst) && !self.lost.load(Ordering::SeqCst)
    }

    fn wait(&self, over: &dyn Fn() -> bool) -> bool {
        loop {
            if self.counts_now() {
                return true;
            }
            if over() || self.lost.load(Ordering::SeqCst) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A volume with such a hold.
struct Held {
    volume: Arc<dyn Served>,
    hold: Arc<Hold>,
}

impl Served for Held {
    fn uuid(&self) -> [u8; 16] {
        self.volume.uuid()
    }
    fn is_called(&self, name: &str) -> bool {
        self.volume.is_called(name)
    }
    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        Some(self.hold.clone())
    }
    fn open(
        &self,
        opening: Opening,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<dyn FileService>> {
        self.volume.open(opening, cache)
    }
}

fn setup(driver: &Driver) -> (Setup, Arc<Hold>) {
    let hold = Arc::new(Hold { counts: AtomicBool::new(true), lost: AtomicBool::new(false) });
    let volume = driver.volume.served("volume").unwrap();
    let held = Held { volume, hold: hold.clone() };
    (Setup::with(Arc::new(held), Way::Unix, siftfs_remote::Execution::default()), hold)
}

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::ROOMY));
    open(media).unwrap()
}

fn stat(client: &dyn FileService) -> Result<()> {
    client.call(&Credentials::default(), Request::GetAttr { file: ROOT_INO.into() }).map(drop)
}

/// A call waits while the server does not know, and is answered when it does.
#[test]
fn a_call_waits_until_the_server_knows() {
    let driver = driver();
    let (setup, hold) = setup(&driver);
    let client = setup.client(Claim::Owner).unwrap();
    stat(&client).unwrap();
    hold.counts.store(false, Ordering::SeqCst);
    let answered = Mutex::new(None);
    thread::scope(|scope| {
        scope.spawn(|| *answered.lock().unwrap() = Some(stat(&client)));
        thread::sleep(Duration::from_millis(100));
        assert!(answered.lock().unwrap().is_none(), "it was answered by what may be another's");
        hold.counts.store(true, Ordering::SeqCst);
    });
    answered.lock().unwrap().take().unwrap().unwrap();
}

/// A server that has lost its volume tells its clients nothing, no error either: they lose the
/// connection, and go where the volume is.
#[test]
fn a_server_without_its_volume_answers_nobody() {
    let driver = driver();
    let (setup, hold) = setup(&driver);
    let client = setup.client(Claim::Owner).unwrap();
    stat(&client).unwrap();
    hold.lost.store(true, Ordering::SeqCst);
    let error = stat(&client).unwrap_err();
    assert!(matches!(error, Error::Link(_)), "{error}");
    let refused = setup.client(Claim::Owner).unwrap_err().to_string();
    assert!(refused.contains("whether it still has the volume"), "{refused}");
}

/// A client that comes while the server does not know is refused in time to go elsewhere.
#[test]
fn who_comes_while_the_server_does_not_know_is_refused() {
    let driver = driver();
    let (setup, hold) = setup(&driver);
    hold.counts.store(false, Ordering::SeqCst);
    let refused = setup.client(Claim::Owner).unwrap_err().to_string();
    assert!(refused.contains("whether it still has the volume"), "{refused}");
    hold.counts.store(true, Ordering::SeqCst);
    stat(&setup.client(Claim::Owner).unwrap()).unwrap();
}
