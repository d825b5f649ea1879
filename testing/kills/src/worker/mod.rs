//! One thread of the load: generated operations, carried out on the mount and on a model of the
//! thread's own, whose oracle notes what was acknowledged and judges what a recovery brought back.

mod doubt;

use crate::calls::{Handles, Place, Prepared, Promise, Refused, SHARED, SHARED_NAME};
use crate::signals::{Signals, is_gone};
use crate::ways::How;
use rustix::io::Errno;
use siftfs_base::{Error, InodeNr};
use siftfs_model::compare::{attr_difference, plain_difference, seek_is_sane};
use siftfs_model::{
    Action, FIRST_INO, Generator, Ids, Model, Op, Oracle, Outcome, Profile, Rng, Tree, mix, pattern,
};
use siftfs_proto::{Attr, Credentials, ROOT_INO, Reply, Request, WriteData};
use siftfs_rig::descriptors::own_table;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

/// Files that a worker holds open at most.
const OPEN_MAX: usize = 24;
/// With this many inodes a worker makes no more: the numbers below [`FIRST_INO`] are for those that
/// a round begins with.
const FULL: usize = 900;

/// Which inode of the volume is which of the model. stat(2) shows no generation, so each birth of a
/// number that was seen counts as one. The volume reuses a number only when its former inode's
/// removal is durable (rule R5), so a number that is found always means its latest birth.
#[derive(Clone, Default)]
struct Numbers {
    ids: Ids,
    births: BTreeMap<InodeNr, u32>,
}

impl Numbers {
    fn learn(&mut self, model: InodeNr, found: &Attr) -> Result<(), String> {
        let birth = self.births.entry(found.ino).and_modify(|b| *b += 1).or_insert(1);
        self.ids.learn(model, &Attr { generation: *birth, ..found.clone() })
    }

    /// The tree with the birth of every inode as its generation.
    fn dated(&self, tree: &Tree) -> Tree {
        let mut tree = tree.clone();
        for (ino, seen) in &mut tree.nodes {
            seen.attr.generation = self.births.get(ino).copied().unwrap_or(0);
        }
        tree
    }
}

/// A thread's part of the volume.
pub struct Worker {
    /// Where the worker's model lies.
    pub place: Place,
    oracle: Oracle,
    numbers: Numbers,
    handles: Handles,
    cred: Credentials,
    story: Vec<String>,
    /// Any write may be a read as well, for the access time ([`Load::writeback`]).
    writes_read: bool,
    /// The volume is a server's, which may die.
    served: bool,
    /// The server's life when the worker last looked.
    server: u64,
    /// Files with bytes that such a kernel may have kept back since their last fsync. A synchronous
    /// write has it send the bytes of that write alone, as on ext4.
    held: BTreeSet<InodeNr>,
}

/// What one round asks of a worker.
#[derive(Clone, Debug)]
pub struct Load {
    /// Seed of its operations.
    pub seed: u64,
    /// What they are made of.
    pub profile: Profile,
    /// Writes with O_DSYNC or O_SYNC, in percent.
    pub synchronous: u64,
    /// The kernel keeps written pages back, and reads a page that it changes in part.
    pub writeback: bool,
    /// The volume is a server's, which may die.
    pub served: bool,
    /// Files are made without a name.
    pub nameless: bool,
    /// All that is answered is found afterwards, durable or not: the mount's daemon dies, and the
    /// server lives, which has it in memory.
    pub keeps_answered: bool,
}

/// Does it make an inode?
fn makes(request: &Request) -> bool {
    matches!(
        request,
        Request::Create { .. }
            | Request::TmpFile { .. }
            | Request::MakeNode { .. }
            | Request::MakeDir { .. }
            | Request::Symlink { .. }
    )
}

