//! Messages for tests: one of every variant at least. The tests of a served volume use this file,
//! too.

use siftfs_base::{BLOCK_SIZE, Error, SharedBlock, Timestamp};
use siftfs_calls::{
    Back, Change, Claim, Done, FromServer, Grant, Kept, Leases, Opening, Proven, Returning,
    ToServer, Told,
};
use siftfs_proto::compound::*;
use siftfs_proto::*;
use siftfs_status::{CheckpointReport, RuntimeStatus, Trimmed};
use std::time::Duration;

/// A block of which no two differ in only a few bytes.
pub fn block(seed: u8) -> SharedBlock {
    let mut bytes = [0; BLOCK_SIZE];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(31) ^ seed.wrapping_add((i >> 8) as u8);
    }
    SharedBlock::from(bytes)
}

fn time(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 999_999_999 }
}

pub fn rights() -> Rights {
    let (groups, file_size) = (vec![4, 7, u32::MAX], Some(1 << 40));
    Rights { groups, file_size, running: vec![12], reads_all: true, ..Rights::default() }
}

pub fn attr() -> Attr {
    Attr {
        ino: 12,
        generation: 3,
        kind: FileKind::Regular,
        perm: 0o4755,
        nlink: 2,
        uid: 1000,
        gid: 100,
        rdev: 0x0801,
        size: 1 << 33,
        blocks: 8,
        atime: time(-5),
        mtime: time(i64::MAX),
        ctime: time(i64::MIN),
        crtime: time(0),
        held: true,
    }
}

fn steps() -> Vec<Step> {
    let (file, offset) = (FileArg::Step(StepNr(0)), NumberArg::Step(StepNr(3)));
    let (path, given) = (b"d/name".to_vec(), BytesArg::Given(vec![1, 2, 3]));
    let part = BytesArg::Part { step: StepNr(3), start: 4, len: 5 };
    vec![
        Step::Lookup { path: path.clone() },
        Step::Open { path: path.clone(), access: Access::Both, truncate: true },
        Step::Create { path: path.clone(), perm: 0o640 },
        Step::Read { file: file.clone(), offset: NumberArg::Given(9), len: 10 },
        Step::Write { file: file.clone(), offset: offset.clone(), data: given.clone() },
        Step::Append { file: FileArg::Open(Handle(5)), data: part.clone() },
        Step::Checksum { kind: Checksum::MaskedCrc32c, data: BytesArg::Step(StepNr(3)) },
        Step::Compress { codec: Codec::Zstd, data: given.clone() },
        Step::Decompress { codec: Codec::Lz4Frame, data: given.clone(), most: 100 },
        Step::Join { first: part.clone(), second: given.clone() },
        Step::Patch { file: file.clone(), offset: offset.clone(), data: given.clone() },
        Step::Add {
            file: file.clone(),
            offset: offset.clone(),
            width: Width::U64,
            addend: offset.clone(),
        },
        Step::CompareAndSet {
            file: file.clone(),
            offset: offset.clone(),
            expected: given.clone(),
            new: part,
        },
        Step::Rename { from: path.clone(), to: b"other".to_vec(), replace: true },
        Step::Link { file: file.clone(), to: path.clone() },
        Step::Unlink { path },
        Step::SetSize { file: file.clone(), size: offset },
        Step::SetAttributes {
            file: file.clone(),
            set: NewAttributes {
                perm: Some(0o600),
                mtime: Some(SetTime::Now),
                ..Default::default()
            },
        },
        Step::Close { file },
    ]
}

const OPEN: Target = Target::Open(Handle(1 << 60));
const BARE: Target = Target::Inode(13);

fn name() -> Vec<u8> {
    b"name".to_vec()
}

fn other() -> Vec<u8> {
    vec![0xff, b' ', 0xc3]
}

fn range() -> LockRange {
    LockRange::new(5, 9).unwrap()
}

fn set() -> SetAttr {
    SetAttr {
        perm: Some(0o7777),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(time(5))),
        ctime: Some(time(6)),
        kill_priv: true,
        kill_setgid: false,
        keep_priv: true,
    }
}

fn entries() -> Vec<PublishEntry> {
    vec![
        PublishEntry { source: PublishSource::Path(name()), to: other(), replace: true },
        PublishEntry { source: PublishSource::Open(Handle(3)), to: name(), replace: false },
    ]
}

