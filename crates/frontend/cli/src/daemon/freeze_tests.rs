use super::*;
use crate::control::messages::Ask;
use siftfs_base::SystemClock;
use siftfs_device::{Device, MemDevice};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{Credentials, ROOT_INO, Request};
use std::net::Shutdown;
use std::thread::{self, JoinHandle};

fn volume() -> LocalVolume {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(24 << 20));
    let options = MkfsOptions { log_size: Some(6 << 20), ..MkfsOptions::default() };
    mkfs_on(device.clone(), &options).unwrap();
    let media = siftfs_placement::Media::from(device);
    let options = OpenOptions::default();
    LocalVolume::open_on(media, Arc::new(SystemClock::default()), &options, Threads::Real).unwrap()
}

type Ended = JoinHandle<io::Result<Result<Value, String>>>;

/// Asks for a hold; the other end, and what comes of it.
fn ask(volume: &LocalVolume, within_s: u64) -> (UnixStream, Ended) {
    let (mut here, other) = UnixStream::pair().unwrap();
    let freezer = volume.freezer();
    let wanted = Freeze { within_s };
    let ended = thread::spawn(move || freeze(Some(&freezer), &wanted, &mut here));
    (other, ended)
}

fn held(other: &mut UnixStream) -> bool {
    let first: Answer = receive(other).unwrap();
    serde_json::from_value::<Freezing>(first.value).unwrap().held
}

fn mkdir(volume: &LocalVolume, name: &str) -> JoinHandle<bool> {
    let (service, name) = (volume.endpoint(), name.into());
    let make = Request::MakeDir { parent: ROOT_INO, name, perm: 0o755 };
    thread::spawn(move || service.call(&Credentials::default(), make).is_ok())
}

fn whole(ended: Ended) -> bool {
    let last = ended.join().unwrap().unwrap().unwrap();
    serde_json::from_value::<Thawed>(last).unwrap().whole
}

/// The caller says that its command is done: the snapshot is whole, and what waited goes on.
#[test]
fn a_hold_ends_with_its_callers_word() {
    let volume = volume();
    let (mut other, ended) = ask(&volume, 60);
    assert!(held(&mut other));
    let made = mkdir(&volume, "d");
    thread::sleep(Duration::from_millis(100));
    assert!(!made.is_finished(), "changes wait");
    send(&mut other, &Thaw {}).unwrap();
    assert!(whole(ended));
    assert!(made.join().unwrap());
    volume.close().unwrap();
}

/// A caller that dies, and one that says half a word or nonsense, ends the hold at once.
#[test]
fn a_hold_ends_with_its_caller() {
    let volume = volume();
    for said in [&b""[..], b"\x02", b"\x02\0\0\0{", b"\xff\xff\xff\xff", b"\x02\0\0\0no"] {
        let (mut other, ended) = ask(&volume, 600_u64.min(MOST_WITHIN.as_secs()));
        assert!(held(&mut other));
        let made = mkdir(&volume, &format!("d{}", said.len()));
        io::Write::write_all(&mut other, said).unwrap();
        other.shutdown(Shutdown::Both).unwrap();
        assert!(ended.join().unwrap().is_err(), "{said:?} is no word");
        assert!(made.join().unwrap());
    }
    volume.close().unwrap();
}

/// A command that takes longer than the term: the volume thaws by itself, and nothing is whole.
#[test]
fn a_hold_ends_with_its_term() {
    let volume = volume();
    let start = Instant::now();
    let (mut other, ended) = ask(&volume, 1);
    assert!(held(&mut other));
    let made = mkdir(&volume, "d");
    assert!(!whole(ended), "the term was over");
    assert!(made.join().unwrap());
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(20), "{took:?}");
    volume.close().unwrap();
}

/// What is refused, with a message: a second hold, no term or one that is too long, and a volume
/// that another process has open.
#[test]
fn what_cannot_be_held_is_refused() {
    let volume = volume();
    let (mut other, ended) = ask(&volume, 60);
    assert!(held(&mut other));
    let (_another, refused) = ask(&volume, 60);
    assert!(refused.join().unwrap().unwrap().unwrap_err().contains("frozen already"));
    send(&mut other, &Thaw {}).unwrap();
    assert!(whole(ended));
    for within in [0, MOST_WITHIN.as_secs() + 1, u64::MAX] {
        let (_other, refused) = ask(&volume, within);
        assert!(refused.join().unwrap().unwrap().unwrap_err().contains("seconds"));
    }
    let (mut here, _other) = UnixStream::pair().unwrap();
    assert!(freeze(None, &Freeze { within_s: 1 }, &mut here).unwrap().is_err());
    volume.close().unwrap();
}

/// A message that asks for a hold and names no number of seconds is refused.
#[test]
fn a_term_is_a_number() {
    for text in [r#"{"freeze":{"within_s":-1}}"#, r#"{"freeze":{}}"#, r#"{"freeze":1}"#] {
        let ask = format!(r#"{{"version":{VERSION},"mount":null,"op":{text}}}"#);
        assert!(serde_json::from_str::<Ask>(&ask).is_err(), "{text}");
    }
}