impl Worker {
    /// A worker whose part of the volume is `tree`, all of it durable. `umask` is this process's.
    ///
    /// # Errors
    /// The tree has no shared directory, or more inodes than the model has numbers for.
    pub fn adopt(place: Place, tree: &Tree, umask: u16) -> Result<Self, String> {
        let shared = tree.nodes.get(&ROOT_INO).and_then(|n| n.entries.get(SHARED_NAME));
        let shared = *shared.ok_or("the tree has no shared directory")?;
        let own = |ino: &&InodeNr| ![ROOT_INO, shared].contains(ino);
        let mut renamed: BTreeMap<InodeNr, InodeNr> =
            tree.nodes.keys().filter(own).copied().zip(SHARED + 1..).collect();
        renamed.extend([(ROOT_INO, ROOT_INO), (shared, SHARED)]);
        if renamed.values().any(|n| *n >= FIRST_INO) {
            return Err(format!("{} inodes are more than a worker can have", renamed.len()));
        }
        let number = |ino: &InodeNr| renamed.get(ino).copied().ok_or("a name leads nowhere");
        let (mut own, mut numbers) = (Tree::default(), Numbers::default());
        for (ino, seen) in &tree.nodes {
            let mut node = seen.clone();
            node.attr.ino = number(ino)?;
            for child in node.entries.values_mut() {
                *child = number(child)?;
            }
            for (dir, _) in &mut node.names {
                *dir = number(dir)?;
            }
            numbers.learn(node.attr.ino, &Attr { ino: *ino, ..seen.attr.clone() })?;
            own.nodes.insert(node.attr.ino, node);
        }
        let oracle = Oracle::new(Model::adopt(&own)).with_unreported_commits();
        let cred = Credentials { umask, ..Credentials::default() };
        Ok(Self {
            place,
            oracle,
            numbers,
            handles: Handles::default(),
            cred,
            story: Vec::new(),
            writes_read: false,
            served: false,
            server: 0,
            held: BTreeSet::new(),
        })
    }

    /// Works until it is told to stop, the host is gone, or something is wrong, which
    /// [`Signals::failure`] then has. The calling thread is a new one, and ends afterwards: no
    /// process that is started elsewhere meanwhile may begin with the files that are opened here,
    /// and wait for the host to close them ([`siftfs_rig::descriptors`]).
    pub fn run(&mut self, load: &Load, signals: &Signals) {
        if let Err(e) = own_table() {
            return signals.fail(format!("worker {}: own descriptors: {e}", self.place.worker));
        }
        // They are numbers of this thread's table: whatever happens, no other thread closes them.
        let work = AssertUnwindSafe(|| self.work(load, signals));
        let ended = catch_unwind(work);
        self.handles.clear();
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn work(&mut self, load: &Load, signals: &Signals) {
        let mut generator = Generator::new(load.seed, load.profile.clone());
        let mut rng = Rng::new(mix(load.seed));
        while !signals.stopped() {
            match self.next(&mut generator, &mut rng, load, signals) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => signals.fail(format!("worker {}: {why}", self.place.worker)),
            }
        }
    }

    /// Carries out `count` operations, for tests.
    ///
    /// # Errors
    /// How model and file system differ.
    pub fn steps(&mut self, count: usize, load: &Load) -> Result<(), String> {
        let (signals, mut rng) = (Signals::default(), Rng::new(mix(load.seed)));
        let mut generator = Generator::new(load.seed, load.profile.clone());
        for _ in 0..count {
            self.next(&mut generator, &mut rng, load, &signals)?;
        }
        self.handles.clear();
        Ok(())
    }

    /// The operations of the present round.
    pub fn story(&self) -> &[String] {
        &self.story
    }

    fn next(
        &mut self,
        generator: &mut Generator,
        rng: &mut Rng,
        load: &Load,
        signals: &Signals,
    ) -> Result<bool, String> {
        self.writes_read = load.writeback;
        self.served = load.served;
        if load.keeps_answered {
            self.all_is_kept();
        }
        self.leave_nameless(signals);
        let mut op = generator.next(self.oracle.model());
        if let Some(handle) = self.handles.first().filter(|_| self.handles.len() > OPEN_MAX) {
            op.action = Action::Call(self.cred.clone(), Request::Release { handle });
        }
        let unwanted = |r: &Request| matches!(r, Request::TmpFile { .. }) && !load.nameless;
        if op.request().is_some_and(unwanted) {
            return Ok(true);
        }
        if op.request().is_some_and(makes) && self.oracle.model().nodes().count() >= FULL {
            return Ok(true);
        }
        let direct = rng.chance(load.synchronous / 2) && self.put_inside(&mut op);
        self.mark(&mut op, load.seed);
        let Some(mut prepared) = self.place.prepare(self.oracle.model(), &op) else {
            return Ok(true);
        };
        let write = matches!(prepared.request, Request::Write { .. });
        let promise = match direct || write && rng.chance(load.synchronous) {
            false => Promise::None,
            true if rng.chance(50) => Promise::All,
            true => Promise::Data,
        };
        prepared.how = if direct { How::direct(rng) } else { How::draw(rng, promise, load.served) };
        if rng.chance(20)
            && let Err(Refused::Command(why)) = prepared.stranger()
        {
            return Err(why);
        }
        self.step(op.id, &prepared, promise, signals)
    }

