//! Pairs of processes that must not speak with each other: one message on both sides says why, it
//! is logged and counted, and nothing is written. Real processes. Where one of the sides has to
//! differ from ours, the test sends its part of the greeting's bytes, whose form is fixed for all
//! versions.

use crate::support::{Setup, siftfs};
use crate::{Device, address, await_that, has, kill_host, mount, mount_log, put, status, view};
use rustix::process::Signal;
use siftfs_placement::HostEnd;
use siftfs_transport::{Received, TransportOptions, connect};
use siftfs_wire::{BlockProtocol, FromService, PROTOCOL_VERSION, ToService};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"SiftLink";
const OTHER: u32 = PROTOCOL_VERSION + 6;

/// A greeting of a peer that speaks this version alone, without shared memory. Roles: 1 host, 2
/// device.
fn greeting(version: u32, role: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for word in [version, version, role, 1000] {
        bytes.extend(word.to_le_bytes());
    }
    for wide in [0, 1u64 << 28, 0] {
        bytes.extend(wide.to_le_bytes());
    }
    bytes.extend(0u32.to_le_bytes());
    let crc = siftfs_base::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// Agreement, as its sender says it.
fn agreed() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    let crc = siftfs_base::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

fn socket(setup: &Setup) -> std::path::PathBuf {
    setup.tmp.path().join("service")
}

/// Speaks to a device process; what it said behind its own greeting.
fn speak(setup: &Setup, words: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket(setup)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The device process may hang up before it has read everything.
    let _ = stream.write_all(words);
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    String::from_utf8_lossy(told.get(56 + 20..).unwrap_or(&[])).into_owned()
}

fn refusals(setup: &Setup) -> u64 {
    status(setup)["runtime"]["service"]["device"]["refusals"].as_u64().unwrap()
}

/// The device process logs a refusal, once it has told the other side. Quotation marks are escaped
/// in its lines.
#[track_caller]
fn logged(device: &Device, text: &str) {
    await_that(text, || device.log().contains(text));
}

/// A device process is sent the greetings of a host of another version, of a program that is no
/// host, and of one that talks nonsense.
#[test]
fn a_device_process_refuses_other_versions_and_garbage() {
    let setup = Setup::new();
    let before = fs::read(setup.volume()).unwrap();
    let device = Device::start(&setup, &[]);
    let both = format!(
        "speaks versions {OTHER} to {OTHER} of the block protocol, this program \
                        {PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
    );
    let told = speak(&setup, &greeting(OTHER, 1));
    assert!(told.contains(&both), "{told}");
    logged(&device, &both);
    let told = speak(&setup, &greeting(PROTOCOL_VERSION, 2));
    assert!(told.contains("is not a Runtime"), "{told}");
    logged(&device, &told);
    let told =
        speak(&setup, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n and much more of it, to be sure");
    assert!(told.contains("does not speak SiftFS's block protocol"), "{told}");
    logged(&device, &told);
    // Agreed, and then bytes that are no message.
    let nonsense = [greeting(PROTOCOL_VERSION, 1), agreed(), vec![0x5a; 4096]].concat();
    speak(&setup, &nonsense);
    logged(&device, "what it sent");
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
    // It serves on, and says how many it refused.
    mount(&setup, &[]).ok();
    put(&setup, "served");
    assert_eq!(refusals(&setup), 4);
    let text = siftfs(&["status", setup.dir()]).ok().out;
    assert!(text.contains("4 refused by it in all"), "{text}");
    has(&setup, &["served"]);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

/// A host calls a device process of another version: both say so, and the volume is as it was.
#[test]
fn a_host_refuses_a_device_process_of_another_version() {
    let setup = Setup::new();
    let before = fs::read(setup.volume()).unwrap();
    let listener = UnixListener::bind(socket(&setup)).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&greeting(OTHER, 2)).unwrap();
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        String::from_utf8_lossy(told.get(56 + 20..).unwrap_or(&[])).into_owned()
    });
    let both = format!(
        "speaks versions {OTHER} to {OTHER} of the block protocol, this program \
                        {PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
    );
    mount(&setup, &[]).fails(1, &[&both, "use the same release on both sides"]);
    let told = other.join().unwrap();
    assert!(told.contains(&both), "{told}");
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
}