fn compound() -> Compound {
    let wanted = Wanted::Some { steps: vec![StepNr(3), StepNr(6)], most: 1 << 20 };
    Compound { base: 2, steps: steps(), level: Level::Durable, rights: rights(), wanted }
}

/// Requests of names and inodes.
fn names() -> Vec<Request> {
    use Request as R;
    vec![
        R::Lookup { parent: 2, name: name() },
        R::Forget { ino: 12, count: u64::MAX },
        R::GetAttr { file: BARE },
        R::SetAttr { file: OPEN, set: set(), times: true },
        R::ReadLink { ino: 14 },
        R::MakeNode { parent: 2, name: name(), kind: FileKind::Fifo, perm: 1, rdev: 2 },
        R::MakeDir { parent: 2, name: other(), perm: 0o755 },
        R::Symlink { parent: 2, name: name(), target: b"../x".to_vec() },
        R::Link { ino: 12, parent: 2, name: name() },
        R::Unlink { parent: 2, name: name() },
        R::RemoveDir { parent: 2, name: name() },
        R::Rename {
            parent: 2,
            name: name(),
            new_parent: 12,
            new_name: other(),
            mode: RenameMode::WhiteoutNoReplace,
        },
        R::Create { parent: 2, name: name(), perm: 0o640 },
        R::TmpFile { parent: 2, perm: 0o600, exclusive: true },
    ]
}

/// Requests of bytes, and durability.
fn data() -> Vec<Request> {
    use Request as R;
    vec![
        R::Open {
            ino: 12,
            access: Access::Read,
            truncate: true,
            kill_priv: false,
            times: true,
            beside_lease: false,
        },
        R::Hold { ino: 12 },
        R::Release { handle: Handle(7) },
        R::Read { file: OPEN, offset: 5, len: 6 },
        R::write(OPEN, 4096, WriteData::Blocks(vec![block(1), block(2)])),
        R::Append { file: OPEN, end: 9, data: vec![7; 300].into(), kill_priv: true, times: false },
        R::WriteBack { file: BARE, offset: 0, data: vec![1].into(), times: true },
        R::Fsync { file: BARE, datasync: true },
        R::Stage { file: OPEN, datasync: false },
        R::Barrier,
        R::Poll { ticket: Ticket(8) },
        R::Wait { ticket: Ticket(9), timeout: Some(Duration::new(3, 5)) },
        R::EndSession,
        R::Allocate { file: OPEN, mode: Allocate::PunchHole, offset: 1, len: 2, times: true },
        R::Seek { file: OPEN, offset: 3, whence: Seek::Hole },
        R::OpenDir { ino: 2 },
        R::ReadDir { handle: Handle(1), cookie: 1 << 62, max_bytes: 4096, plus: true },
    ]
}

/// Requests of attributes, and of several steps.
fn operations() -> Vec<Request> {
    use Request as R;
    vec![
        R::GetXattr { file: BARE, name: b"user.x".to_vec() },
        R::ListXattr { file: OPEN },
        R::SetXattr {
            file: OPEN,
            name: b"user.x".to_vec(),
            value: vec![0, 1, 2],
            mode: XattrMode::Create,
            kill_setgid: true,
        },
        R::RemoveXattr { file: OPEN, name: b"user.x".to_vec(), times: true },
        R::GetFlags { file: OPEN },
        R::SetFlags { file: OPEN, flags: 0x10 },
        R::Publish { base: 2, entries: entries(), level: Level::Atomic, rights: rights() },
        R::SectionStart { file: OPEN },
        R::SectionWrite { section: SectionId(5), offset: 1, data: vec![].into() },
        R::SectionRead { section: SectionId(5), offset: 1, len: 2 },
        R::SectionCommit {
            sections: vec![SectionId(5), SectionId(6)],
            durable: true,
            times: false,
        },
        R::SectionAbort { section: SectionId(6) },
        R::Compound(Box::new(compound())),
    ]
}

