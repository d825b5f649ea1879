//! A session for a program's private log, beside the one of a mount that comes back
//! (`docs/design/private-logs.md`, "A lost server"): what it has written is kept by the mount's
//! session, and so is what its program has published when the server is lost.

use super::kept::Change as KeptChange;
use super::{MOMENT, Shared};
use crate::client::{Client, Told};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Claim, Leases, Opening, Returning, ToServer};
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, LeaseId, Owed, Reply, Request, Shown, Target,
    WriteData,
};
use siftfs_transport::Crossed;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A server that dies ends the mount's connection, too. How long it is waited for that.
const BOTH: Duration = Duration::from_secs(1);
/// How long a mount that comes back waits for what lies in rings.
const RINGS: Duration = Duration::from_secs(2);
/// How long a grant waits for changes of its file that the mount was about to note.
const ANSWERS: Duration = Duration::from_secs(1);

/// A lease of the session.
#[derive(Clone, Copy)]
struct Leased {
    ino: InodeNr,
    /// Its program was told of blocks that it writes at the target.
    granted: bool,
    /// The loss of what the server had not heard of such writes was told.
    told: bool,
}

/// A write that a program has published, and no server has taken in.
#[derive(Clone)]
pub(super) struct Late {
    /// The server that the lease was of.
    pub instance: u64,
    pub ino: InodeNr,
    pub generation: u32,
    pub credentials: Credentials,
    pub offset: u64,
    pub data: WriteData,
}

#[derive(Default)]
struct State {
    next: u64,
    /// What is open: the client's own number, the inode and the server's number.
    handles: HashMap<Handle, (InodeNr, Handle)>,
    leases: HashMap<LeaseId, Leased>,
    generations: HashMap<InodeNr, u32>,
    /// How many connections there were before.
    connection: u64,
    /// The connection is lost; whether the server is, too, once that is known.
    lost: bool,
    died: Option<bool>,
}

impl State {
    fn returned(&mut self, lease: LeaseId) -> Option<Leased> {
        let leased = self.leases.remove(&lease)?;
        self.generations.remove(&leased.ino);
        Some(leased)
    }

    /// The inode of what is open.
    fn ino_of(&self, file: Target) -> Option<InodeNr> {
        match file {
            Target::Open(own) => self.handles.get(&own).map(|(ino, _)| *ino),
            Target::Inode(_) => None,
        }
    }

    /// The inode of the file of a lease.
    fn ino(&self, lease: LeaseId) -> Option<InodeNr> {
        self.leases.get(&lease).map(|leased| leased.ino)
    }
}

/// Such a session. It ends when this is dropped.
pub struct Lender {
    own: Weak<Self>,
    shared: Arc<Shared>,
    /// Makes its connection.
    dial: super::Dial,
    holder: Arc<dyn Holder>,
    client: Mutex<Arc<Client>>,
    /// What has crossed the connections before.
    before: Mutex<Crossed>,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a session for a private log, {:?}", self.client())
    }
}

/// What the connection tells. Its end is no end of the leases' writes.
struct Tells {
    holder: Arc<dyn Holder>,
    lender: OnceLock<Weak<Lender>>,
    connection: u64,
}

impl Holder for Tells {
    fn recall(&self, lease: LeaseId) {
        self.holder.recall(lease);
    }

    fn attributes(&self, lease: LeaseId) -> Option<Shown> {
        self.holder.attributes(lease)
    }

    fn ordered(&self, order: u64) {
        self.holder.ordered(order);
    }

    fn lost(&self) {
        match self.lender.get().and_then(Weak::upgrade) {
            Some(lender) if lender.lock().connection == self.connection => lender.lost(),
            Some(_) => {}
            None => self.holder.lost(),
        }
    }
}

