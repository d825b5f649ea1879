//! One session: a program's connection, its memories and its leases.

use crate::counters::{Counters, Program};
use crate::file_log::{FileLog, LogTold};
use crate::holder::{Name, Names, Recalls, Told, nanoseconds};
use crate::log::{Leased, Log, Means, over};
use crate::vouched::vouched;
use crate::{Logs, Opens, Redeemed, Redeems};
use siftfs_base::{Error, Result, corrupt, errno};
use siftfs_ingest::{How, Pipelines};
use siftfs_lease::{Answer, Created, FULL, Held, Packets, Reader, create, order, vouch};
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, LeaseId, MAX_FILE_SIZE, Request};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub(crate) struct Session {
    process: u32,
    socket: Arc<Packets>,
    pub(crate) means: Means,
    log: Mutex<Log>,
    /// The program's own log, once it has one.
    own: OnceLock<Arc<LogTold>>,
    /// The rule that another thread than the session's own found broken.
    fault: Mutex<Option<Error>>,
}

/// What sessions share.
pub(crate) struct Common {
    pub opens: Arc<dyn Opens>,
    pub redeems: Arc<dyn Redeems>,
    pub counters: Arc<Counters>,
    pub recalls: Arc<Recalls>,
    pub logs: Option<Arc<dyn Logs>>,
    pub how: How,
    pub pipelines: Arc<Pipelines>,
}

/// What a program gets with an answer.
pub(crate) struct Passed<const N: usize> {
    pub answer: Answer,
    pub descriptors: [OwnedFd; N],
}