    /// Makes a write one inside its file, if it can be: those alone are carried out past the
    /// kernel's cache, and completed apart.
    fn put_inside(&self, op: &mut Op) -> bool {
        let Action::Call(_, Request::Write { file, offset, data, append: false, .. }) =
            &mut op.action
        else {
            return false;
        };
        let model = self.oracle.model();
        let node = model.target(*file).ok().and_then(|ino| model.node(ino));
        let size = node.map_or(0, |node| node.content.size());
        if size == 0 {
            return false;
        }
        *offset %= size;
        let len = usize::try_from(size - *offset).map_or(data.len(), |left| left.min(data.len()));
        *data = vec![0; len].into();
        len > 0
    }

    /// Gives written bytes a pattern that no other worker and no other round writes.
    fn mark(&self, op: &mut Op, seed: u64) {
        if let Action::Call(_, Request::Write { offset, data, .. }) = &mut op.action {
            let id = mix(seed).wrapping_add(u64::from(op.id));
            let bytes = pattern(id, *offset, data.len() as u64);
            *data = WriteData::copy_of(*offset, &bytes);
        }
    }

    /// True if the load goes on.
    fn step(
        &mut self,
        id: u32,
        prepared: &Prepared,
        promise: Promise,
        signals: &Signals,
    ) -> Result<bool, String> {
        let request = &prepared.request;
        let op = Op { id, action: Action::Call(self.cred.clone(), request.clone()) };
        let shown = if promise == Promise::None && prepared.how == How::Call {
            format!("{op:?}")
        } else {
            format!("{op:?} {promise:?} {:?}", prepared.how)
        };
        self.story.push(shown.clone());
        let before = match request {
            Request::Seek { file, .. } => {
                let model = self.oracle.model();
                let node = model.target(*file).ok().and_then(|ino| model.node(ino));
                node.map(|n| n.content.clone())
            }
            _ => None,
        };
        let doubt = self.doubt(prepared, signals);
        let want = self.begin(&op, prepared.how);
        let found = prepared.run(&self.place, &mut self.handles, promise);
        if let (Some(doubt), Err(refused)) = (doubt, &found) {
            let settled = self.settle(doubt, refused, signals);
            let settled = settled.map_err(|e| format!("{shown}: {refused:?}: {e}"))?;
            if let Some(goes_on) = settled {
                return Ok(goes_on);
            }
        }
        if signals.is_dying() && (cut_off(&want, &found) || lost_pages(prepared.how, &found)) {
            self.story.push("  under way when the host died".into());
            return Ok(false);
        }
        let difference = match (request, before) {
            (Request::Seek { offset, whence, .. }, Some(content)) => {
                seek_is_sane(&content, *offset, *whence, &as_reply(found.clone()))
            }
            _ => self.difference(&want, &found),
        };
        difference.map_err(|e| format!("{shown}: {e}{}", prepared.look_again()))?;
        signals.calls.fetch_add(1, Ordering::SeqCst);
        if found.is_ok() {
            let promise = self.promised(&op, promise, prepared.stays_open());
            self.returned(&op, promise, signals);
            self.read_beside(&op, prepared.how);
        }
        self.forget(&op, &want);
        Ok(true)
    }

    /// All that was answered is durable, or as good as that.
    pub fn all_is_kept(&mut self) {
        let op = Op { id: 0, action: Action::Call(self.cred.clone(), Request::SyncAll) };
        let _outcome = self.oracle.begin(&op);
        self.oracle.returned(&op);
    }

    /// Tells the oracle what begins: a write in the parts in which it may reach the mount.
    fn begin(&mut self, op: &Op, how: How) -> Outcome {
        let outcome = self.begin_in_parts(op, how);
        // A kernel that keeps written pages back sends them in an order of its own: with a
        // synchronous write those of that write, and others later.
        if let (Some(Request::Write { file, .. }), true) = (op.request(), self.writes_read)
            && let Ok(ino) = self.oracle.model().target(*file)
        {
            self.oracle.came_in_pieces(ino);
        }
        outcome
    }

