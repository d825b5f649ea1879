//! What is outside of a bounded session's directory: no request changes it, and no answer shows it
//! (rule R52).

use siftfs_base::{Error, InodeNr};
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_model::tree::differences;
use siftfs_model::{Action, Caller, Generator, Lockstep, Profile, Rng, Tree};
use siftfs_proto::compound::{
    Access, BytesArg, Compound, Compounded, FileArg, NewAttributes, NumberArg, Step, StepNr, Value,
    Wanted,
};
use siftfs_proto::{
    Credentials, FileKind, FileService, Handle, Level, Opening, PublishEntry, PublishSource,
    ROOT_INO, RenameMode, Reply, Request, Rights, SetAttr, Target, XattrMode,
};
use siftfs_remote::{Claim, Served};
use siftfs_served::{BoundedVolume, Setup, Way, line};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stands in every name and every byte that is outside.
const CANARY: &[u8] = b"CANARY";
/// The directory of the session.
const INSIDE: &str = "/CANARY-way/inside";

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::ROOMY));
    open(media).unwrap()
}

fn owner(driver: &Driver) -> Arc<dyn FileService> {
    driver.volume.served("volume").unwrap().open(Opening::owner(), None).unwrap()
}

fn ask(service: &dyn FileService, req: Request) -> Result<Reply, Error> {
    service.call(&Credentials::default(), req)
}

fn dir(service: &dyn FileService, parent: InodeNr, name: &[u8]) -> InodeNr {
    let (name, perm) = (name.to_vec(), 0o777);
    ask(service, Request::MakeDir { parent, name, perm }).unwrap().attr().unwrap().ino
}

/// Makes what is outside, around the directory that the session has.
fn canaries(service: &dyn FileService) {
    let way = dir(service, ROOT_INO, b"CANARY-way");
    dir(service, way, b"inside");
    for parent in [ROOT_INO, way, dir(service, ROOT_INO, b"CANARY-beside")] {
        for name in [b"CANARY-a", b"CANARY-b"] {
            let create = Request::Create { parent, name: name.to_vec(), perm: 0o666 };
            let (_, handle) = ask(service, create).unwrap().created().unwrap();
            ask(service, Request::write(handle, 0, CANARY.repeat(1000))).unwrap();
            let (name, value, mode) = (b"user.CANARY".to_vec(), CANARY.to_vec(), XattrMode::Set);
            let file = handle.into();
            ask(service, Request::SetXattr { file, name, value, mode, kill_setgid: false })
                .unwrap();
            ask(service, Request::Fsync { file, datasync: false }).unwrap();
            ask(service, Request::Release { handle }).unwrap();
        }
        let (name, target) = (b"CANARY-link".to_vec(), CANARY.to_vec());
        ask(service, Request::Symlink { parent, name, target }).unwrap();
    }
}

/// What is outside of the session's directory, and the directory's number.
fn outside(driver: &Driver) -> (Tree, InodeNr) {
    let owner = driver.volume.served("volume").unwrap().open(Opening::kernel(), None).unwrap();
    // The first walk may change access times, as relatime has it.
    Caller::root(&*owner).walk().unwrap();
    let mut tree = Caller::root(&*owner).walk().unwrap();
    let inside = tree.lookup(INSIDE).unwrap();
    let mut queue = vec![inside];
    while let Some(ino) = queue.pop() {
        let below = tree.nodes.remove(&ino).map(|seen| seen.entries).unwrap_or_default();
        queue.extend(below.into_values());
    }
    (tree, inside)
}

/// What is not the same, times included.
fn changed(before: &Tree, after: &Tree) -> Vec<String> {
    let mut changed = differences(before, after, true);
    for (ino, seen) in &before.nodes {
        let then = after.nodes.get(ino).map(|seen| &seen.attr);
        if then != Some(&seen.attr) {
            changed.push(format!("{:?} became {then:?}", seen.attr));
        }
    }
    changed
}

