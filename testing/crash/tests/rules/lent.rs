//! R38 and R46 where a session lends: what was done before its fsync is there in every crash after
//! it, so a log of its own may answer the next fsyncs of the file.

use super::{bytes, every_recovery};
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_placement::Compact;
use siftfs_proto::compound::{
    Access, BytesArg, Compound, FileArg, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, Identity, LeaseId, Level, Limits, Opening,
    PublishEntry, PublishSource, ROOT_INO, RenameMode, Request, Rights, SetAttr,
};
use std::sync::Arc;

/// A holder of whom nobody wants anything back.
struct Alone;

impl Holder for Alone {
    fn recall(&self, lease: LeaseId) {
        panic!("nobody touches the file of {lease:?}");
    }
}

/// A session that lends, with the lease of `d/f`.
struct Lender {
    session: Arc<dyn FileService>,
    handle: Handle,
    lease: LeaseId,
}

impl Lender {
    fn of(b: &Bench) -> Self {
        let (identity, limits) = (Identity::Kernel, Limits::default());
        let opening = Opening { identity, administrator: false, limits, client: None };
        let session = b.driver.volume.lender(opening, Arc::new(Alone)).expect("a session");
        let call = |req| session.call(&Credentials::default(), req).expect("it may");
        let handle = call(Request::open(b.ino("d/f"), Access::Both)).opened().expect("a handle");
        let lease = call(Request::Lease { file: handle.into(), writers: Some(0), direct: None });
        let (lease, _) = lease.leased().expect("a lease");
        Self { session, handle, lease }
    }

    fn call(&self, req: Request) {
        self.session.call(&Credentials::default(), req).expect("it may");
    }

    fn write(&self, data: &[u8]) {
        let (lease, data) = (self.lease, data.to_vec().into());
        self.call(Request::LeaseWrite { lease, offset: 0, data, time: None, durable: false });
    }

    fn fsync(&self, datasync: bool) {
        self.call(Request::Fsync { file: self.handle.into(), datasync });
    }
}