    fn begin_in_parts(&mut self, op: &Op, how: How) -> Outcome {
        let Some(parts) = op.request().and_then(|r| divided(self.oracle.model(), r, how)) else {
            return self.oracle.begin(op);
        };
        let [_, outcome] = parts.map(|request| {
            let action = Action::Call(self.cred.clone(), request);
            self.oracle.begin(&Op { id: op.id, action })
        });
        outcome
    }

    /// Some ways of writing read what they wrote, or what they will write beside: the file's access
    /// time is another then.
    fn read_beside(&mut self, op: &Op, how: How) {
        let reads = how.reads() || self.writes_read;
        if let (Some(Request::Write { file, .. }), true) = (op.request(), reads) {
            let read = Request::Read { file: *file, offset: 0, len: 1 };
            let read = Op { id: op.id, action: Action::Call(self.cred.clone(), read) };
            let _outcome = self.oracle.begin(&read);
            self.oracle.returned(&read);
        }
    }

    /// What a write promises of the whole file, which is what the oracle knows: nothing, if the
    /// kernel may hold other bytes of it back.
    fn promised(&mut self, op: &Op, promise: Promise, stays_open: bool) -> Promise {
        match op.request() {
            Some(Request::Fsync { file, .. }) => {
                if let Ok(ino) = self.oracle.model().target(*file) {
                    self.held.remove(&ino);
                }
            }
            Some(Request::SyncAll | Request::Checkpoint) => self.held.clear(),
            Some(Request::Write { file, .. }) if self.writes_read => {
                let Ok(ino) = self.oracle.model().target(*file) else { return promise };
                if self.held.contains(&ino) {
                    return Promise::None;
                }
                if stays_open && promise == Promise::None {
                    self.held.insert(ino);
                }
            }
            _ => {}
        }
        promise
    }

    /// Tells the oracle what is durable now.
    fn returned(&mut self, op: &Op, promise: Promise, signals: &Signals) {
        self.oracle.returned(op);
        let mut acknowledged = matches!(
            op.request(),
            Some(Request::Fsync { .. } | Request::SyncAll | Request::Checkpoint)
        );
        if let (Some(Request::Write { file, .. }), true) = (op.request(), promise != Promise::None)
            && let Ok(ino) = self.oracle.model().target(*file)
        {
            let request = Request::Fsync { file: ino.into(), datasync: promise == Promise::Data };
            let sync = Op { id: op.id, action: Action::Call(self.cred.clone(), request) };
            let _outcome = self.oracle.begin(&sync);
            self.oracle.returned(&sync);
            acknowledged = true;
        }
        signals.acknowledged.fetch_add(u64::from(acknowledged), Ordering::SeqCst);
    }

    /// A kernel keeps references of its own: in the model, open handles alone hold an inode.
    fn forget(&mut self, op: &Op, want: &Outcome) {
        let (Ok(Reply::Entry(attr)) | Ok(Reply::Created { attr, .. })) = want else { return };
        let Some(count) = self.oracle.model().node(attr.ino).map(|n| n.refs) else { return };
        let request = Request::Forget { ino: attr.ino, count };
        let _outcome =
            self.oracle.begin(&Op { id: op.id, action: Action::Call(self.cred.clone(), request) });
    }

    fn difference(&mut self, want: &Outcome, found: &Result<Reply, Refused>) -> Result<(), String> {
        match (want, found) {
            (Ok(Reply::Entry(a)), Ok(Reply::Entry(b)))
            | (Ok(Reply::Attr(a)), Ok(Reply::Attr(b)))
            | (Ok(Reply::Created { attr: a, .. }), Ok(Reply::Created { attr: b, .. })) => {
                self.same_inode(a.ino, b)
            }
            // Which of several reasons is given, the kernel decides before it asks.
            (Err(_), Err(Refused::Errno(_))) => Ok(()),
            (Ok(Reply::Checkpoint(_)), Ok(Reply::Done)) => Ok(()),
            // A program is not told which names changed.
            (Ok(Reply::Published { .. }), Ok(Reply::Done)) => Ok(()),
            (_, Err(Refused::Command(why))) => Err(why.clone()),
            _ => plain_difference(want, &as_reply(found.clone())).map_or(Ok(()), Err),
        }
    }

