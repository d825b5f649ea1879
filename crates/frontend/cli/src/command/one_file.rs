//! A device as the one file of a mount, for programs that work on a file (`docs/design/stripes.md`,
//! "e2fsck").

use rustix::io::Errno;
use siftfs_base::{Error, InodeNr, Result, Timestamp, errno};
use siftfs_device::Device;
use siftfs_fuse::{FuseMount, MountOptions, detach};
use siftfs_proto::{
    Attr, Credentials, FileKind, FileService, Handle, ROOT_INO, Reply, Request, Target, WriteData,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What the file is called.
const NAME: &[u8] = b"area";
/// The file's inode.
const FILE: InodeNr = ROOT_INO + 1;
/// Most bytes of one read: what the kernel asks for at most is less.
const MOST: u32 = 16 << 20;

/// A mount with one file, whose bytes are a device's. It goes when this is dropped.
pub struct OneFile {
    device: Arc<dyn Device>,
    dir: tempfile::TempDir,
    path: PathBuf,
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl OneFile {
    /// Mounts it in a new directory for temporary files, to be written or not.
    ///
    /// # Errors
    /// What keeps the mount from being made: no FUSE, or no right to mount.
    pub fn serve(device: Arc<dyn Device>, writable: bool) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        // As the table of mounts has it.
        let at = dir.path().canonicalize()?;
        let options = MountOptions {
            subtype: Some("siftfs-area".into()),
            allow_other: false,
            nosuid: true,
            nodev: true,
            noexec: true,
            read_only: !writable,
            operations: false,
            ..MountOptions::default()
        };
        let service = Arc::new(Served { device: device.clone(), writable });
        let mount = FuseMount::new(service, &at, &options)?;
        let thread = std::thread::Builder::new().name("siftfs-area".into());
        let path = at.join("area");
        let serving = thread.spawn(move || mount.serve()).inspect_err(|_| drop(detach(&at)))?;
        Ok(Self { device, dir, path, serving: Some(serving) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the mount away. What was written is durable when this returns.
    ///
    /// # Errors
    /// It cannot be made durable.
    pub fn end(self) -> Result<()> {
        let device = self.device.clone();
        drop(self);
        device.flush()
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        let Some(at) = self.path.parent() else { return };
        if let Err(error) = detach(at) {
            // A thread that serves it would be waited for in vain.
            tracing::warn!(%error, dir = %self.dir.path().display(), "the mount of the area stays");
            return;
        }
        match self.serving.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => tracing::warn!(%error, "the mount of the area ended"),
            Some(Err(_)) => tracing::error!("the mount of the area ended with a failed assertion"),
            _ => {}
        }
    }
}

/// The root directory and the file in it.
struct Served {
    device: Arc<dyn Device>,
    writable: bool,
}

impl Served {
    fn attr(&self, ino: InodeNr) -> Result<Attr> {
        let (kind, perm, nlink, size) = match ino {
            ROOT_INO => (FileKind::Directory, 0o700, 2, 0),
            FILE => (FileKind::Regular, 0o600, 1, self.device.size()),
            _ => return Err(errno(libc::ESTALE)),
        };
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let never = Timestamp::default();
        Ok(Attr {
            ino,
            generation: 0,
            kind,
            perm,
            nlink,
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            rdev: 0,
            size,
            blocks: size / 512,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            held: false,
        })
    }

    fn read(&self, offset: u64, len: u32) -> Result<Reply> {
        let left = self.device.size().saturating_sub(offset);
        let len = u64::from(len.min(MOST)).min(left);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        self.device.read(offset, &mut bytes)?;
        Ok(Reply::Data(bytes))
    }

    fn write(&self, offset: u64, data: WriteData) -> Result<Reply> {
        if !self.writable {
            return Err(errno(libc::EROFS));
        }
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EFBIG))?;
        match data {
            WriteData::Bytes(bytes) => self.device.write(offset, &bytes, false)?,
            WriteData::Blocks(blocks) => {
                let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.to_vec()).collect();
                self.device.write(offset, &bytes, false)?;
            }
        }
        Ok(Reply::Written { len })
    }
}

/// The inode that a request is about: the file is the one that can be open.
fn inode(file: Target) -> InodeNr {
    match file {
        Target::Inode(ino) => ino,
        Target::Open(_) => FILE,
    }
}

impl FileService for Served {
    fn call(&self, _cred: &Credentials, req: Request) -> Result<Reply> {
        match req {
            Request::Lookup { parent: ROOT_INO, name } if name == NAME => {
                self.attr(FILE).map(Reply::Entry)
            }
            Request::Lookup { .. } => Err(errno(libc::ENOENT)),
            Request::GetAttr { file } => self.attr(inode(file)).map(Reply::Attr),
            Request::Open { ino: FILE, truncate: false, .. } => {
                Ok(Reply::Opened { handle: Handle(1) })
            }
            Request::Read { offset, len, .. } => self.read(offset, len),
            Request::Write { offset, data, append: false, .. } => self.write(offset, data),
            Request::Fsync { .. } | Request::Barrier => self.device.flush().map(|()| Reply::Done),
            Request::Release { .. } | Request::Forget { .. } | Request::EndSession => {
                Ok(Reply::Done)
            }
            // Asked before a file is opened to be written: it is not one to append to alone.
            Request::GetFlags { .. } => Ok(Reply::Flags(0)),
            Request::GetXattr { .. } => Err(errno(libc::ENODATA)),
            _ => Err(Error::Posix(Errno::OPNOTSUPP.raw_os_error())),
        }
    }
}

#[cfg(test)]
#[path = "one_file_tests.rs"]
mod tests;
