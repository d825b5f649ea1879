//! What a client whose callers are checked had from a server that died, or over a connection that
//! was lost: it shows the codes that came with its answers, and gets no more than they say
//! (`docs/design/lost-server.md`, "Whose callers are checked").

use super::identity::Whose;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_calls::{Grant, Proof, Proven};
use siftfs_keys::Seals;
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Attr, Credentials, FileService, Handle, Held, ROOT_INO, Reply, Request, Rights,
};
use std::sync::Arc;

/// A session without the checks of its callers: for the server itself.
#[derive(Clone)]
pub(super) struct Power {
    service: Arc<dyn FileService>,
    credentials: Credentials,
}

impl Power {
    /// By a session whose callers may do everything.
    pub fn of(service: Arc<dyn FileService>) -> Self {
        let rights = Some(Box::new(Rights::all()));
        Self { service, credentials: Credentials { rights, ..Credentials::default() } }
    }

    /// Has a request carried out.
    ///
    /// # Errors
    /// Those of the request.
    pub fn call(&self, request: Request) -> Result<Reply> {
        self.service.call(&self.credentials, request)
    }

    /// The attributes of an inode that the session refers to.
    fn attr(&self, ino: InodeNr) -> Result<Attr> {
        self.call(Request::GetAttr { file: ino.into() })?.attr()
    }

    /// Counts a reference to each of them. Those that are gone.
    fn hold(&self, inodes: Vec<Held>) -> Result<Vec<InodeNr>> {
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        self.call(Request::HoldMany { inodes })?.gone()
    }

    /// Opens a file as it was opened before.
    fn open(&self, ino: InodeNr, grant: Grant) -> Result<Handle> {
        self.call(match grant {
            Grant::Open(access) => Request::open(ino, access),
            Grant::Directory => Request::OpenDir { ino },
            Grant::Held => Request::Hold { ino },
            Grant::Reference => return Err(errno(libc::EINVAL)),
        })?
        .opened()
    }

    /// The answer of a call that an earlier session of the client carried out, in this session: the
    /// references and handles of the other one are nothing here.
    ///
    /// # Errors
    /// `ESTALE` if the file is gone by now.
    pub fn in_this_session(&self, reply: Reply) -> Result<Reply> {
        match reply {
            Reply::Entry(attr) => self.hold_again(&attr).map(Reply::Entry),
            Reply::Created { attr, .. } => {
                let attr = self.hold_again(&attr)?;
                let handle = self.open(attr.ino, Grant::Open(Access::Both))?;
                Ok(Reply::Created { attr, handle })
            }
            reply => Ok(reply),
        }
    }

    /// Counts a reference to a file that was known before.
    fn hold_again(&self, known: &Attr) -> Result<Attr> {
        let held = Held { ino: known.ino, generation: known.generation, count: 1 };
        match self.hold(vec![held])?.is_empty() {
            true => self.attr(known.ino),
            false => {
                // What is gone counts, too.
                self.call(Request::Forget { ino: known.ino, count: 1 })?;
                Err(errno(libc::ESTALE))
            }
        }
    }
}

/// Makes the codes of one client's session, and knows them again.
pub(super) struct Prover {
    seals: Arc<Seals>,
    volume: [u8; 16],
    /// Whose the codes are.
    whose: Whose,
    /// Within which directory inodes have these numbers.
    subtree: String,
    power: Power,
}

impl Prover {
    /// Of a session for this client, within a directory.
    pub fn new(
        seals: Arc<Seals>,
        volume: [u8; 16],
        (whose, subtree): (Whose, &str),
        power: Power,
    ) -> Arc<Self> {
        let subtree = subtree.into();
        Arc::new(Self { seals, volume, whose, subtree, power })
    }

    fn with<T>(
        &self,
        (ino, generation, grant): (InodeNr, u32, Grant),
        act: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        let kind: u8 = match grant {
            Grant::Reference => 0,
            Grant::Open(Access::Read) => 1,
            Grant::Open(Access::Write) => 2,
            Grant::Open(Access::Both) => 3,
            Grant::Directory => 4,
            Grant::Held => 5,
        };
        // Nobody looks the root up, and it is always the same.
        let generation = if ino == ROOT_INO { 0 } else { generation };
        let (ino, generation) = (ino.to_le_bytes(), generation.to_le_bytes());
        act(&[&self.volume, &self.whose, self.subtree.as_bytes(), &ino, &generation, &[kind]])
    }

    fn proof(&self, ino: InodeNr, generation: u32, grant: Grant) -> Proof {
        self.with((ino, generation, grant), |parts| self.seals.seal(parts))
    }

    /// Did a server grant this to the client?
    fn holds(&self, proven: &Proven) -> bool {
        let Proven { ino, generation, grant, proof } = proven;
        self.with((*ino, *generation, *grant), |parts| self.seals.knows(parts, proof))
    }

    /// Was the client told of this inode?
    pub fn knows(&self, proofs: &[Proven], (ino, generation): (InodeNr, u32)) -> bool {
        let is_it = |shown: &&Proven| (shown.ino, shown.generation) == (ino, generation);
        proofs.iter().filter(is_it).any(|shown| self.holds(shown))
    }