/// The host asks before it writes anything.
#[test]
fn a_device_process_of_another_volume_is_found_out_before_anything_is_written() {
    let setup = Setup::new();
    let other = setup.tmp.path().join("other").display().to_string();
    siftfs(&["mkfs", &other, "--size", "64M"]).ok();
    let uuid = |volume: &str| {
        let view = siftfs(&["inspect", volume, "--json"]).ok().out;
        let view: serde_json::Value = serde_json::from_str(&view).unwrap();
        view["volume"].as_str().map(str::to_owned)
    };
    let both = [uuid(setup.volume()), uuid(&other)].map(|u| u.expect("inspect shows the UUID"));
    let before = [fs::read(setup.volume()).unwrap(), fs::read(&other).unwrap()];
    let device = Device::of(&setup, &other, &[]);
    let said = mount(&setup, &[]).fails(1, &["serves the volume", &both[0], &both[1]]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    logged(&device, "a host is not served");
    let log = device.log();
    assert!(both.iter().all(|u| log.contains(u)), "{log}");
    assert!(fs::read(setup.volume()).unwrap() == before[0], "the host's volume was written");
    assert!(fs::read(&other).unwrap() == before[1], "the device's volume was written");
    // The device process tells its own host of it.
    let (dir, at) = (setup.dir(), address(&setup));
    siftfs(&["mount", &other, dir, "--service", &at]).ok();
    assert_eq!(refusals(&setup), 1);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
}

fn answer(end: &mut HostEnd) -> FromService {
    match end.receiver.recv(Some(Duration::from_secs(30))).unwrap() {
        Received::Message(m) => m,
        other => panic!("{other:?}"),
    }
}

fn hello(setup: &Setup, volume: [u8; 16], epoch: u64) -> FromService {
    let address = address(setup).parse().unwrap();
    let mut end = connect::<BlockProtocol>(&address, &TransportOptions::default()).unwrap();
    let (version, epoch) = (PROTOCOL_VERSION, siftfs_base::Epoch(epoch));
    end.sender.send(ToService::Hello { version, volume, epoch }).unwrap();
    answer(&mut end)
}

fn refused(message: FromService, part: &str) -> String {
    match message {
        FromService::Refused { reason } if reason.contains(part) => reason,
        other => panic!("no `{part}` in {other:?}"),
    }
}

/// A second host that knows everything, while the first one lives; a stale one, when it has died.
#[test]
fn two_hosts_and_a_stale_one() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &["-o", "commit=3600"]).ok();
    put(&setup, "first");
    siftfs(&["checkpoint", setup.dir()]).ok();
    let view = view(&setup);
    let (volume, epoch) = (view.header.volume, view.host.key.epoch.0);
    let before = fs::read(setup.volume()).unwrap();
    let reason = refused(hello(&setup, volume, epoch), "in use by");
    assert!(reason.contains(&format!("process {}", device.child.id())), "{reason}");
    logged(&device, "a host is not served");
    logged(&device, "in use by");
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
    assert_eq!(refusals(&setup), 1);
    put(&setup, "second");
    kill_host(&setup);
    await_that("the device process finishes", || device.log().contains("in the file system"));
    let before = fs::read(setup.volume()).unwrap();
    for stale in [epoch - 1, epoch + 1] {
        let reason = refused(hello(&setup, volume, stale), "another host has had the volume");
        assert!(reason.contains(&stale.to_string()) && reason.contains(&epoch.to_string()));
        logged(&device, &reason);
    }
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
    mount(&setup, &[]).ok();
    assert_eq!(refusals(&setup), 3);
    has(&setup, &["first", "second"]);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    assert!(!mount_log(&setup).contains("panicked"));
    setup.assert_plain_ext4();
}