/// What is done before the fsync, and whether it came back.
type Case = (&'static str, fn(&Bench), fn(&Back) -> bool);

fn renamed(back: &Back) -> bool {
    !back.has("a") && back.bytes("new") == bytes(1, 3000)
}

fn has_new(back: &Back) -> bool {
    back.has("a") && back.bytes("new") == bytes(1, 3000)
}

fn written(back: &Back) -> bool {
    back.bytes("b") == bytes(9, 3000)
}

fn publish(b: &Bench, from: &str, level: Level) {
    let source = PublishSource::Path(from.into());
    let entries = vec![PublishEntry { source, to: b"new".to_vec(), replace: true }];
    let publish = Request::Publish { base: ROOT_INO, entries, level, rights: Rights::all() };
    b.call(publish).expect("published");
}

fn compound(b: &Bench, steps: Vec<Step>) {
    let (level, rights, wanted) = (Level::Visible, Rights::all(), Wanted::All);
    let compound = Compound { base: ROOT_INO, steps, level, rights, wanted };
    b.call(Request::Compound(Box::new(compound))).expect("carried out");
}

const CASES: &[Case] = &[
    ("rename", |b| b.rename("a", "new"), renamed),
    (
        "rename over",
        |b| b.rename("a", "b"),
        |back| !back.has("a") && back.bytes("b") == bytes(1, 3000),
    ),
    (
        "exchange",
        |b| {
            let (parent, new_parent, mode) = (ROOT_INO, ROOT_INO, RenameMode::Exchange);
            let (name, new_name) = (b"a".to_vec(), b"b".to_vec());
            b.call(Request::Rename { parent, name, new_parent, new_name, mode }).expect("renamed");
        },
        |back| back.bytes("b") == bytes(1, 3000),
    ),
    ("link", |b| b.link("a", "new"), has_new),
    ("chmod", |b| b.chmod("d", 0o700), |back| back.tree.get("d").unwrap().attr.perm == 0o700),
    (
        "chown",
        |b| b.set("d", SetAttr { uid: Some(7), ..SetAttr::default() }),
        |back| back.tree.get("d").unwrap().attr.uid == 7,
    ),
    (
        "security",
        |b| b.setxattr("d", "security.selinux", b"label"),
        |back| !back.tree.get("d").unwrap().xattrs.is_empty(),
    ),
    ("publish", |b| publish(b, "a", Level::Visible), renamed),
    (
        "ordered publish",
        |b| {
            b.create("c");
            b.write("c", 0, &bytes(9, 3000));
            publish(b, "c", Level::Atomic);
        },
        |back| back.bytes("new") == bytes(9, 3000),
    ),
    (
        "compound",
        |b| {
            let (path, access) = (b"b".to_vec(), Access::Both);
            let (file, offset) = (FileArg::Step(StepNr(0)), NumberArg::Given(0));
            let data = BytesArg::Given(bytes(9, 3000));
            compound(
                b,
                vec![
                    Step::Open { path, access, truncate: false },
                    Step::Write { file, offset, data },
                    Step::Rename { from: b"a".to_vec(), to: b"new".to_vec(), replace: false },
                ],
            );
        },
        |back| renamed(back) && written(back),
    ),
    (
        "ticket",
        |b| {
            b.write("b", 0, &bytes(9, 3000));
            b.stage("b");
        },
        written,
    ),
    (
        "section",
        |b| {
            let file = b.open("b").into();
            let section = b.call(Request::SectionStart { file }).expect("a section");
            let section = section.section().expect("a section");
            let data = bytes(9, 3000).into();
            b.call(Request::SectionWrite { section, offset: 0, data }).expect("written");
            let sections = vec![section];
            b.call(Request::SectionCommit { sections, durable: false, times: true })
                .expect("committed");
        },
        written,
    ),
];

/// A volume with two durable files and a leased one, and the lender.
fn leased(b: Bench) -> (Bench, Lender) {
    for (id, name) in [(1, "a"), (2, "b")] {
        b.durable(name, &bytes(id, 3000));
    }
    b.mkdir("d");
    b.durable("d/f", &bytes(3, 3000));
    b.settle();
    let lender = Lender::of(&b);
    (b, lender)
}

fn benches() -> [Bench; 3] {
    let area = Compact { most: 64 << 10, percent: 100, ..Compact::default() };
    [
        Bench::new(VolumeKind::ROOMY),
        Bench::new(VolumeKind::ROOMY_TWO_LANES),
        Bench::with_record_area(VolumeKind::ROOMY.with_area(), area),
    ]
}

/// The file was written, and is synced with what was done before.
#[test]
fn r46_a_lenders_fsync_overtakes_nothing() {
    for (kind, act, there) in CASES {
        for b in benches() {
            let (b, lender) = leased(b);
            act(&b);
            lender.write(&bytes(4, 3000));
            lender.fsync(false);
            drop(lender);
            every_recovery(b, |back| {
                assert_eq!(back.bytes("d/f"), bytes(4, 3000), "{kind}");
                assert!(there(back), "{kind} was overtaken");
            });
        }
    }
}

/// The file was not written since its last fsync. A fsync(2) that follows by the log has bytes of
/// the file alone, so this one must take along what an fsync of such bytes would.
///
/// Seen to fail when the fsync of a session that lends takes along what any other one does (what
/// publishes a file is left out), and when it waits for the records of its own inode alone (what
/// was staged is left out).
#[test]
fn r46_nor_does_one_that_has_nothing_to_do() {
    for (kind, act, there) in CASES {
        for datasync in [false, true] {
            for b in benches() {
                let (b, lender) = leased(b);
                lender.write(&bytes(4, 3000));
                lender.fsync(datasync);
                act(&b);
                lender.fsync(datasync);
                drop(lender);
                every_recovery(b, |back| {
                    assert_eq!(back.bytes("d/f"), bytes(4, 3000), "{kind}");
                    assert!(there(back), "{kind} was overtaken");
                });
            }
        }
    }
}

/// What no record takes: the fsync becomes a commit, and waits for the records before it as well.
#[test]
fn r46_a_lenders_fsync_that_commits() {
    let (b, lender) = leased(Bench::new(VolumeKind::ROOMY_TWO_LANES));
    b.mkdir("e");
    b.durable("e/g", &bytes(5, 3000));
    b.write("b", 0, &bytes(9, 3000));
    b.stage("b");
    b.rename("e", "moved");
    b.rename("moved/g", "moved/new");
    let commits = |b: &Bench| b.status().runtime.full_commits.values().sum::<u64>();
    let before = commits(&b);
    lender.fsync(false);
    assert_eq!(commits(&b), before + 1);
    drop(lender);
    every_recovery(b, |back| {
        assert!(written(back), "the ticket was overtaken");
        assert_eq!(back.bytes("moved/new"), bytes(5, 3000));
    });
}
