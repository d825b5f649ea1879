//! The host, as a direct file asks it: by the session's records, and by the grantor.

use crate::leased::now;
use crate::session::Shared;
use siftfs_base::{Result, Timestamp, errno};
use siftfs_lease::{Answer, Ask, Granted, GrantedRun, Held, MOST_BYTES, MOST_DATA, MOST_GRANTED};
use siftfs_lease::{Place, Publish};
use siftfs_proto::{
    Attr, Credentials, Direct, DirectRun, FileKind, FileService, LeaseId, Reply, Request,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The grantor ends leases; no term does.
const EVER: Duration = Duration::from_secs(86_400);

/// One leased file. It answers `ESTALE` when the lease has ended, and `EOPNOTSUPP` to what goes by
/// the kernel.
pub(crate) struct Host {
    pub shared: Arc<Shared>,
    pub held: Held,
    pub ino: u64,
    /// The lease was asked for: there is no other.
    pub taken: AtomicBool,
    /// Blocks were granted.
    pub granted: Arc<AtomicBool>,
}

impl FileService for Host {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        match req {
            Request::Lease { .. } if self.taken.swap(true, Ordering::AcqRel) => {
                Err(errno(libc::EAGAIN))
            }
            Request::Lease { .. } => {
                let (lease, size) = (LeaseId(self.held.number), self.attributes()?.size);
                Ok(Reply::Leased { lease, term: EVER, size, granted: None })
            }
            Request::GetAttr { .. } => self.attributes().map(Reply::Attr),
            Request::LeaseDirect { room, .. } => self.direct(room).map(Reply::Direct),
            Request::LeaseExtend { first, end, .. } => self.extend(first, end).map(Reply::Extended),
            Request::LeaseWrite { offset, data, durable, .. } => {
                let written = self.write(offset, &data.into_bytes())?;
                if durable {
                    self.fsync(true)?;
                }
                Ok(written)
            }
            Request::Read { offset, len, .. } => self.read(offset, len).map(Reply::Data),
            Request::Fsync { datasync, .. } => self.fsync(datasync),
            // They end with the lease, which its owner gives back, and the grantor keeps.
            Request::LeaseReturn { .. } | Request::LeaseKeep { .. } | Request::Release { .. } => {
                Ok(Reply::Done)
            }
            _ => Err(errno(libc::EOPNOTSUPP)),
        }
    }
}

impl Host {
    /// Asks the grantor; what it answers is what is expected, or an error.
    fn ask<T>(
        &self,
        ask: Ask,
        most: usize,
        expected: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T> {
        match self.shared.ask(ask, most) {
            Some(Answer::Ended) => Err(errno(libc::ESTALE)),
            Some(Answer::Failed(error)) => Err(errno(error)),
            Some(answer) => expected(answer).ok_or_else(|| {
                self.shared.abandon();
                errno(libc::ENOTCONN)
            }),
            None => Err(errno(libc::ENOTCONN)),
        }
    }

    fn fsync(&self, datasync: bool) -> Result<Reply> {
        let fsync = Ask::Fsync { held: self.held, datasync, log: 0 };
        self.ask(fsync, 0, |answer| matches!(answer, Answer::Done).then_some(Reply::Done))
    }

    fn attributes(&self) -> Result<Attr> {
        let size = self.shared.writer().size(self.held).ok_or_else(|| errno(libc::ESTALE))?;
        let never = Timestamp { sec: 0, nsec: 0 };
        let ino = u32::try_from(self.ino).map_err(|_| errno(libc::EOVERFLOW))?;
        Ok(Attr {
            ino,
            generation: 0,
            kind: FileKind::Regular,
            perm: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: 0,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            held: false,
        })
    }

    fn direct(&self, room: u64) -> Result<Direct> {
        let ask = Ask::Direct { held: self.held, room };
        let Granted { token, target, runs } =
            self.ask(ask, MOST_GRANTED, |answer| match answer {
                Answer::Granted(granted) => Some(granted),
                _ => None,
            })?;
        self.granted.store(true, Ordering::Release);
        Ok(Direct { token, target, runs: all(runs) })
    }

    /// Blocks besides those that are granted.
    fn extend(&self, first: u64, end: u64) -> Result<Vec<DirectRun>> {
        let ask = Ask::Extend { held: self.held, first, end };
        self.ask(ask, MOST_GRANTED, |answer| match answer {
            Answer::Extended(runs) => Some(all(runs)),
            _ => None,
        })
    }

    /// Publishes a write beside what is granted.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<Reply> {
        for (at, part) in (offset..).step_by(MOST_BYTES).zip(bytes.chunks(MOST_BYTES)) {
            self.publish(at, part)?;
        }
        let len = u32::try_from(bytes.len()).map_err(|_| errno(libc::EINVAL))?;
        Ok(Reply::Written { len })
    }

    fn publish(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let stale = || errno(libc::ESTALE);
        // A second try is after an ingestion, which others may have filled up meanwhile.
        for _ in 0..2 {
            if !self.shared.is_usable() {
                return Err(errno(libc::ENOTCONN));
            }
            let place = Place::At(offset);
            let publish = self.shared.writer().publish(self.held, place, bytes, now());
            if let Publish::Published(published) = publish {
                return self.shared.settle(&published).map(drop).ok_or_else(stale);
            }
            if !self.shared.after(&publish) {
                return Err(stale());
            }
        }
        Err(stale())
    }

    fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>> {
        let (mut bytes, len) = (Vec::new(), len as usize);
        while bytes.len() < len {
            let want = (len - bytes.len()).min(MOST_DATA);
            let asked = u32::try_from(want).map_err(|_| errno(libc::EINVAL))?;
            let offset = offset.saturating_add(bytes.len() as u64);
            let read = Ask::Read { held: self.held, offset, len: asked };
            let data = self.ask(read, want, |answer| match answer {
                Answer::Data(data) if data.len() <= want => Some(data),
                _ => None,
            })?;
            bytes.extend_from_slice(&data);
            if data.len() < want {
                break;
            }
        }
        Ok(bytes)
    }
}

/// Runs as the file protocol has them.
fn all(runs: Vec<GrantedRun>) -> Vec<DirectRun> {
    let run = |GrantedRun { first, block, count, fresh }| DirectRun { first, block, count, fresh };
    runs.into_iter().map(run).collect()
}