impl Lender {
    /// Opens one beside the session of a mount. `dial` makes its connections, which share memory
    /// with the server. `holder` is told which leases to return.
    ///
    /// # Errors
    /// As [`Client::connect`]; and the server does not know the mount, or shares no memory.
    pub(super) fn open(
        shared: &Arc<Shared>,
        dial: super::Dial,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<Self>> {
        let tells =
            Arc::new(Tells { holder: holder.clone(), lender: OnceLock::new(), connection: 0 });
        let client = connect(shared, &dial, tells.clone())?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let (shared, client) = (shared.clone(), Mutex::new(client));
        let lender = Arc::new_cyclic(|own| {
            let own = own.clone();
            let before = Mutex::default();
            Self { own, shared, dial, holder, client, before, state, changed }
        });
        let _ = tells.lender.set(lender.own.clone());
        lender.shared.lenders().push(lender.own.clone());
        // It may have been lost before anybody could be told.
        if lender.client().lost().is_some() {
            lender.lost();
        }
        Ok(lender)
    }

    /// What has crossed its connections.
    pub fn crossed(&self) -> Crossed {
        let mut crossed = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        crossed += self.client().crossed();
        crossed
    }

    fn client(&self) -> Arc<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is lost: all leases are to be returned, with what is published.
    fn lost(&self) {
        let mut state = self.lock();
        state.lost = true;
        let leases: Vec<LeaseId> = state.leases.keys().copied().collect();
        drop(state);
        leases.into_iter().for_each(|lease| self.holder.recall(lease));
    }

    /// Has the server died, and not this connection alone? Then the mount's is lost, too. If both
    /// are lost and the server lives, it is known when the mount is back, and not before.
    fn has_died(&self) -> bool {
        if let Some(died) = self.lock().died {
            return died;
        }
        let died = self.shared.is_another_server(self.client().terms.instance, BOTH);
        *self.lock().died.get_or_insert(died)
    }

    /// The mount comes back, to this server. If that is another one than the leases were of, they
    /// are returned, and what is published lies with the mount's session. Files of which it does
    /// not, because their rings are late, or because the connection alone was lost.
    fn ends(&self, instance: u64, until: Instant) -> Vec<InodeNr> {
        let is_another = self.client().terms.instance != instance;
        let mut state = self.lock();
        if !is_another && !state.lost {
            return Vec::new();
        }
        state.died.get_or_insert(is_another);
        drop(state);
        self.lost();
        let mut state = self.lock();
        while !state.leases.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.leases.drain().map(|(_, leased)| leased.ino).collect()
    }

    /// A request in the server's numbers, and the inode of the file that it is about.
    fn in_its_numbers(&self, req: &Request) -> Result<(Request, Option<InodeNr>)> {
        let state = self.lock();
        let known = |own: &Handle| state.handles.get(own).copied().ok_or(errno(libc::EBADF));
        let mut sent = req.clone();
        if let Request::Release { handle } = &mut sent {
            let (ino, server) = known(handle)?;
            *handle = server;
            return Ok((sent, Some(ino)));
        }
        if let Some(Target::Open(handle)) = sent.names_mut().file {
            let (ino, server) = known(handle)?;
            *handle = server;
            return Ok((sent, Some(ino)));
        }
        let ino = match req {
            Request::LeaseWrite { lease, .. } => state.ino(*lease),
            _ => None,
        };
        Ok((sent, ino))
    }

    /// A call was answered: notes what has to outlive the server.
    fn note(
        &self,
        client: &Client,
        (cred, req, ino): (&Credentials, Request, Option<InodeNr>),
        (reply, done, next): (&mut Reply, Option<siftfs_calls::Done>, u64),
    ) {
        let mut state = self.lock();
        match (req, reply) {
            (Request::Open { ino, .. }, Reply::Opened { handle }) => {
                state.next += 1;
                let own = Handle(state.next);
                state.handles.insert(own, (ino, *handle));
                *handle = own;
            }
            (Request::Lease { .. }, Reply::Leased { lease, .. }) => {
                let leased = |ino| Leased { ino, granted: false, told: false };
                state.leases.extend(ino.map(|ino| (*lease, leased(ino))));
            }
            (Request::GetAttr { .. }, Reply::Attr(attr)) => {
                state.generations.insert(attr.ino, attr.generation);
            }
            (Request::LeaseReturn { lease }, _) => drop(state.returned(lease)),
            (Request::Release { handle }, _) => drop(state.handles.remove(&handle)),
            (Request::Fsync { .. }, _) => {
                ino.iter().for_each(|ino| self.shared.kept.synced(*ino, next));
            }
            (
                Request::LeaseWrite { offset, mut data, .. },
                Reply::Written { len } | Reply::WrittenLast { len },
            ) => {
                data.truncate((*len).into());
                let (Some(ino), Some(done)) = (ino, done) else { return };
                let Some(generation) = state.generations.get(&ino).copied() else { return };
                let request = write(ino, offset, data);
                let instance = client.terms.instance;
                self.shared.kept.add(KeptChange {
                    request,
                    credentials: cred.clone(),
                    proofs: Vec::new(),
                    file: Some(ino),
                    inode: Some((ino, generation)),
                    instance,
                    done,
                    tried: Vec::new(),
                });
            }
            _ => {}
        }
    }

    /// A call whose connection is lost, or was before.
    fn after_loss(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        // By the mount, which waits for the server.
        let by_mount = |file, ask: &dyn Fn(Target) -> Request| {
            let ino = self.lock().ino_of(file).ok_or(errno(libc::EBADF))?;
            self.shared.call(cred, ask(Target::Inode(ino))).map(|(reply, _)| reply)
        };
        match req {
            Request::LeaseWrite { lease, offset, data, durable: false, .. } if self.has_died() => {
                let state = self.lock();
                let ino = state.ino(lease).ok_or(errno(libc::ESTALE))?;
                let generation = state.generations.get(&ino).copied();
                let generation = generation.ok_or(errno(libc::ESTALE))?;
                let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
                let credentials = cred.clone();
                let instance = self.client().terms.instance;
                let late = Late { instance, ino, generation, credentials, offset, data };
                // Before the lease counts as returned.
                self.shared.late().push(late);
                Ok(Reply::Written { len })
            }
            Request::LeaseLocate { .. } => Ok(Reply::Located { cold: 0 }),
            Request::LeaseReturn { lease } => {
                let returned = self.lock().returned(lease);
                self.changed.notify_all();
                // The server may have died with what the target had told it, or had not.
                let in_doubt = returned.is_some_and(|leased| leased.granted && !leased.told);
                if in_doubt { Err(errno(libc::EIO)) } else { Ok(Reply::Done) }
            }
            Request::Release { handle } => {
                self.lock().handles.remove(&handle);
                Ok(Reply::Done)
            }
            Request::Forget { .. } | Request::EndSession => Ok(Reply::Done),
            Request::Fsync { file, datasync } => {
                self.may_sync(file)?;
                by_mount(file, &|file| Request::Fsync { file, datasync })
            }
            Request::Read { file, offset, len } => {
                by_mount(file, &|file| Request::Read { file, offset, len })
            }
            Request::LeaseKeep { .. } => Err(errno(libc::ESTALE)),
            Request::LeaseWrite { .. } => Err(errno(libc::EIO)),
            _ => Err(errno(libc::EAGAIN)),
        }
    }

    /// May the mount make this file durable in the place of the session, which is lost? It does not
    /// know what a program has written at the target for the first time, and what the server has
    /// not heard of that is lost with it.
    ///
    /// # Errors
    /// `ESTALE`: the lease has ended. `EIO`: something may be lost, which is said once of what was
    /// written at the target.
    fn may_sync(&self, file: Target) -> Result<()> {
        {
            let mut state = self.lock();
            let ino = state.ino_of(file);
            let mut leases = state.leases.values_mut();
            let leased = leases.find(|leased| Some(leased.ino) == ino);
            let leased = leased.ok_or(errno(libc::ESTALE))?;
            if leased.granted {
                let told = std::mem::replace(&mut leased.told, true);
                return Err(errno(if told { libc::ESTALE } else { libc::EIO }));
            }
        }
        if self.has_died() { Ok(()) } else { Err(errno(libc::EIO)) }
    }

    /// The program is about to be told of blocks of this file that are granted with a lease, which
    /// it writes at the target from then on. What the mount keeps of the file is older than that,
    /// and would come over it if it were repeated: so it is made durable first.
    ///
    /// # Errors
    /// It is not durable: the program is not to be told.
    fn about_to_grant(
        &self,
        client: &Client,
        cred: &Credentials,
        (lease, file, ino): (LeaseId, Target, InodeNr),
    ) -> Result<()> {
        // What was carried out before the grant, and whose answer is on its way, is kept later.
        if !self.shared.kept.have_ended(ino, ANSWERS) {
            return Err(errno(libc::EAGAIN));
        }
        if self.shared.kept.has_of(ino) {
            let next = self.shared.kept.next();
            let sync = Request::Fsync { file, datasync: false };
            let ((synced, _), owed) = client.call_change(cred, (sync, Vec::new()), None);
            owed.wait();
            synced?;
            self.shared.kept.synced(ino, next);
        }
        // The lease may have ended meanwhile; then the grant has ended, too.
        if let Some(leased) = self.lock().leases.get_mut(&lease) {
            leased.granted = true;
        }
        Ok(())
    }

    /// A call was answered by which blocks may be granted: the answer as the program gets it.
    fn granting(
        &self,
        client: &Client,
        cred: &Credentials,
        (req, file, ino): (&Request, Option<Target>, Option<InodeNr>),
        mut reply: Reply,
    ) -> Result<Reply> {
        let lease = match (req, &reply) {
            (Request::Lease { .. }, Reply::Leased { lease, granted: Some(_), .. }) => *lease,
            (Request::LeaseDirect { lease, .. }, Reply::Direct(_)) => *lease,
            (Request::LeaseExtend { lease, .. }, Reply::Extended(runs)) if !runs.is_empty() => {
                *lease
            }
            _ => return Ok(reply),
        };
        let (Some(file), Some(ino)) = (file, ino) else { return Err(errno(libc::EBADF)) };
        let ready = self.about_to_grant(client, cred, (lease, file, ino));
        if let Err(error) = ready {
            tracing::debug!(ino, %error, "a program is not told of blocks that are granted");
            if client.lost().is_some() {
                self.lost();
            }
            // The lease has no need of them.
            let Reply::Leased { granted, .. } = &mut reply else {
                return Err(errno(libc::EAGAIN));
            };
            *granted = None;
        }
        Ok(reply)
    }

    /// Makes a new connection, if the one before was lost and the mount has come back.
    fn again(&self) -> Result<()> {
        if self.shared.is_lost() || !self.lock().leases.is_empty() {
            return Err(errno(libc::EAGAIN));
        }
        let connection = self.lock().connection + 1;
        let (holder, lender) = (self.holder.clone(), self.own.clone().into());
        let tells = Tells { holder, lender, connection };
        let client = connect(&self.shared, &self.dial, Arc::new(tells))?;
        let before = {
            let mut now = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.lock();
            // What of the lost one is open is nothing here.
            state.handles.clear();
            (state.connection, state.lost, state.died) = (connection, false, None);
            std::mem::replace(&mut *now, client)
        };
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) += before.crossed();
        // Its thread may be about to say that it is lost: so this has no lock.
        drop(before);
        if self.client().lost().is_some() {
            self.lost();
        }
        Ok(())
    }