impl Session {
    /// A session of a process.
    ///
    /// # Errors
    /// There is no memory for it, or there are too many sessions of the file protocol.
    pub fn new(
        common: &Common,
        process: u32,
        socket: Arc<Packets>,
    ) -> Result<(Arc<Self>, Passed<2>)> {
        let Created { grantor, holder, passed } = create()?;
        let memories = (Arc::new(grantor), Arc::new(holder));
        let mut epoch = [0; 8];
        getrandom::fill(&mut epoch).map_err(|_| errno(libc::EAGAIN))?;
        let epoch = u64::from_le_bytes(epoch);
        let reader = Reader::new(memories.clone(), FULL, (epoch, MAX_FILE_SIZE));
        let (names, recalls) = (Mutex::default(), common.recalls.clone());
        let told = Arc::new(Told {
            names,
            memories,
            recalls,
            session: OnceLock::new(),
            lost: false.into(),
        });
        let service = common.opens.open(told.clone())?;
        let (redeems, counters) = (common.redeems.clone(), common.counters.clone());
        let (how, pipelines) = (common.how, common.pipelines.clone());
        let means = Means { service, redeems, counters, told: told.clone(), how, pipelines };
        let (log, fault) = (Mutex::new(Log::new(reader)), Mutex::default());
        vouch(&*told.memories.0, vouched());
        let own = OnceLock::new();
        let session = Arc::new(Self { process, socket, means, log, own, fault });
        assert!(told.session.set(Arc::downgrade(&session)).is_ok(), "it is new");
        let answer = Answer::Entered { epoch, largest: MAX_FILE_SIZE };
        Ok((session, Passed { answer, descriptors: passed }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.means.told.lock()
    }

    /// A lease of the file that a token stands for.
    ///
    /// # Errors
    /// Those of the token, of open(2), and of [`Request::Lease`].
    pub fn lease(self: &Arc<Self>, redeemed: Redeemed) -> Result<Answer> {
        if redeemed.process != self.process {
            return Err(errno(libc::EACCES));
        }
        // No other thread makes leases of this session.
        let slot = self.lock().free_slot().ok_or_else(|| errno(libc::EAGAIN))?;
        let access = if redeemed.reads { Access::Both } else { Access::Write };
        let cred = redeemed.credentials.clone();
        let handle = self.means.call(&cred, Request::open(redeemed.ino, access))?.opened()?;
        self.names().asking = true;
        let leased = self.take(slot, redeemed, handle);
        let early = {
            let mut names = self.names();
            names.asking = false;
            std::mem::take(&mut names.early)
        };
        let (answer, lease) = match leased {
            Ok(leased) => leased,
            Err(e) => {
                let _ = self.means.call(&cred, Request::Release { handle });
                return Err(e);
            }
        };
        if early.contains(&lease) {
            self.means.told.recalls.add(Arc::downgrade(self), lease);
        }
        Ok(answer)
    }

    fn take(
        &self,
        slot: u32,
        redeemed: Redeemed,
        handle: siftfs_proto::Handle,
    ) -> Result<(Answer, LeaseId)> {
        let Redeemed { ino, process, credentials, reads, writers } = redeemed;
        let cred = &credentials.clone();
        let before = writers();
        let lease = Request::Lease { file: handle.into(), writers: Some(before), direct: None };
        let (lease, term) = self.means.call(cred, lease)?.leased()?;
        let granted = || {
            if writers() != before {
                // Another program's open may have counted for one of this program's.
                return Err(errno(libc::EAGAIN));
            }
            let attr = self.means.call(cred, Request::GetAttr { file: handle.into() })?.attr()?;
            let mut log = self.lock();
            let (used, mtime) = (Instant::now(), attr.mtime);
            let held = log.grant(slot, |held| Leased {
                held,
                lease,
                handle,
                ino,
                process,
                credentials,
                reads,
                mtime,
                used,
                error: None,
                generation: attr.generation,
                logged: false,
                written: false,
                direct: false,
                in_doubt: false,
                said: nanoseconds(mtime),
            })?;
            self.names().all.insert(lease, Name { held, mtime, kept: used, term });
            Ok((held, attr))
        };
        let (held, attr) = match granted() {
            Ok(granted) => granted,
            Err(e) => {
                let _ = self.means.call(cred, Request::LeaseReturn { lease });
                return Err(e);
            }
        };
        self.means.redeems.leased(ino, process);
        Counters::add(&self.means.counters.leases, 1);
        let mtime = nanoseconds(attr.mtime);
        Ok((Answer::Leased { held, size: attr.size, mtime, ino: ino.into() }, lease))
    }

    /// Bytes of a leased file, with all that is published.
    ///
    /// # Errors
    /// The holder broke a rule, or the session is over.
    pub fn read(&self, held: Held, offset: u64, len: u32) -> Result<Answer> {
        let (handle, cred) = {
            let mut log = self.lock();
            log.ingest(&self.means)?;
            match Self::lasting(&mut log, held) {
                Ok(leased) if !leased.reads => return Ok(Answer::Failed(libc::EBADF)),
                Ok(leased) => (leased.handle, leased.credentials.clone()),
                Err(answer) => return Ok(answer),
            }
        };
        let read = Request::Read { file: handle.into(), offset, len };
        let data = self.means.call(&cred, read).and_then(siftfs_proto::Reply::data);
        Ok(answered(data.map(Answer::Data)))
    }

    /// Makes a file durable, with all that is published of it. The file log is forgotten up to
    /// `end`.
    ///
    /// # Errors
    /// As of [`Session::read`].
    pub fn fsync(&self, held: Held, datasync: bool, end: u64) -> Result<Answer> {
        // What is done after this one need not be covered.
        let order = order(&*self.means.told.memories.0);
        let mut log = self.lock();
        log.ingest(&self.means)?;
        if let Some(errno) = log.of(held).and_then(|leased| leased.error.take()) {
            return Ok(Answer::Failed(errno));
        }
        if log.of(held).is_some_and(|leased| std::mem::take(&mut leased.in_doubt)) {
            return Ok(Answer::Failed(libc::EIO));
        }
        if let Err(answer) = Self::lasting(&mut log, held) {
            return Ok(answer);
        }
        let direct = log.of(held).is_some_and(|leased| leased.direct);
        if log.file.is_some() && !direct {
            return log.promise(&self.means, held, (order, end));
        }
        // Others may use the log while this file alone is made durable.
        let Ok(leased) = Self::lasting(&mut log, held) else { return Ok(Answer::Ended) };
        let (handle, cred) = (leased.handle, leased.credentials.clone());
        // What is taken in from here on need not be in it.
        let written = std::mem::take(&mut leased.written);
        drop(log);
        let fsync = Request::Fsync { file: handle.into(), datasync };
        let done = self.means.call(&cred, fsync).and_then(siftfs_proto::Reply::done);
        match &done {
            Ok(()) if direct => self.lock().covers(held, order),
            Ok(()) => {}
            Err(_) => {
                if let Some(leased) = self.lock().of(held) {
                    leased.written |= written;
                }
            }
        }
        Ok(answered(done.map(|()| Answer::Done)))
    }

    /// A file log for the session, if it may have one. It is made once.
    ///
    /// # Errors
    /// The session is over.
    pub fn file_log(&self, logs: Option<&dyn Logs>) -> Result<Option<Passed<1>>> {
        let Some(logs) = logs else { return Ok(None) };
        if self.lock().file.is_some() {
            return Err(corrupt("private log", "it asks for a second file log"));
        }
        // No other thread makes logs of this session, and to make one takes time.
        let file = match logs.create(self.process) {
            Ok(file) => FileLog::new(file),
            Err(error) => {
                tracing::warn!(pid = self.process, %error, "a program gets no file log");
                return Ok(None);
            }
        };
        let (descriptor, shape) = file.file().passed();
        let passed = descriptor.try_clone_to_owned().map_err(|_| errno(libc::EMFILE));
        let mut log = self.lock();
        match passed {
            Ok(passed) if !log.is_over() => {
                let _ = self.own.set(file.told());
                log.file = Some(file);
                Counters::add(&self.means.counters.file_logs, 1);
                Ok(Some(Passed { answer: Answer::Log(shape), descriptors: [passed] }))
            }
            _ => file.remove().map(|()| None),
        }
    }

    /// The session, for the status document.
    pub fn describe(&self) -> Program {
        let leases = self.names().all.len() as u64;
        let own = self.own.get().and_then(|told| told.describe());
        let (medium, promise) = own.unwrap_or_else(|| ("daemon", "as the volume's".into()));
        Program { process: self.process, medium, promise, leases }
    }

    /// Makes durable what the file log has up to `end`, and has the log forget that.
    ///
    /// # Errors
    /// As of [`Session::read`].
    pub fn forget(&self, end: u64) -> Result<()> {
        let mut log = self.lock();
        log.ingest(&self.means)?;
        log.forget(&self.means, end)
    }

    /// Ends all leases for which the file log is a way: what others are told is durable is not to
    /// be undone by it.
    pub fn end_logged(&self) {
        let mut log = self.lock();
        let logged = log.logged();
        let ended = log.end(&self.means, logged);
        drop(log);
        self.told_by(ended);
    }

    /// The lease, if it lasts; else what is to be answered.
    pub(crate) fn lasting(log: &mut Log, held: Held) -> std::result::Result<&mut Leased, Answer> {
        let lasts = log.lasts(held);
        match log.of(held) {
            Some(leased) if lasts => Ok(leased),
            Some(_) => Err(Answer::Ended),
            None => Err(Answer::Failed(libc::EBADF)),
        }
    }

    /// Takes in what is published.
    ///
    /// # Errors
    /// As of [`Session::read`].
    pub fn ingest(&self) -> Result<Answer> {
        self.lock().ingest(&self.means).map(|()| Answer::Done)
    }

    /// Takes in what is published, for another thread than the session's own.
    pub fn take_in(&self) {
        let taken = self.lock().ingest(&self.means);
        self.told_by(taken);
    }

    /// The holder gives a lease back, and its slot.
    ///
    /// # Errors
    /// As of [`Session::read`].
    pub fn give_back(&self, held: Held) -> Result<Answer> {
        let mut log = self.lock();
        if log.of(held).is_none() {
            return Ok(Answer::Failed(libc::EBADF));
        }
        log.end(&self.means, vec![held])?;
        let error = log.of(held).and_then(|leased| leased.error.take());
        log.free(held);
        Ok(error.map_or(Answer::Done, Answer::Failed))
    }

    /// Another session wants the file of a lease.
    pub fn recall(&self, lease: LeaseId) {
        let held = self.names().all.get(&lease).map(|name| name.held);
        let Some(held) = held else { return };
        let ended = self.lock().end(&self.means, vec![held]);
        self.told_by(ended);
    }

    /// Takes in what is old, and gives back what is not used. Not, if another thread has the log:
    /// that one takes it in.
    pub fn age(&self, times: (Duration, Duration)) {
        let mut log = match self.log.try_lock() {
            Ok(log) => log,
            Err(TryLockError::Poisoned(log)) => log.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let aged = log.age(&self.means, times);
        drop(log);
        self.told_by(aged);
    }

    fn told_by(&self, result: Result<()>) {
        // One that is over breaks no rule: its own thread has ended it.
        if let Err(error) = result
            && !is_over(&error)
        {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            // The session's own thread ends it.
            self.socket.stop_receiving();
        }
    }

    /// Vouches for the words of the grantor's memory, for a while.
    pub fn vouch(&self, until: u64) {
        vouch(&*self.means.told.memories.0, until);
    }

    /// Uses the leases of which half the term is over. Waits for nothing but the Runtime's lock.
    pub fn keep(self: &Arc<Self>) {
        let now = Instant::now();
        let due: Vec<LeaseId> = {
            let mut names = self.names();
            let all = names.all.iter_mut();
            let due =
                all.filter(|(_, name)| now.saturating_duration_since(name.kept) >= name.term / 2);
            due.map(|(lease, name)| {
                name.kept = now;
                *lease
            })
            .collect()
        };
        for lease in due {
            let kept = self.means.call(&Credentials::default(), Request::LeaseKeep { lease });
            if kept.is_err() {
                self.means.told.recalls.add(Arc::downgrade(self), lease);
            }
        }
    }

    /// The program has gone, or is to go: what it published is taken in, its leases end, and then
    /// the session does. The connection is cut after that: a program that waits for the end of a
    /// lease learns it from the lease's word.
    ///
    /// # Errors
    /// It broke a rule.
    pub fn finish(&self) -> Result<()> {
        let ended = self.lock().finish(&self.means);
        let _ = self.means.call(&Credentials::default(), Request::EndSession);
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or(ended, Err)
    }
}

/// What is answered of a request by a handle that ends with its lease.
pub(crate) fn answered(result: Result<Answer>) -> Answer {
    match result.map_err(|e| e.errno()) {
        Ok(answer) => answer,
        Err(libc::EBADF | libc::ESTALE) => Answer::Ended,
        Err(errno) => Answer::Failed(errno),
    }
}

/// Is it the error of a session that is over?
pub(crate) fn is_over(error: &Error) -> bool {
    error.errno() == over().errno()
}