/// Requests that a hostile client draws: numbers of what it has, and of what it has not.
struct Hostile {
    rng: Rng,
    inodes: Vec<InodeNr>,
    handles: Vec<Handle>,
}

impl Hostile {
    fn any<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.rng.below(all.len() as u64) as usize].clone()
    }

    fn ino(&mut self) -> InodeNr {
        match self.rng.below(8) {
            0 => self.rng.below(64) as InodeNr,
            1 => ROOT_INO,
            _ => {
                let all = self.inodes.clone();
                self.any(&all)
            }
        }
    }

    fn handle(&mut self) -> Handle {
        match (self.rng.below(8), self.handles.is_empty()) {
            (0, _) | (_, true) => Handle(self.rng.below(64)),
            _ => {
                let all = self.handles.clone();
                self.any(&all)
            }
        }
    }

    fn file(&mut self) -> Target {
        match self.rng.below(4) {
            0 => self.ino().into(),
            _ => self.handle().into(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let names: [&[u8]; 10] = [
            b"a",
            b"b",
            b"c",
            b"d",
            b".",
            b"..",
            b"CANARY-a",
            b"../CANARY-a",
            b"/CANARY-a",
            b"CANARY-way",
        ];
        self.any(&names).to_vec()
    }

    fn path(&mut self) -> Vec<u8> {
        let count = 1 + self.rng.below(3);
        let names: Vec<_> = (0..count).map(|_| self.name()).collect();
        names.join(&b'/')
    }

    fn step(&mut self, before: u32) -> Step {
        let file = match self.rng.below(3) {
            0 => FileArg::Open(self.handle()),
            _ => FileArg::Step(StepNr(self.rng.below(u64::from(before.max(1))) as u32)),
        };
        let (offset, data) = (NumberArg::Given(0), BytesArg::Given(b"xyz".to_vec()));
        match self.rng.below(9) {
            0 => Step::Lookup { path: self.path() },
            1 => Step::Open { path: self.path(), access: Access::Both, truncate: true },
            2 => Step::Create { path: self.path(), perm: 0o666 },
            3 => Step::Read { file, offset, len: 100 },
            4 => Step::Write { file, offset, data },
            5 => Step::Rename { from: self.path(), to: self.path(), replace: true },
            6 => Step::Link { file, to: self.path() },
            7 => Step::Unlink { path: self.path() },
            _ => {
                let set = NewAttributes { perm: Some(0o700), ..NewAttributes::default() };
                Step::SetAttributes { file, set }
            }
        }
    }

    fn compound(&mut self) -> Request {
        let base = self.ino();
        let count = 1 + self.rng.below(3) as u32;
        let steps = (0..count).map(|before| self.step(before)).collect();
        let (level, rights, wanted) = (Level::Visible, Rights::all(), Wanted::All);
        Request::Compound(Box::new(Compound { base, steps, level, rights, wanted }))
    }

    fn publish(&mut self) -> Request {
        let base = self.ino();
        let source = match self.rng.below(2) {
            0 => PublishSource::Open(self.handle()),
            _ => PublishSource::Path(self.path()),
        };
        let entries = vec![PublishEntry { source, to: self.path(), replace: true }];
        Request::Publish { base, entries, level: Level::Visible, rights: Rights::all() }
    }

    fn of_names(&mut self) -> Request {
        let (parent, name) = (self.ino(), self.name());
        match self.rng.below(10) {
            0 | 1 => Request::Lookup { parent, name },
            2 => Request::MakeDir { parent, name, perm: 0o777 },
            3 => Request::Symlink { parent, name, target: b"../..".to_vec() },
            4 => Request::Link { ino: self.ino(), parent, name },
            5 => Request::Unlink { parent, name },
            6 => Request::RemoveDir { parent, name },
            7 => {
                let (new_parent, new_name) = (self.ino(), self.name());
                let modes = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace];
                let mode = self.any(&modes);
                Request::Rename { parent, name, new_parent, new_name, mode }
            }
            8 => Request::MakeNode { parent, name, kind: FileKind::Fifo, perm: 0o666, rdev: 0 },
            _ => Request::Create { parent, name, perm: 0o666 },
        }
    }

    fn of_files(&mut self) -> Request {
        let (file, ino, handle) = (self.file(), self.ino(), self.handle());
        match self.rng.below(16) {
            0 => Request::Forget { ino, count: 1 + self.rng.below(3) },
            1 => Request::GetAttr { file },
            2 => {
                let set = SetAttr { perm: Some(0o777), uid: Some(3), ..SetAttr::default() };
                Request::SetAttr { file, set, times: true }
            }
            3 => Request::ReadLink { ino },
            4 => Request::open(ino, Access::Both),
            5 => Request::Hold { ino },
            6 | 7 => Request::OpenDir { ino },
            8 => Request::Release { handle },
            9 => Request::Read { file, offset: 0, len: 100 },
            10 => Request::write(file, 0, vec![1; 100]),
            11 => Request::GetXattr { file, name: b"user.CANARY".to_vec() },
            12 => Request::ListXattr { file },
            13 => Request::Fsync { file, datasync: false },
            _ => {
                let (max_bytes, plus) = (1 + self.rng.below(300) as u32, self.rng.below(2) == 0);
                Request::ReadDir { handle, cookie: 0, max_bytes, plus }
            }
        }
    }

    fn next(&mut self) -> Request {
        match self.rng.below(20) {
            0..9 => self.of_names(),
            9..17 => self.of_files(),
            17 => self.publish(),
            18 => self.compound(),
            _ => Request::TmpFile { parent: self.ino(), perm: 0o666, exclusive: false },
        }
    }

    /// Remembers what an answer gives. Returns the inodes that it shows.
    fn learn(&mut self, reply: &Reply) -> Vec<InodeNr> {
        let mut shown = Vec::new();
        match reply {
            Reply::Entry(attr) | Reply::Attr(attr) => shown.push(attr.ino),
            Reply::Created { attr, handle } => {
                shown.push(attr.ino);
                self.handles.push(*handle);
            }
            Reply::Opened { handle } => self.handles.push(*handle),
            Reply::Dir(entries) => {
                shown.extend(entries.iter().map(|entry| entry.ino));
                shown.extend(entries.iter().filter_map(|e| Some(e.attr.as_ref()?.ino)));
            }
            Reply::Published { names, files } => {
                shown.extend(names.iter().map(|(dir, _)| *dir).chain(files.iter().copied()));
            }
            Reply::Compounded(Compounded::Done { values, names, files, written }) => {
                shown.extend(names.iter().map(|(dir, _)| *dir).chain(files.iter().copied()));
                shown.extend(written.iter().map(|file| file.ino));
                for value in values {
                    if let Value::File { ino, open, .. } = value {
                        shown.push(*ino);
                        self.handles.extend(open.map(|(handle, _)| handle));
                    }
                }
            }
            _ => {}
        }
        let new: Vec<_> = shown.iter().filter(|ino| !self.inodes.contains(ino)).copied().collect();
        self.inodes.extend(new);
        shown
    }
}