    /// Waits until another change may be kept, while the server is there.
    fn make_room(&self, client: &Client) {
        while self.shared.kept.is_full() && client.lost().is_none() && !self.shared.is_lost() {
            client.say(ToServer::Full);
            self.shared.kept.wait_for_room(MOMENT);
        }
    }

    fn ask(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        let nothing = |result| (result, Owed::default());
        if self.lock().lost {
            match &req {
                Request::Open { .. } => {
                    if let Err(error) = self.again() {
                        tracing::debug!(%error, "a program gets no lease yet");
                        return nothing(Err(errno(libc::EAGAIN)));
                    }
                }
                _ => return nothing(self.after_loss(cred, req)),
            }
        }
        let (mut sent, ino) = match self.in_its_numbers(&req) {
            Ok(sent) => sent,
            Err(error) => return nothing(Err(error)),
        };
        let client = self.client();
        if matches!(req, Request::LeaseWrite { .. }) {
            self.make_room(&client);
        }
        let next = self.shared.kept.next();
        let file = sent.names_mut().file.copied();
        let ((result, noted), owed) = client.call_change(cred, (sent, Vec::new()), None);
        match result {
            Err(Error::Link(_)) if client.lost().is_some() => {
                self.lost();
                nothing(self.after_loss(cred, req))
            }
            Ok(mut reply) => {
                let asked = grants(&req).then(|| req.clone());
                self.note(&client, (cred, req, ino), (&mut reply, noted.done, next));
                let told = match asked {
                    Some(req) => self.granting(&client, cred, (&req, file, ino), reply),
                    None => Ok(reply),
                };
                (told, owed)
            }
            Err(error) => (Err(error), owed),
        }
    }
}

