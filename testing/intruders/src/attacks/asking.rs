//! Calls of a right form, of what is not the caller's.

use super::{ANSWERS, Intruder, ask, call, opening, rights, root};
use crate::samples;
use crate::wire::Wire;
use siftfs_base::InodeNr;
use siftfs_calls::{Change, FromServer, Leases, ToServer};
use siftfs_codec::{Encoded, Message};
use siftfs_proto::compound::{Access, Compound, Step, Wanted};
use siftfs_proto::{
    Credentials, Handle, Held, Level, LockAsk, LockKind, LockPlace, PublishEntry, PublishSource,
    ROOT_INO, Reply, Request, SetAttr, Target,
};
use std::io;
use std::time::Duration;

/// Sessions for others, and calls in them.
pub(super) fn claims(it: &mut Intruder) -> io::Result<()> {
    let (claim, caches) = (it.claim(), it.rng.chance(30));
    let mut opening = opening(claim, caches, None);
    opening.leases = match it.rng.below(10) {
        0 => Leases::Lent,
        1..4 => Leases::Held,
        _ => Leases::None,
    };
    if it.rng.chance(10) {
        opening.volume = "x".repeat(it.rng.below(100_000) as usize);
    }
    let (mut wire, open) = it.open(opening)?;
    if open {
        for ino in it.inodes.clone() {
            for request in of(ino) {
                make_use(&mut wire, request)?;
            }
        }
    }
    wire.drain(ANSWERS);
    Ok(())
}