/// Bytes that an answer shows.
fn bytes_of(reply: &Reply) -> Vec<Vec<u8>> {
    match reply {
        Reply::Data(bytes) => vec![bytes.clone()],
        Reply::Blocks(blocks) => vec![blocks.to_vec()],
        Reply::Names(names) => names.clone(),
        Reply::Dir(entries) => entries.iter().map(|entry| entry.name.clone()).collect(),
        Reply::Compounded(Compounded::Done { values, .. }) => {
            let bytes = |value: &Value| match value {
                Value::Bytes(bytes) => Some(bytes.clone()),
                _ => None,
            };
            values.iter().filter_map(bytes).collect()
        }
        _ => Vec::new(),
    }
}

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY)
}

/// A user with every right there is, who knows every number. Its requests come as they are drawn,
/// without the checks that a wire makes before.
#[test]
fn nothing_outside_is_changed_or_shown() {
    nothing_outside("", Opening::owner, &Credentials::default());
}

/// Another machine's kernel, whose callers are root and are believed: by an inode's number alone it
/// may ask for anything that a user's session needs a handle for.
#[test]
fn r52_a_machine_gets_nothing_from_outside() {
    let rights = Some(Box::new(Rights::all()));
    let root = Credentials { rights, ..Credentials::default() };
    nothing_outside("squash=none", Opening::machine, &root);
}