impl Shared {
    fn lenders(&self) -> MutexGuard<'_, Vec<Weak<Lender>>> {
        self.lenders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What programs have published that no server has taken in, in order.
    pub(super) fn late(&self) -> MutexGuard<'_, Vec<Late>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session comes back, to this server: leases of another one end. Files of which not all is
    /// there that was published.
    pub(super) fn end_leases(&self, instance: u64) -> Vec<InodeNr> {
        let lenders: Vec<Arc<Lender>> = {
            let mut all = self.lenders();
            all.retain(|lender| lender.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let until = Instant::now() + RINGS;
        lenders.iter().flat_map(|lender| lender.ends(instance, until)).collect()
    }

    /// Is the server lost just now?
    fn is_lost(&self) -> bool {
        self.lock().client.is_none()
    }

    /// Is the server of this number lost, or another one there by now? Waits for that a while.
    fn is_another_server(&self, instance: u64, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut now = self.lock();
        loop {
            let alive = now.client.as_ref().is_some_and(|client| client.lost().is_none());
            if !alive || now.instance != instance {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            now = self.changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// May blocks of a file be granted by this request?
fn grants(req: &Request) -> bool {
    matches!(
        req,
        Request::Lease { direct: Some(_), .. }
            | Request::LeaseDirect { .. }
            | Request::LeaseExtend { .. }
    )
}

/// A write as a mount makes it.
pub(super) fn write(ino: InodeNr, offset: u64, mut data: WriteData) -> Request {
    data.move_to(offset);
    let (file, append, kill_priv, times) = (Target::Inode(ino), false, false, true);
    Request::Write { file, offset, data, append, kill_priv, times }
}

/// A connection of its own, whose changes the mount's session keeps.
fn connect(shared: &Shared, dial: &super::Dial, tells: Arc<dyn Holder>) -> Result<Arc<Client>> {
    let (volume, claim, caches) = (shared.opening.volume.clone(), Claim::Kernel, false);
    let instance = shared.lock().instance;
    let returning = Some(Returning { client: shared.id, instance });
    let opening = Opening { volume, claim, caches, leases: Leases::Lent, returning };
    let told: Told = (None, Some(tells));
    Client::open_beside(dial(shared.ways.address())?, opening, told).map(Arc::new)
}

impl FileService for Lender {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.ask(cred, req);
        owed.wait();
        result
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        self.ask(cred, req)
    }
}
