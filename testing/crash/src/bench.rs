//! A mounted volume for tests written by hand: files by path, power cuts, what came back.

use crate::judge::{recover_image, walk_image};
use crate::volume::{
    Driver, VolumeKind, base_image_of, deterministic, fault_device, media_of, open_with,
};
use siftfs_base::{Error, InodeNr};
use siftfs_device::{Cut, FaultDevice, Image, OpKind, OpRecord, RegionCounts};
use siftfs_model::{Caller, Control, Tree};
use siftfs_placement::{Compact, OpenOptions};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Attr, Credentials, FileService, Handle, ROOT_INO, RenameMode, Reply, Request,
    SetAttr, Ticket, WriteData, XattrMode,
};
use siftfs_status::RuntimeStatus;
use std::sync::Arc;
use std::time::Duration;

/// Writes and flushes at the device; a write with FUA is one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Writes.
    pub writes: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// Flushes.
    pub flushes: u64,
}

/// No write, no flush.
pub const NOTHING_DONE: Io = Io { writes: 0, largest: 0, flushes: 0 };

/// A volume on a fault device, mounted without threads.
pub struct Bench {
    /// The device.
    pub device: Arc<FaultDevice>,
    /// The volume.
    pub driver: Driver,
    /// The volume's endpoint; tests with threads clone it.
    pub service: Arc<dyn FileService>,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Calls of root on paths; every error panics, for the test to fail.
impl Bench {
    /// A fresh volume.
    pub fn new(kind: VolumeKind) -> Self {
        Self::on(base_image_of(kind))
    }

    /// Mounts what is in `image`.
    pub fn on(image: Image) -> Self {
        Self::on_device(Arc::new(fault_device(image, 1)))
    }

    /// Mounts `device`.
    pub fn on_device(device: Arc<FaultDevice>) -> Self {
        Self::with(device, &deterministic())
    }

    /// A fresh volume on which several callers that come together write durably at once.
    pub fn parallel(kind: VolumeKind) -> Self {
        let device = Arc::new(fault_device(base_image_of(kind), 1));
        let group = "parallel".parse().expect("a word of the option");
        Self::with(device, &OpenOptions { group, ..deterministic() })
    }

    /// A fresh volume whose record area takes fsyncs by these limits.
    pub fn with_record_area(kind: VolumeKind, record_area: Compact) -> Self {
        let device = Arc::new(fault_device(base_image_of(kind), 1));
        Self::with(device, &OpenOptions { record_area, ..deterministic() })
    }

    /// Mounts `device`, whose log is left when a call of it takes longer than `log_stall`.
    pub fn failing_over(device: Arc<FaultDevice>, log_stall: Duration) -> Self {
        Self::with(device, &OpenOptions { log_stall, ..deterministic() })
    }

    fn with(device: Arc<FaultDevice>, opts: &OpenOptions) -> Self {
        let media = media_of(&device, &device.contents());
        let driver = open_with(media, opts).unwrap_or_else(|e| panic!("open: {e}"));
        let service = driver.volume.endpoint();
        Self { device, driver, service }
    }

    /// One request.
    pub fn call(&self, req: Request) -> Result<Reply, Error> {
        self.service.call(&Credentials::default(), req)
    }

    fn done(&self, what: &str, req: Request) {
        self.call(req).unwrap_or_else(|e| panic!("{what}: {e}"));
    }