/// Any requests, damaged or with the numbers of what is another's, many at a time.
pub(super) fn requests(it: &mut Intruder) -> io::Result<()> {
    let all = samples::requests();
    let caches = it.rng.chance(20);
    let mut wire = it.session(caches)?;
    for _ in 0..30 {
        for slot in 0..16 {
            let request = all[it.rng.below(all.len() as u64) as usize].clone();
            let who = [root(), Credentials { uid: 1000, gid: 0, ..root() }];
            let who = who[it.rng.below(2) as usize].clone();
            let mut message = call(&mut wire, slot, who, request);
            if it.rng.chance(20)
                && let ToServer::Call { change, .. } = &mut message
            {
                *change = Some(Change::Reclaim);
            }
            let encoded = message.encode().map_err(|e| io::Error::other(e.to_string()))?;
            let Encoded { mut head, blocks } = encoded;
            // Behind slot and number.
            for _ in 0..=it.rng.below(3) {
                let at = 20 + it.rng.below(head.len() as u64 - 20) as usize;
                if it.rng.chance(70) && at + 8 <= head.len() {
                    let number = match it.rng.below(5) {
                        0 => it.rng.below(16),
                        1 => u64::MAX,
                        2 => 1 << 60,
                        _ => it.ino().into(),
                    };
                    // Inodes have four bytes, other numbers eight.
                    let len = if it.rng.chance(50) { 4 } else { 8 };
                    head[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
                } else {
                    head[at] = it.rng.bits() as u8;
                }
            }
            let frame = wire.frame(head, &blocks);
            wire.send_bytes(&frame)?;
        }
        let mut answered = 0;
        while answered < 16 {
            match wire.receive(Duration::from_millis(100))? {
                Some(_) => answered += 1,
                // Those that wait have their slots: their next calls end the session.
                None => break,
            }
        }
    }
    Ok(())
}

/// Every request that could show or change a canary.
pub(super) fn canaries(it: &mut Intruder) -> io::Result<()> {
    let mut wire = it.session(false)?;
    for ino in it.inodes.clone() {
        for request in of(ino) {
            make_use(&mut wire, request)?;
        }
    }
    for request in by_path() {
        make_use(&mut wire, request)?;
    }
    Ok(())
}

/// Makes a call, and uses the handle that it gives.
fn make_use(wire: &mut Wire, request: Request) -> io::Result<()> {
    use Request as R;
    let Some(FromServer::Answer { result: Ok(reply), .. }) = ask(wire, request)? else {
        return Ok(());
    };
    let Reply::Opened { handle } = *reply else { return Ok(()) };
    let file = Target::Open(handle);
    for request in [
        R::Read { file, offset: 0, len: 1 << 16 },
        R::ReadDir { handle, cookie: 0, max_bytes: 1 << 16, plus: true },
        R::GetXattr { file, name: b"user.canary".to_vec() },
        R::ListXattr { file },
        R::write(file, 0, vec![b'!'; 64]),
        R::Release { handle },
    ] {
        ask(wire, request)?;
    }
    Ok(())
}

/// What others have open: their handles, locks, sections, leases and tickets have small numbers,
/// too.
pub(super) fn handles(it: &mut Intruder) -> io::Result<()> {
    use Request as R;
    let mut wire = it.session(false)?;
    let from = it.rng.below(2000);
    for number in from..from + 60 {
        let handle = Handle(number);
        let file = Target::Open(handle);
        let ask_lock = LockAsk {
            owner: 1,
            pid: 1,
            place: LockPlace::Range(siftfs_proto::LockRange::ALL),
            kind: Some(LockKind::Write),
            wait: None,
        };
        for request in [
            R::Read { file, offset: 0, len: 1 << 16 },
            R::write(file, 0, vec![b'!'; 100]),
            R::ReadDir { handle, cookie: 0, max_bytes: 4096, plus: true },
            R::Release { handle },
            R::GetAttr { file },
            R::SetLock { file, ask: ask_lock },
            R::SectionRead { section: siftfs_proto::SectionId(number), offset: 0, len: 1 << 16 },
            R::SectionAbort { section: siftfs_proto::SectionId(number) },
            R::LeaseReturn { lease: siftfs_proto::LeaseId(number) },
            R::Poll { ticket: siftfs_proto::Ticket(number) },
            R::CancelLock { number },
        ] {
            ask(&mut wire, request)?;
        }
    }
    Ok(())
}

/// Requests that could show or change what is behind this number.
fn of(ino: InodeNr) -> Vec<Request> {
    use Request as R;
    let (file, times) = (Target::Inode(ino), true);
    let name = || b"stolen".to_vec();
    let set = |set| R::SetAttr { file, set, times };
    vec![
        R::HoldMany { inodes: vec![Held { ino, generation: 0, count: 1 }] },
        R::Hold { ino },
        R::GetAttr { file },
        R::Lookup { parent: ino, name: b"..".to_vec() },
        R::Lookup { parent: ino, name: b"link".to_vec() },
        R::ReadLink { ino },
        R::open(ino, Access::Read),
        R::open(ino, Access::Both),
        R::OpenDir { ino },
        R::ReadDir { handle: Handle(0), cookie: 0, max_bytes: 1 << 16, plus: true },
        R::Read { file, offset: 0, len: 1 << 16 },
        R::write(ino, 0, vec![b'!'; 64]),
        R::WriteBack { file, offset: 0, data: vec![b'!'; 64].into(), times },
        R::GetXattr { file, name: b"user.canary".to_vec() },
        R::ListXattr { file },
        R::Link { ino, parent: ROOT_INO, name: name() },
        set(SetAttr { perm: Some(0o777), ..SetAttr::default() }),
        set(SetAttr { uid: Some(65_534), ..SetAttr::default() }),
        set(SetAttr { size: Some(0), ..SetAttr::default() }),
        R::SetFlags { file, flags: 0x10 },
        R::Create { parent: ino, name: name(), perm: 0o666 },
        R::RemoveDir { parent: ino, name: name() },
        R::SectionStart { file },
        R::Lease { file, writers: Some(1), direct: Some(0) },
        R::Fsync { file, datasync: false },
    ]
}

/// The canaries by their paths, from either root.
fn by_path() -> Vec<Request> {
    let paths = ["vault", "vault/link", "../canary", "canary", "canary/link", "pen/vault"];
    let mut all = Vec::new();
    for path in paths.map(|path| path.as_bytes().to_vec()) {
        let entry = PublishEntry {
            source: PublishSource::Path(path.clone()),
            to: b"open/stolen".to_vec(),
            replace: true,
        };
        let (base, level) = (ROOT_INO, Level::Visible);
        all.push(Request::Publish { base, entries: vec![entry], level, rights: rights() });
        for step in [
            Step::Lookup { path: path.clone() },
            Step::Open { path: path.clone(), access: Access::Both, truncate: true },
            Step::Rename { from: path.clone(), to: b"open/stolen".to_vec(), replace: true },
        ] {
            let (steps, wanted) = (vec![step], Wanted::All);
            let compound = Compound { base, steps, level, rights: rights(), wanted };
            all.push(Request::Compound(Box::new(compound)));
        }
    }
    all
}
