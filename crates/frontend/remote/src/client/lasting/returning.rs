//! The way back to a server that was lost.

use super::again::was_done;
use super::kept::Change as KeptChange;
use super::lender::{self, Late};
use super::opens::Opened;
use super::places::REPEATS;
use super::{Patience, Shared, Watcher, call, kind, waits};
use crate::client::looked::Known;
use crate::client::{Again, Client, Watch};
use crate::term::moment;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Back, Change, Kept, Proven, Returning, TRIES, ToServer};
use siftfs_proto::{Credentials, FileService, HOLD_MOST, Handle, Held, Reply, Request, Target};
use siftfs_transport::Address;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The first wait between two attempts; it doubles up to the longest.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(500);
/// How often the log says that the server is not there.
const TELL: Duration = Duration::from_secs(60);

impl Shared {
    /// Waits for losses, and comes back, until the session ends.
    pub fn keep_coming_back(self: &Arc<Self>) {
        loop {
            {
                let mut now = self.lock();
                while !now.leaving && (now.client.is_some() || now.calls > 0) {
                    now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                }
                if now.leaving {
                    return;
                }
            }
            let (mut pause, mut told) = (SHORTEST, Instant::now());
            while let Err(error) = self.come_back() {
                tracing::debug!(%error, "the server is not there yet");
                if let Some(lost) = self.out_of_patience() {
                    self.waits.fail(&lost);
                }
                if told.elapsed() >= TELL {
                    told = Instant::now();
                    tracing::warn!(server = self.peer_name(), %error, "still waiting for the server");
                }
                if self.pause(pause) {
                    return;
                }
                pause = LONGEST.min(pause * 2);
            }
            waits::again(self);
        }
    }