    /// Inode number of a path.
    pub fn ino(&self, path: &str) -> InodeNr {
        self.try_ino(path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// Inode number of a path, if it is there.
    pub fn try_ino(&self, path: &str) -> Option<InodeNr> {
        path.split('/').filter(|p| !p.is_empty()).try_fold(ROOT_INO, |parent, name| {
            match self.call(Request::Lookup { parent, name: name.into() }) {
                Ok(Reply::Entry(attr)) => {
                    self.done("forget", Request::Forget { ino: attr.ino, count: 1 });
                    Some(attr.ino)
                }
                _ => None,
            }
        })
    }

    fn place(&self, path: &str) -> (InodeNr, Vec<u8>) {
        let (dir, name) = split(path);
        (self.ino(dir), name.into())
    }

    /// Creates a file and closes it.
    pub fn create(&self, path: &str) -> InodeNr {
        self.try_create(path).unwrap_or_else(|e| panic!("create {path}: {e}"))
    }

    /// The same, where that may be refused.
    pub fn try_create(&self, path: &str) -> Result<InodeNr, Error> {
        let (parent, name) = self.place(path);
        match self.call(Request::Create { parent, name, perm: 0o644 })? {
            Reply::Created { attr, handle } => {
                self.done("release", Request::Release { handle });
                self.done("forget", Request::Forget { ino: attr.ino, count: 1 });
                Ok(attr.ino)
            }
            other => panic!("create {path}: {other:?}"),
        }
    }

    /// Opens a file; it stays alive without a name.
    pub fn open(&self, path: &str) -> Handle {
        let ino = self.ino(path);
        match self.call(Request::open(ino, Access::Both)) {
            Ok(Reply::Opened { handle }) => handle,
            other => panic!("open {path}: {other:?}"),
        }
    }

    /// Makes a directory.
    pub fn mkdir(&self, path: &str) -> InodeNr {
        let (parent, name) = self.place(path);
        match self.call(Request::MakeDir { parent, name, perm: 0o755 }) {
            Ok(Reply::Entry(attr)) => {
                self.done("forget", Request::Forget { ino: attr.ino, count: 1 });
                attr.ino
            }
            other => panic!("mkdir {path}: {other:?}"),
        }
    }

    /// Writes, without making anything durable.
    pub fn write(&self, path: &str, offset: u64, data: &[u8]) {
        self.try_write(path, offset, data).unwrap_or_else(|e| panic!("write {path}: {e}"));
    }

    /// As [`Bench::write`]; the error is the caller's.
    pub fn try_write(&self, path: &str, offset: u64, data: &[u8]) -> Result<(), Error> {
        let ino = self.ino(path);
        let data = WriteData::copy_of(offset, data);
        self.call(Request::write(ino, offset, data)).map(|_| ())
    }

    /// A new file of these bytes, written in pieces and not synced.
    pub fn write_large(&self, path: &str, data: &[u8]) {
        self.create(path);
        for (piece, offset) in data.chunks(256 << 10).zip((0u64..).step_by(256 << 10)) {
            self.write(path, offset, piece);
        }
    }

    /// Appends.
    pub fn append(&self, path: &str, data: &[u8]) {
        let (ino, data) = (self.ino(path), data.to_vec().into());
        let req = Request::Write {
            file: ino.into(),
            offset: 0,
            data,
            append: true,
            kill_priv: false,
            times: true,
        };
        self.done("append", req);
    }

    /// Sets the size.
    pub fn truncate(&self, path: &str, size: u64) {
        self.set(path, SetAttr { size: Some(size), ..SetAttr::default() });
    }

    /// Sets permission bits.
    pub fn chmod(&self, path: &str, perm: u16) {
        self.set(path, SetAttr { perm: Some(perm), ..SetAttr::default() });
    }

    /// Sets attributes.
    pub fn set(&self, path: &str, set: SetAttr) {
        self.done("setattr", Request::SetAttr { file: self.ino(path).into(), set, times: true });
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, path: &str, name: &str, value: &[u8]) {
        let (name, value) = (name.into(), value.to_vec());
        let (ino, mode, kill_setgid) = (self.ino(path), XattrMode::Set, false);
        let req = Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid };
        self.done("setxattr", req);
    }

    /// fallocate.
    pub fn allocate(&self, path: &str, mode: Allocate, offset: u64, len: u64) {
        let done = self.try_allocate(path, mode, offset, len);
        done.unwrap_or_else(|e| panic!("allocate: {e}"));
    }

    /// The same, where that may be refused.
    pub fn try_allocate(
        &self,
        path: &str,
        mode: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let file = self.ino(path).into();
        self.call(Request::Allocate { file, mode, offset, len, times: true }).map(|_| ())
    }

    /// A hard link.
    pub fn link(&self, old: &str, new: &str) {
        let ino = self.ino(old);
        let (parent, name) = self.place(new);
        self.done("link", Request::Link { ino, parent, name });
        self.done("forget", Request::Forget { ino, count: 1 });
    }

    /// Removes a file.
    pub fn unlink(&self, path: &str) {
        let (parent, name) = self.place(path);
        self.done("unlink", Request::Unlink { parent, name });
    }

    /// Removes a directory.
    pub fn rmdir(&self, path: &str) {
        let (parent, name) = self.place(path);
        self.done("rmdir", Request::RemoveDir { parent, name });
    }

    /// Renames, replacing what is there.
    pub fn rename(&self, old: &str, new: &str) {
        let ((parent, name), (new_parent, new_name)) = (self.place(old), self.place(new));
        let mode = RenameMode::Replace;
        self.done("rename", Request::Rename { parent, name, new_parent, new_name, mode });
    }

    /// fsync of a file or directory.
    pub fn fsync(&self, path: &str) {
        self.try_fsync(path).unwrap_or_else(|e| panic!("fsync {path}: {e}"));
    }

    /// fsync; the error is the caller's.
    pub fn try_fsync(&self, path: &str) -> Result<(), Error> {
        self.call(Request::Fsync { file: self.ino(path).into(), datasync: false }).map(|_| ())
    }

    /// fdatasync.
    pub fn fdatasync(&self, path: &str) {
        self.done("fdatasync", Request::Fsync { file: self.ino(path).into(), datasync: true });
    }

    /// Stages a file or directory.
    pub fn stage(&self, path: &str) -> Ticket {
        self.ticket(Request::Stage { file: self.ino(path).into(), datasync: false })
    }

    /// The ticket that a request draws.
    pub fn ticket(&self, req: Request) -> Ticket {
        match self.call(req) {
            Ok(Reply::Ticket(ticket)) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    /// Is it durable?
    pub fn poll(&self, ticket: Ticket) -> Result<bool, Error> {
        match self.call(Request::Poll { ticket })? {
            Reply::Durable(durable) => Ok(durable),
            other => panic!("poll: {other:?}"),
        }
    }

    /// Waits for a ticket, at most so long.
    pub fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<(), Error> {
        self.call(Request::Wait { ticket, timeout }).map(|reply| assert_eq!(reply, Reply::Done))
    }

    /// A new file of these bytes, durable.
    pub fn durable(&self, path: &str, data: &[u8]) -> InodeNr {
        let ino = self.create(path);
        self.write(path, 0, data);
        self.fsync(path);
        ino
    }

    /// All bytes of a file.
    pub fn read(&self, path: &str) -> Vec<u8> {
        let ino = self.ino(path);
        let caller = Caller::root(&*self.service);
        let size = self.attr(path).size;
        let content = caller.content(ino, size).unwrap_or_else(|e| panic!("read {path}: {e}"));
        content.read(0, size)
    }

    /// Attributes of a path.
    pub fn attr(&self, path: &str) -> Attr {
        let ino = self.ino(path);
        Caller::root(&*self.service).attr(ino).unwrap_or_else(|e| panic!("getattr {path}: {e}"))
    }

    /// A background journal transaction now.
    pub fn commit(&self, push: bool) {
        self.driver.commit(push).unwrap_or_else(|e| panic!("commit: {e}"));
    }

    /// A checkpoint now.
    pub fn checkpoint(&self) {
        self.driver.checkpoint().unwrap_or_else(|e| panic!("checkpoint: {e}"));
    }

    /// Everything in the area: the log is empty.
    pub fn settle(&self) {
        self.commit(true);
        self.checkpoint();
    }

    /// The status report.
    pub fn status(&self) -> RuntimeStatus {
        status(&*self.service)
    }

    /// What the storage backend counted so far, by region and origin.
    pub fn counters(&self) -> RegionCounts {
        counters(&*self.service)
    }

    /// Device operations that `what` makes, reads aside.
    pub fn log(&self, what: impl FnOnce(&Self)) -> Vec<OpRecord> {
        self.device.record();
        what(self);
        self.device.take_log().into_iter().filter(|op| op.kind != OpKind::Read).collect()
    }

    /// Writes and flushes that `what` makes.
    pub fn io(&self, what: impl FnOnce(&Self)) -> Io {
        let mut io = Io::default();
        for op in self.log(what) {
            let write = matches!(op.kind, OpKind::Write | OpKind::WriteFua);
            io.writes += u64::from(write);
            io.flushes += u64::from(matches!(op.kind, OpKind::Flush | OpKind::WriteFua));
            io.largest = io.largest.max(op.len as u64);
        }
        io
    }

    /// The daemon dies and power is lost; what `cut` leaves on the device.
    pub fn crash(self, cut: Cut) -> Image {
        let image = self.device.image(cut);
        self.stop();
        image
    }

    /// The daemon dies; the device keeps what it has.
    pub fn stop(self) {
        let Self { driver, service, .. } = self;
        drop(service);
        driver.volume.abandon();
    }

    /// Unmounts; what is left is plain ext4.
    pub fn close(self) -> Image {
        let Self { device, driver, service } = self;
        drop(service);
        driver.volume.close().unwrap_or_else(|e| panic!("close: {e}"));
        device.contents()
    }

    /// Crashes and recovers, and has e2fsck check the result.
    pub fn recovered(self, cut: Cut) -> Back {
        Back::from(&self.crash(cut))
    }
}

/// The status report of a service.
pub fn status(service: &dyn FileService) -> RuntimeStatus {
    match service.call(&Credentials::default(), Request::Status) {
        Ok(Reply::Status(status)) => *status,
        other => panic!("status: {other:?}"),
    }
}

/// The storage counters in the status report of a service.
pub fn counters(service: &dyn FileService) -> RegionCounts {
    status(service).storage
}

/// A tree that a recovery brought back.
pub struct Back {
    /// The plain ext4 volume.
    pub image: Image,
    /// What is in it.
    pub tree: Tree,
}

impl Back {
    /// Recovers `image`; any complaint panics.
    pub fn from(image: &Image) -> Self {
        let image = recover_image(image).unwrap_or_else(|e| panic!("{e}"));
        crate::ext4::e2fsck_image(&image).unwrap_or_else(|e| panic!("{e}"));
        let tree = walk_image(&image).unwrap_or_else(|e| panic!("{e}"));
        Self { image, tree }
    }

    /// Is there such a path?
    pub fn has(&self, path: &str) -> bool {
        self.tree.get(path).is_some()
    }

    /// Bytes of a file; empty if it is not there.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        self.tree.get(path).map(|seen| seen.content.read(0, u64::MAX)).unwrap_or_default()
    }
}