/// Requests of locks, leases and the volume.
fn locks_and_leases() -> Vec<Request> {
    use Request as R;
    vec![
        R::GetLock { file: OPEN, owner: 5, range: range(), kind: LockKind::Read },
        R::SetLock {
            file: OPEN,
            ask: LockAsk {
                owner: 5,
                pid: 6,
                place: LockPlace::Range(range()),
                kind: Some(LockKind::Write),
                wait: Some(LockWait { number: 4, until: WaitUntil::Closed }),
            },
        },
        R::CloseLocks { ino: 12, handle: Handle(4), owner: 9 },
        R::CancelLock { number: 4 },
        R::Lease { file: OPEN, writers: Some(2), direct: Some(1 << 20) },
        R::LeaseWrite {
            lease: LeaseId(4),
            offset: 5,
            data: vec![6].into(),
            time: Some(time(7)),
            durable: true,
        },
        R::LeaseLocate { lease: LeaseId(4), first: 5, count: 64, bring: u64::MAX },
        R::LeaseKeep { lease: LeaseId(4) },
        R::LeaseReturn { lease: LeaseId(4) },
        R::LeaseDirect { lease: LeaseId(4), file: OPEN, room: 1 << 26 },
        R::LeaseExtend { lease: LeaseId(4), file: OPEN, first: 7, end: 1 << 27 },
        R::ReadDirect { file: OPEN },
        R::HoldMany { inodes: vec![Held { ino: 12, generation: 3, count: u32::MAX }] },
        R::StatFs,
        R::SyncAll,
        R::Checkpoint,
        R::Trim { start: 1, len: 2, least: 3 },
        R::Status,
    ]
}

/// One of every request at least.
pub fn requests() -> Vec<Request> {
    [names(), data(), operations(), locks_and_leases()].concat()
}

/// One of every reply at least.
pub fn replies() -> Vec<Reply> {
    use Reply as R;
    let entry =
        |attr| DirEntry { ino: 5, cookie: 6, kind: FileKind::Socket, name: vec![b'n'], attr };
    let held = HeldLock { kind: LockKind::Write, range: LockRange::ALL, pid: 3 };
    let values = vec![
        Value::None,
        Value::File { ino: 3, generation: 7, open: Some((Handle(4), Access::Both)) },
        Value::Number { value: 5, width: Width::U32 },
        Value::Bytes(vec![1, 2]),
    ];
    let written = vec![WrittenFile { ino: 3, resized: true, grown: false }];
    let done = Compounded::Done { values, names: vec![(2, vec![b'x'])], files: vec![3], written };
    vec![
        R::Done,
        R::Entry(attr()),
        R::Attr(attr()),
        R::Created { attr: attr(), handle: Handle(1) },
        R::Opened { handle: Handle(2) },
        R::Data(vec![9; 100]),
        R::Blocks(Blocks::new(vec![block(1), block(2)], 100, 5000)),
        R::Written { len: 4 },
        R::WrittenLast { len: 5 },
        R::Located { cold: 6 },
        R::Offset(7),
        R::Dir(vec![entry(None), entry(Some(attr()))]),
        R::Names(vec![b"user.x".to_vec(), vec![]]),
        R::Statfs(StatFs { block_size: 4096, name_max: 255, ..StatFs::default() }),
        R::Flags(0x20),
        R::Published { names: vec![(2, vec![b'a'])], files: vec![3, 4] },
        R::Ticket(Ticket(1)),
        R::Durable(true),
        R::Section(SectionId(2)),
        R::Leased {
            lease: LeaseId(3),
            term: Duration::from_millis(2000),
            size: 4097,
            granted: Some(Box::new(Direct {
                token: [8; 32],
                target: "target:unix:/run/t/v".into(),
                runs: vec![DirectRun { first: 0, block: 7, count: 1, fresh: false }],
            })),
        },
        R::Direct(Direct {
            token: [7; 32],
            target: "unix:/run/t/v.img".into(),
            runs: vec![
                DirectRun { first: 1, block: 1 << 33, count: 2, fresh: false },
                DirectRun { first: 3, block: 9, count: 1, fresh: true },
            ],
        }),
        R::Extended(vec![DirectRun { first: 4, block: 10, count: 5, fresh: true }]),
        R::Gone(vec![12, 13]),
        R::Lock(None),
        R::Lock(Some(held)),
        R::Compounded(done),
        R::Compounded(Compounded::Refused { step: StepNr(3), errno: 2 }),
        R::Checkpoint(Box::new(CheckpointReport { batch: 3, ..Default::default() })),
        R::Trimmed(Trimmed { bytes: 5, failed: 6, incomplete: true }),
        R::Status(Box::<RuntimeStatus>::default()),
    ]
}