    /// The codes for what an answer grants: of each reference in the order of the reply, and then
    /// of what was opened, of a compound in the order of its steps.
    pub fn of(&self, request: &Request, reply: &Reply) -> Vec<Proof> {
        let opened = |ino, grant| {
            let attr = self.power.attr(ino).ok();
            attr.map(|attr| self.proof(ino, attr.generation, grant)).into_iter().collect()
        };
        match (request, reply) {
            (_, Reply::Entry(attr)) => {
                vec![self.proof(attr.ino, attr.generation, Grant::Reference)]
            }
            (_, Reply::Created { attr, .. }) => {
                let grants = [Grant::Reference, Grant::Open(Access::Both)];
                grants.map(|grant| self.proof(attr.ino, attr.generation, grant)).into()
            }
            (_, Reply::Dir(entries)) if entries.iter().any(|entry| entry.attr.is_some()) => {
                let counted = entries.iter().filter(|e| e.name != b"." && e.name != b"..");
                let of = |attr: &Attr| attr.generation;
                let prove = |entry: &siftfs_proto::DirEntry| {
                    let generation = entry.attr.as_ref().map_or(0, of);
                    self.proof(entry.ino, generation, Grant::Reference)
                };
                counted.map(prove).collect()
            }
            (Request::Open { ino, access, .. }, Reply::Opened { .. }) => {
                opened(*ino, Grant::Open(*access))
            }
            (Request::OpenDir { ino }, Reply::Opened { .. }) => opened(*ino, Grant::Directory),
            (Request::Hold { ino }, Reply::Opened { .. }) => opened(*ino, Grant::Held),
            (_, Reply::Compounded(done)) => {
                let opened = done.opened().into_iter();
                opened.map(|it| self.proof(it.ino, it.generation, Grant::Open(it.access))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a client had and wants back, if it is something that needs a code: everything else is
    /// asked for as ever.
    pub fn reclaim(&self, request: &Request, proofs: &[Proven]) -> Option<Result<Reply>> {
        let grant = match request {
            Request::HoldMany { inodes } => return Some(self.refer(inodes, proofs)),
            Request::Open { ino, access, .. } => (*ino, Grant::Open(*access)),
            Request::OpenDir { ino } => (*ino, Grant::Directory),
            Request::Hold { ino } => (*ino, Grant::Held),
            _ => return None,
        };
        Some(self.reopen(grant, proofs))
    }

    fn refer(&self, inodes: &[Held], proofs: &[Proven]) -> Result<Reply> {
        let mut shown = proofs.iter().peekable();
        // The codes come in the order of the inodes; one that has none is passed over.
        let mut is_shown = |held: &Held| {
            let own =
                shown.next_if(|shown| (shown.ino, shown.generation) == (held.ino, held.generation));
            own.is_some_and(|own| self.holds(own))
        };
        let (held, unknown): (Vec<Held>, Vec<Held>) =
            inodes.iter().copied().partition(|held| is_shown(held));
        let mut gone = self.power.hold(held)?;
        gone.extend(unknown.iter().map(|held| held.ino));
        Ok(Reply::Gone(gone))
    }

    /// # Errors
    /// `ESTALE` without a code, or if the number is another file's by now.
    fn reopen(&self, (ino, grant): (InodeNr, Grant), proofs: &[Proven]) -> Result<Reply> {
        let is_it = |shown: &&Proven| (shown.ino, shown.grant) == (ino, grant) && self.holds(shown);
        let shown = proofs.iter().find(is_it).ok_or(errno(libc::ESTALE))?;
        // What a compound has opened the client refers to by its handle alone.
        let mut lent = Lent { prover: self, inodes: Vec::new(), handles: Vec::new() };
        if ino != ROOT_INO && !lent.refers_to((ino, shown.generation)) {
            return Err(errno(libc::ESTALE));
        }
        self.power.open(ino, grant).map(|handle| Reply::Opened { handle })
    }

    /// Lets the client name, for one change that it repeats, what it was granted before.
    pub fn lend(&self, proofs: &[Proven]) -> Lent<'_> {
        let mut lent = Lent { prover: self, inodes: Vec::new(), handles: Vec::new() };
        for shown in proofs.iter().filter(|shown| self.holds(shown)) {
            let Proven { ino, generation, grant, .. } = *shown;
            if lent.refers_to((ino, generation))
                && let Grant::Open(_) = grant
                && let Ok(handle) = self.power.open(ino, grant)
            {
                lent.handles.push(handle);
            }
        }
        lent
    }
}

/// What a client may name for as long as this is there.
pub(super) struct Lent<'a> {
    prover: &'a Prover,
    inodes: Vec<InodeNr>,
    handles: Vec<Handle>,
}

impl Lent<'_> {
    /// Counts a reference to a file, if it is there.
    fn refers_to(&mut self, (ino, generation): (InodeNr, u32)) -> bool {
        let held = Held { ino, generation, count: 1 };
        let Ok(gone) = self.prover.power.hold(vec![held]) else { return false };
        // What is gone counts, too, and is given back.
        self.inodes.push(ino);
        gone.is_empty()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let handles = self.handles.drain(..).map(|handle| Request::Release { handle });
        let inodes = self.inodes.drain(..).map(|ino| Request::Forget { ino, count: 1 });
        for request in handles.chain(inodes) {
            if let Err(error) = self.prover.power.call(request) {
                tracing::debug!(%error, "what a repeated change named is not given back");
            }
        }
    }
}

#[cfg(test)]
#[path = "proofs_tests.rs"]
mod tests;