fn nothing_outside(options: &str, opening: impl Fn() -> Opening, cred: &Credentials) {
    let (seeds, requests) = match std::env::var_os("SIFTFS_LONG").is_some() {
        true => (200, 3000),
        false => (6, 1500),
    };
    let mut answered = 0;
    for seed in 0..seeds {
        let driver = driver();
        canaries(&*owner(&driver));
        let (before, inside) = outside(&driver);
        let stands_out: BTreeSet<InodeNr> =
            before.nodes.keys().copied().filter(|ino| *ino != ROOT_INO).chain([inside]).collect();
        let bounded =
            BoundedVolume::new(&driver.volume, line(&format!("{options} subtree={INSIDE}")));
        let client = bounded.open(opening(), None).unwrap();
        let inodes = stands_out.iter().copied().chain([ROOT_INO]).collect();
        let mut hostile = Hostile { rng: Rng::new(seed), inodes, handles: Vec::new() };
        for _ in 0..requests {
            let req = hostile.next();
            let named = format!("{req:?}");
            let Ok(reply) = client.call(cred, req) else { continue };
            answered += 1;
            for ino in hostile.learn(&reply) {
                assert!(!stands_out.contains(&ino), "seed {seed}: {named} shows {ino}: {reply:?}");
            }
            // A name that the client made itself is its own.
            let own = matches!(reply, Reply::Dir(_));
            let seen = bytes_of(&reply).iter().any(|bytes| has_canary(bytes));
            assert!(own || !seen, "seed {seed}: {named} shows {reply:?}");
        }
        drop(client);
        let (after, _) = outside(&driver);
        assert_eq!(changed(&before, &after), [""; 0], "seed {seed}");
        driver.volume.close().unwrap();
    }
    assert!(answered > seeds * requests / 20, "only {answered} requests were answered");
}

/// The directory is a volume for the model, by a wire, and nothing else moves. It may not ask
/// for what an administrator may.
#[test]
fn the_inside_is_the_models() {
    let seeds = if std::env::var_os("SIFTFS_LONG").is_some() { 60 } else { 8 };
    for seed in 0..seeds {
        let driver = driver();
        canaries(&*owner(&driver));
        let (before, _) = outside(&driver);
        let bounded = BoundedVolume::new(&driver.volume, line(&format!("subtree={INSIDE}")));
        let setup = Setup::serving(bounded, Way::Shared, "");
        let client = setup.client(Claim::Kernel).unwrap();
        let mut pair = Lockstep::new(&client, &driver).unwrap();
        let profile =
            Profile { tickets: 5, sections: 10, compounds: 15, publish: 10, ..Profile::default() };
        let mut generator = Generator::new(seed, profile);
        for _ in 0..200 {
            let op = generator.next(&pair.model);
            if matches!(op.action, Action::Call(_, Request::SyncAll | Request::Checkpoint)) {
                continue;
            }
            let outcome = pair.step(&op);
            let _ = outcome.unwrap_or_else(|e| panic!("seed {seed}: {op:?}: {e}"));
        }
        pair.check_tree().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        drop(pair);
        drop(client);
        drop(setup);
        let (after, _) = outside(&driver);
        assert_eq!(changed(&before, &after), [""; 0], "seed {seed}");
        driver.volume.close().unwrap();
    }
}