/// One of every message to a server, with every request.
pub fn to_server() -> Vec<ToServer> {
    let user = Claim::User { uid: 1, gid: 2, rights: rights() };
    let claims = [Claim::Kernel, Claim::Owner, user].into_iter();
    let opening = |claim| {
        let (volume, leases) = ("vol".into(), Leases::Lent);
        Opening { volume, claim, caches: true, leases, returning: None }
    };
    let mut all: Vec<_> = claims.map(|claim| ToServer::Open(Box::new(opening(claim)))).collect();
    let rights = Some(Box::default());
    let credentials =
        Credentials { uid: 1, gid: 2, pid: 3, umask: 0o22, rights, ..Credentials::default() };
    all.extend(requests().into_iter().zip(0..).map(|(request, number)| ToServer::Call {
        slot: 63,
        number,
        credentials: credentials.clone(),
        request: Box::new(request),
        change: None,
        proofs: None,
    }));
    all.extend(changes().map(|change| ToServer::Call {
        slot: 1,
        number: 2,
        credentials: credentials.clone(),
        request: Box::new(Request::StatFs),
        change: Some(change),
        proofs: Some(proven()),
    }));
    let back = Returning { client: 7, instance: u64::MAX };
    let claim = Claim::Kernel;
    all.push(ToServer::Open(Box::new(Opening { returning: Some(back), ..opening(claim) })));
    for leases in [Leases::None, Leases::Held] {
        all.push(ToServer::Open(Box::new(Opening { leases, ..opening(Claim::Kernel) })));
    }
    all.extend([ToServer::Taken { notice: 5 }, ToServer::Bye, lent(credentials)]);
    all.extend([ToServer::Returned, ToServer::Full, ToServer::Ping { number: 11 }]);
    all
}

fn changes() -> impl Iterator<Item = Change> {
    let (place, number, inode) = (63, 5, Some((12, 3)));
    let kept = Kept {
        instance: 9,
        order: 8,
        lsn: 7,
        inode,
        place,
        number,
        tried: [4, 3, 2, 1, 0, 0, 0, 0],
    };
    let once = Change::Once { place, number };
    let absolute = Change::Absolute { place, number };
    [once, absolute, Change::Kept(kept), Change::Reclaim, Change::Loose].into_iter()
}

/// One of each grant.
fn proven() -> Vec<Proven> {
    let open = [Access::Read, Access::Write, Access::Both].map(Grant::Open);
    let others = [Grant::Reference, Grant::Directory, Grant::Held];
    let of = |grant| Proven { ino: 12, generation: 3, grant, proof: *b"a code of a serv" };
    open.into_iter().chain(others).map(of).collect()
}

/// What is written to a leased file, from the middle of a block to that of the next one.
fn lent(credentials: Credentials) -> ToServer {
    let (lease, time, blocks) = (LeaseId(7), Some(time(8)), vec![block(1), block(2)]);
    let (offset, len) = ((5 << 12) + 4000, 200);
    ToServer::Lent { slot: 62, number: 3, credentials, lease, offset, len, time, blocks }
}

/// One of every message from a server, with every reply.
pub fn from_server() -> Vec<FromServer> {
    let told = Told {
        attributes: vec![1],
        sizes: vec![2, 3],
        data: vec![(4, (5, u64::MAX))],
        names: vec![(2, vec![b'n'])],
    };
    let opened = |back| {
        let volume = *b"0123456789abcdef";
        FromServer::Opened { volume, slots: 64, bytes: 5, checks: true, instance: 6, back }
    };
    let done = Some(Done { order: 5, lsn: 6, at: Some(7) });
    let mut all = vec![
        opened(Back::New),
        opened(Back::Same),
        opened(Back::Again),
        opened(Back::Clean),
        opened(Back::Unknown),
        FromServer::Durable { order: 9 },
        FromServer::Pong { number: 12 },
        FromServer::Refused { reason: "why".into() },
        FromServer::Notice { notice: 1, all: false, told },
        FromServer::Shares { others: true },
        FromServer::Ended { reason: "so".into(), all_answered: true },
        FromServer::Answer {
            slot: 1,
            number: 2,
            result: Err(Error::Posix(5)),
            done,
            proofs: Some(vec![[8; 16]]),
        },
        FromServer::Owing {
            slot: 3,
            number: 4,
            result: Ok(Box::new(Reply::Flags(5))),
            done,
            proofs: None,
        },
        FromServer::Settled { slot: 6, number: 7 },
        FromServer::Recall { lease: LeaseId(8) },
    ];
    all.extend(replies().into_iter().zip(0..).map(|(reply, number)| FromServer::Answer {
        slot: 0,
        number,
        result: Ok(Box::new(reply)),
        done: None,
        proofs: None,
    }));
    all
}
