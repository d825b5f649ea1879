//! Sessions that give nothing back.

use super::{HOLDS, Intruder, ask, call, opening, root};
use siftfs_base::InodeNr;
use siftfs_calls::{Change, FromServer, Kept, Returning, TRIES, ToServer};
use siftfs_proto::compound::Access;
use siftfs_proto::{ROOT_INO, Reply, Request};
use std::io;
use std::time::{Duration, Instant};

/// Looks up what others change, and never takes a notice back.
pub(super) fn deaf(it: &mut Intruder) -> io::Result<()> {
    let mut wire = it.session(true)?;
    let below = if it.user.is_some() { &["pen", "shared"][..] } else { &["shared"] };
    let mut parent = ROOT_INO;
    for name in below {
        let lookup = Request::Lookup { parent, name: name.as_bytes().to_vec() };
        parent = found(ask(&mut wire, lookup)?)?;
    }
    for number in 0..6 {
        let name = format!("s{number}").into_bytes();
        if let Ok(ino) = found(ask(&mut wire, Request::Lookup { parent, name })?) {
            ask(&mut wire, Request::GetAttr { file: ino.into() })?;
            ask(&mut wire, Request::open(ino, Access::Read))?;
            ask(&mut wire, Request::Lease { file: ino.into(), writers: Some(1), direct: None })?;
        }
    }
    let begun = Instant::now();
    while begun.elapsed() < HOLDS && !(it.is_over)() {
        wire.receive(Duration::from_millis(200))?;
    }
    Ok(())
}

fn found(answer: Option<FromServer>) -> io::Result<InodeNr> {
    match answer {
        Some(FromServer::Answer { result: Ok(reply), .. }) => match *reply {
            Reply::Entry(attr) => Ok(attr.ino),
            _ => Err(io::ErrorKind::InvalidData.into()),
        },
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Asks for much, and takes none of it.
pub(super) fn greedy(it: &mut Intruder) -> io::Result<()> {
    let mut wire = it.session(false)?;
    let below = if it.user.is_some() { &["pen", "shared", "big"][..] } else { &["shared", "big"] };
    let mut ino = ROOT_INO;
    for name in below {
        let lookup = Request::Lookup { parent: ino, name: name.as_bytes().to_vec() };
        ino = found(ask(&mut wire, lookup)?)?;
    }
    ask(&mut wire, Request::open(ino, Access::Read))?;
    for slot in 1..64 {
        let read = Request::Read { file: ino.into(), offset: 0, len: 1 << 20 };
        let message = call(&mut wire, slot, root(), read);
        wire.send(&message)?;
    }
    std::thread::sleep(Duration::from_millis(it.rng.below(2000)));
    Ok(())
}

/// Comes back as another client, with changes that this one would have kept, and takes back what it
/// had.
pub(super) fn returning(it: &mut Intruder) -> io::Result<()> {
    let instance = it.rng.below(2) * it.rng.bits();
    let client = if it.rng.chance(80) { it.other } else { it.rng.bits() };
    let claim = if it.rng.chance(70) { siftfs_calls::Claim::Kernel } else { it.claim() };
    let back = Returning { client, instance };
    let (mut wire, open) = it.open(opening(claim, true, Some(back)))?;
    if !open {
        return Ok(());
    }
    for slot in 0..8 {
        let ino = it.ino();
        let kept = Kept {
            instance,
            order: it.rng.below(100),
            lsn: it.rng.below(100),
            inode: Some((ino, 0)),
            place: it.rng.below(70) as u32,
            number: it.rng.below(5),
            tried: [0; TRIES],
        };
        let changes = [
            Change::Kept(kept),
            Change::Reclaim,
            Change::Absolute { place: kept.place, number: kept.number },
            Change::Once { place: kept.place, number: kept.number },
        ];
        let request = match it.rng.below(3) {
            0 => Request::open(ino, Access::Both),
            1 => Request::Create { parent: ino, name: b"kept".to_vec(), perm: 0o666 },
            _ => Request::write(ino, 0, vec![b'!'; 100]),
        };
        let mut message = call(&mut wire, slot, root(), request);
        if let ToServer::Call { change, .. } = &mut message {
            *change = Some(changes[it.rng.below(4) as usize]);
        }
        wire.send(&message)?;
    }
    wire.send(&ToServer::Returned)?;
    wire.drain(Duration::from_millis(500));
    if it.rng.chance(50) {
        wire.send(&ToServer::Bye)?;
    }
    Ok(())
}