    /// Has the server been away for longer than calls wait? Then how it was lost.
    fn out_of_patience(&self) -> Option<Error> {
        match (self.patience, &self.lock().lost) {
            (Patience::Soft(limit), Some((since, error))) if since.elapsed() >= limit => {
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Waits; true if the session ends.
    fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut now = self.lock();
        while !now.leaving {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            now = self.changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A session at one of the volume's addresses, before anything is brought back; and the moment
    /// before it was asked for.
    ///
    /// # Errors
    /// Nobody answers there for this volume, or lets this client in.
    fn open_at(self: &Arc<Self>, address: &Address) -> Result<(Client, Arc<Watcher>, Duration)> {
        let (connection, instance) = {
            let now = self.lock();
            (now.connection + 1, now.instance)
        };
        let watch = Arc::new(Watcher {
            shared: Arc::downgrade(self),
            connection,
            instance: OnceLock::new(),
        });
        let again = Again {
            returning: Returning { client: self.id, instance },
            looked_up: self.looked_up.clone(),
            watch: watch.clone() as Arc<dyn Watch>,
        };
        let end = self.ways.reach(address)?;
        let opening = self.opening.clone();
        let asked = if self.certain.asks() { moment() } else { Duration::ZERO };
        let client = Client::open_again(end, opening, (self.cache.clone(), None), Some(again))?;
        let volume = client.terms.volume;
        if *self.volume.get_or_init(|| volume) != volume {
            return Err(Error::Refused(format!("{} serves another volume now", client.peer())));
        }
        Ok((client, watch, asked))
    }

    /// Makes a connection, and brings back what there was.
    pub fn come_back(self: &Arc<Self>) -> Result<()> {
        let (client, watch, asked) = self.ways.first_that(|address| self.open_at(address))?;
        let (connection, terms) = (watch.connection, client.terms);
        self.checks.get_or_init(|| terms.checks);
        if terms.back == Back::Unknown {
            self.lock().forgotten += 1;
        }
        let _ = watch.instance.set(terms.instance);
        let client = Arc::new(client);
        self.certain.connects((connection, &client), asked, &self.cache);
        if terms.back != Back::New {
            self.bring_back(&client)?;
        }
        client.say(ToServer::Returned);
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = client.peer().into();
        let mut now = self.lock();
        loop {
            if let Some(error) = client.lost() {
                return Err(error);
            }
            let given = std::mem::take(&mut now.given);
            if given.is_empty() {
                break;
            }
            drop(now);
            given.into_iter().for_each(|(cred, req)| self.give(&client, &cred, req));
            now = self.lock();
        }
        let was_lost = now.lost.take();
        (now.connection, now.instance) = (connection, terms.instance);
        now.client = Some(client.clone());
        drop(now);
        self.changed.notify_all();
        if let Some((since, _)) = was_lost {
            let after = since.elapsed();
            tracing::warn!(server = client.peer(), ?after, back = ?terms.back, "the server is there again");
            self.have_forgotten();
        }
        // It may have been lost between the look and now, and have said so to nobody.
        if let Some(error) = client.lost() {
            self.lost(connection, &error);
        }
        Ok(())
    }

    /// Has the kernel ask for everything again. It may send pages meanwhile, for which the server
    /// is there now, so this needs a thread of its own.
    fn have_forgotten(&self) {
        let Some(cache) = self.cache.clone() else { return };
        let known = self.looked_up.all();
        let forgets = std::thread::Builder::new().name("siftfs-forgets".into());
        if let Err(error) = forgets.spawn(move || cache.lost(known)) {
            tracing::error!(%error, "the kernel may show files as they were");
        }
    }

    /// Gives something back that a program gave back while the server was lost. A connection that
    /// is lost once more has taken it along.
    fn give(&self, client: &Client, cred: &Credentials, request: Request) {
        let mut sent = request.clone();
        let known = kind::exchange(&mut sent, |own| self.opens.server(own)).is_ok();
        match &request {
            Request::Release { handle } => self.opens.closed(*handle),
            Request::CloseLocks { ino, owner, .. } => {
                self.opens.close_locks(*ino, *owner);
            }
            _ => {}
        }
        self.forgets(&request);
        if known && let Err(error) = client.call(cred, sent) {
            tracing::debug!(%error, "given back late");
        }
    }

    /// # Errors
    /// The connection is lost once more.
    fn bring_back(&self, client: &Client) -> Result<()> {
        let terms = client.terms;
        let mut gained = HashMap::new();
        if terms.back == Back::Clean {
            self.kept.all_synced(self.kept.next());
        }
        for at in self.kept.of_others(terms.instance) {
            self.repeat(client, at, &mut gained)?;
        }
        for ino in self.kept.take_loose_of_others(terms.instance) {
            tracing::error!(ino, "a compound's changes of a file may be lost: its server died");
            self.opens.lose(ino);
        }
        self.refer(client, &gained)?;
        self.reopen(client)?;
        // A file without a name is there for as long as it is open.
        self.forget_gained(client, &gained)?;
        self.lock_again(client)?;
        self.write_late(client)
    }

    /// Repeats one change that a server answered which has died.
    fn repeat(&self, client: &Client, at: u64, gained: &mut HashMap<InodeNr, u64>) -> Result<()> {
        let Some(change) = self.kept.get(at) else { return Ok(()) };
        let number = match change.tried.last() {
            // The connection was lost, and not the server.
            Some((of, number)) if *of == client.terms.instance => *number,
            _ => self.places.repeat(),
        };
        let Some(tried) = numbers_of(&change.tried) else {
            tracing::error!(
                request = call::name(&change.request),
                "a change is lost: {TRIES} servers died one after the other while it was repeated"
            );
            self.lose(at, (change.inode, change.file));
            return Ok(());
        };
        self.kept.tries(at, client.terms.instance, number);
        let KeptChange { request, credentials, proofs, file, inode, instance, done, .. } = change;
        let kept = Kept {
            instance,
            order: done.order,
            lsn: done.lsn,
            inode,
            place: REPEATS,
            number,
            tried,
        };
        let again = Some(Change::Kept(kept));
        let asked = (request.clone(), proofs);
        let ((result, noted), owed) = client.call_change(&credentials, asked, again);
        owed.wait();
        let said = noted.done;
        let what = call::brief(&request);
        tracing::debug!(order = done.order, lsn = done.lsn, what, ?inode, ?said, "repeated");
        match (result, said) {
            (Err(error @ Error::Link(_)), _) if client.lost().is_some() => return Err(error),
            // It is there.
            (Ok(_), Some(said)) if said.order == 0 => self.kept.drop(at),
            (Ok(reply), Some(said)) => {
                if let Reply::Entry(attr) = &reply {
                    *gained.entry(attr.ino).or_default() += 1;
                }
                self.kept.repeated(at, client.terms.instance, said);
            }
            (Ok(_), None) => self.kept.drop(at),
            // It was durable, though nobody had said so.
            (Err(error), _) if was_done(&request, &error) => self.kept.drop(at),
            // The file was removed since, and that is there; or the file is lost, which its users
            // are told.
            (Err(Error::Posix(libc::ESTALE)), _) if file.is_some() && inode.is_some() => {
                self.kept.drop(at);
            }
            (Err(error), _) => {
                tracing::error!(
                    %error, request = call::name(&request), ?inode,
                    "a change is lost: its server died, and it cannot be repeated"
                );
                self.lose(at, (inode, file));
            }
        }
        Ok(())
    }

    /// A change that was kept is lost, which the users of its file are told.
    fn lose(&self, at: u64, (inode, file): (Option<(InodeNr, u32)>, Option<InodeNr>)) {
        self.kept.drop(at);
        let lost = inode.map(|(ino, _)| ino).or(file);
        lost.iter().for_each(|ino| self.opens.lose(*ino));
    }

    /// Refers to all that the kernel refers to, but for what was gained meanwhile.
    fn refer(&self, client: &Client, gained: &HashMap<InodeNr, u64>) -> Result<()> {
        let mut all = Vec::new();
        for known in self.looked_up.held() {
            let Known { ino, generation, references, .. } = known;
            let gained = gained.get(&ino).copied().unwrap_or_default();
            if gained > references {
                let forget = Request::Forget { ino, count: gained - references };
                give(client, forget)?;
            }
            let mut left = references.saturating_sub(gained);
            while left > 0 {
                let part = u32::try_from(left).unwrap_or(u32::MAX);
                all.push((Held { ino, generation, count: part }, known.proven()));
                left -= u64::from(part);
            }
        }
        for part in all.chunks(HOLD_MOST) {
            let inodes = part.iter().map(|(held, _)| *held).collect();
            let proofs = part.iter().filter_map(|(_, proven)| *proven).collect();
            let held = ask(client, (Request::HoldMany { inodes }, proofs))?;
            let all = part.iter().map(|(held, _)| (held.ino, held.generation));
            match held.and_then(Reply::gone) {
                Ok(gone) => {
                    if !gone.is_empty() {
                        tracing::warn!(?gone, "files are gone with the server");
                    }
                    let gone: HashSet<InodeNr> = gone.into_iter().collect();
                    self.opens.gone(all.filter(|(ino, _)| gone.contains(ino)));
                }
                Err(error) => {
                    tracing::error!(%error, "files that are known are not to be found again");
                    self.opens.gone(all);
                }
            }
        }
        Ok(())
    }

    /// Gives back what was gained and is referred to no longer.
    fn forget_gained(&self, client: &Client, gained: &HashMap<InodeNr, u64>) -> Result<()> {
        for (ino, gained) in gained {
            if self.looked_up.references(*ino) == 0 {
                give(client, Request::Forget { ino: *ino, count: *gained })?;
            }
        }
        Ok(())
    }

    fn reopen(&self, client: &Client) -> Result<()> {
        for open in self.opens.all() {
            let opened = match self.opens.is_gone(open.ino) {
                true => Err(errno(libc::ESTALE)),
                false => open_again(client, &open)?,
            };
            self.opens.reopened(open.own, opened.map_err(|error| error.errno()));
        }
        Ok(())
    }

    /// Writes what programs had published by private logs, and makes it durable. Nobody else goes
    /// on before.
    fn write_late(&self, client: &Client) -> Result<()> {
        let lose = |ino: InodeNr, why: &dyn std::fmt::Display| {
            tracing::error!(ino, %why, "what a program had written by a private log is lost");
            self.opens.lose(ino);
        };
        for ino in self.end_leases(client.terms.instance) {
            lose(ino, &"its ring is late, or its connection was lost");
        }
        // They are taken out when all of them are there: the connection may be lost once more.
        let late = self.late().clone();
        let nothing_known = client.terms.back == Back::Unknown;
        let (mut files, mut gone) = (HashMap::new(), HashSet::new());
        for Late { instance, ino, generation, credentials, offset, data } in &late {
            // Others had the file since: they waited for the lease no longer than it lasts.
            if *instance == client.terms.instance {
                if gone.insert(*ino) {
                    lose(*ino, &"its connection was lost, and the server lives");
                }
                continue;
            }
            if let Entry::Vacant(file) = files.entry(*ino) {
                let inodes = vec![Held { ino: *ino, generation: *generation, count: 1 }];
                let held = ask(client, (Request::HoldMany { inodes }, Vec::new()))?;
                let missing = held.and_then(Reply::gone);
                let is_there = missing.as_ref().is_ok_and(Vec::is_empty);
                // What is gone counts, too.
                file.insert(missing.is_ok());
                if !is_there || nothing_known {
                    gone.insert(*ino);
                    lose(*ino, &"the file, or what was before, is not there");
                }
            }
            if !gone.contains(ino) {
                let write = lender::write(*ino, *offset, data.clone());
                if let Err(error) = ask_by(client, credentials, (write, Vec::new()))? {
                    gone.insert(*ino);
                    lose(*ino, &error);
                }
            }
        }
        for (ino, counts) in files {
            let sync = Request::Fsync { file: ino.into(), datasync: false };
            if !gone.contains(&ino)
                && let Err(error) = ask(client, (sync, Vec::new()))?
            {
                lose(ino, &error);
            }
            if counts {
                give(client, Request::Forget { ino, count: 1 })?;
            }
        }
        self.late().drain(..late.len());
        Ok(())
    }

    fn lock_again(&self, client: &Client) -> Result<()> {
        for (own, lock) in self.opens.locks() {
            let Ok(server) = self.opens.server(own) else { continue };
            let request = Request::SetLock { file: Target::Open(server), ask: lock };
            if let Err(error) = ask(client, (request, Vec::new()))? {
                tracing::error!(%error, "a lock is lost: another program has it");
                self.opens.lock_lost(own);
            }
        }
        Ok(())
    }
}

/// Opens something again.
///
/// # Errors
/// The connection is lost; what else fails is inside: `ESTALE` if the number is another file's.
fn open_again(client: &Client, open: &Opened) -> Result<Result<Handle>> {
    let asked = (open.how.request(open.ino), open.proven.into_iter().collect());
    let opened = ask(client, asked)?.and_then(Reply::opened);
    // A code counts for the file of that generation alone.
    let unproven = open.generation.filter(|_| open.proven.is_none());
    let (Ok(handle), Some(generation)) = (&opened, unproven) else { return Ok(opened) };
    let (handle, generation) = (*handle, generation);
    let attr = Request::GetAttr { file: handle.into() };
    let attr = ask(client, (attr, Vec::new()))?.and_then(Reply::attr);
    if attr.is_ok_and(|attr| attr.generation == generation) {
        return Ok(Ok(handle));
    }
    give(client, Request::Release { handle })?;
    Ok(Err(errno(libc::ESTALE)))
}

/// Asks for something that a client had.
///
/// # Errors
/// The connection is lost; what else fails is inside.
fn ask(client: &Client, asked: (Request, Vec<Proven>)) -> Result<Result<Reply>> {
    ask_by(client, &Credentials::default(), asked)
}

/// The same, in the name of somebody.
///
/// # Errors
/// As [`ask`].
fn ask_by(
    client: &Client,
    credentials: &Credentials,
    asked: (Request, Vec<Proven>),
) -> Result<Result<Reply>> {
    let ((result, _), owed) = client.call_change(credentials, asked, Some(Change::Reclaim));
    owed.wait();
    match result {
        Err(error @ Error::Link(_)) if client.lost().is_some() => Err(error),
        result => Ok(result),
    }
}

/// Gives something back.
///
/// # Errors
/// The connection is lost.
fn give(client: &Client, request: Request) -> Result<()> {
    if let Err(error) = ask(client, (request, Vec::new()))? {
        tracing::warn!(%error, "what a kernel does not refer to stays referred to");
    }
    Ok(())
}

/// The numbers of repetitions that were not answered; none if there were too many.
fn numbers_of(tried: &[(u64, u64)]) -> Option<[u64; TRIES]> {
    let mut numbers = [0; TRIES];
    for (at, (_, number)) in tried.iter().enumerate() {
        *numbers.get_mut(at)? = *number;
    }
    Some(numbers)
}