    fn same_inode(&mut self, model: InodeNr, found: &Attr) -> Result<(), String> {
        // The root's number is the model's, and it has no link for the shared directory.
        if model == ROOT_INO {
            return Ok(());
        }
        match self.numbers.ids.service_of(model) {
            None => self.numbers.learn(model, found)?,
            Some(known) if known == found.ino => {}
            Some(known) => return Err(format!("inode {known} answers as {}", found.ino)),
        }
        let node = self.oracle.model().node(model).ok_or("the model lost an inode")?;
        attr_difference(node, found).map_or(Ok(()), Err)
    }

    /// Every violation of the durability oracle's clauses by `tree`, which a recovery brought back.
    pub fn violations(&self, tree: &Tree) -> Vec<String> {
        let found = self.oracle.violations(&self.numbers.dated(tree), &self.numbers.ids);
        if found.is_empty() {
            return found;
        }
        // No call returned the number of what was being made when the host died. Its name tells.
        match self.with_unseen(tree) {
            Some(numbers)
                if self.oracle.violations(&numbers.dated(tree), &numbers.ids).is_empty() =>
            {
                Vec::new()
            }
            _ => found,
        }
    }

    /// The numbers, with what `tree` shows under the names of inodes whose number no call returned.
    fn with_unseen(&self, tree: &Tree) -> Option<Numbers> {
        let model = self.oracle.model();
        let mut numbers = self.numbers.clone();
        let mut learned = false;
        for (ino, _) in model.nodes().filter(|(i, _)| self.numbers.ids.service_of(*i).is_none()) {
            for (dir, name) in model.names_of(ino) {
                let dir = self.numbers.ids.service_of(dir)?;
                let entry = tree.nodes.get(&dir).and_then(|n| n.entries.get(&name));
                if let Some(seen) = entry.and_then(|i| tree.nodes.get(i)) {
                    numbers.learn(ino, &seen.attr).ok()?;
                    learned = true;
                }
            }
        }
        learned.then_some(numbers)
    }

    /// All differences of `tree` to the model's present state.
    pub fn differences(&self, tree: &Tree) -> Vec<String> {
        let ids = &self.numbers.ids;
        self.oracle
            .model()
            .tree_differences(&self.numbers.dated(tree), &|seen| ids.model_of(&seen.attr))
    }
}

/// The kernel's cache divides a write that begins inside a page which it has not read: the first
/// request ends with the page. If that makes the file longer, the size may come back (clause L1).
/// Answers that request, and the whole.
fn divided(model: &Model, request: &Request, how: How) -> Option<[Request; 2]> {
    let Request::Write { file, offset, data, append, kill_priv, .. } = request else { return None };
    let size = model.node(model.target(*file).ok()?)?.content.size();
    let offset = if *append { size } else { *offset };
    let (page_end, end) = (offset.next_multiple_of(4096), offset + data.len() as u64);
    // Past the cache nothing is divided.
    if matches!(how, How::Copy | How::Section)
        || page_end == offset
        || page_end >= end
        || page_end <= size
    {
        return None;
    }
    let bytes = data.clone().into_bytes();
    let part = |len: usize| Request::Write {
        file: *file,
        offset,
        data: WriteData::copy_of(offset, &bytes[..len]),
        append: false,
        kill_priv: *kill_priv,
        times: true,
    };
    Some([part((page_end - offset) as usize), part(bytes.len())])
}

/// The host died during the call. The kernel may divide a write or a read; then the first part was
/// answered.
fn cut_off(want: &Outcome, found: &Result<Reply, Refused>) -> bool {
    match (want, found) {
        (Ok(Reply::Written { len: want }), Ok(Reply::Written { len })) => len < want,
        (Ok(Reply::Data(want)), Ok(Reply::Data(found))) => {
            found.len() < want.len() && want.starts_with(found)
        }
        (_, found) => found.as_ref().is_err_and(says_gone),
    }
}

/// Pages that could not be sent or filled are EIO, and do not say that the host has died.
fn lost_pages(how: How, found: &Result<Reply, Refused>) -> bool {
    how.reads() && *found == Err(Refused::Errno(libc::EIO))
}

/// The mount has no daemon any more. ECANCELED answers a request that was on its way into a ring
/// when the daemon died.
fn says_gone(e: &Refused) -> bool {
    match e {
        Refused::Errno(e) => is_gone(Errno::from_raw_os_error(*e)),
        Refused::Command(_) => true,
    }
}

fn as_reply(found: Result<Reply, Refused>) -> Result<Reply, Error> {
    found.map_err(|e| match e {
        Refused::Errno(e) => Error::Posix(e),
        Refused::Command(why) => Error::Link(why),
    })
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
