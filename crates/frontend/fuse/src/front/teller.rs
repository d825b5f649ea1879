//! The thread that takes back what the kernel knows.
//!
//! Attributes take no lock, so the thread that made the change says those, and with that most
//! notices are done. Names and pages are asked for by other threads, which may wait in the kernel
//! for locks that programs hold. So this thread counts a notice as acknowledged when they are done,
//! or when that is not needed any more:
//!
//! * Names count until their time is over.
//! * Two mounts that write to one file may each wait for the other's page: one that is locked by a
//!   WRITE whose answer waits. Such a page holds nothing valid, before or after. So pages are not
//!   waited for beyond a moment if a write of the same file waits here.
//! * Pages that count no more because the server was lost keep nobody waiting.
//! * A kernel that does not drop pages for much longer would show old bytes for ever: its
//!   connection is ended.

use crate::front::asker::{Asker, Done, Job};
use crate::kernel::convert::node;
use crate::kernel::notify::Notifier;
use crate::mount::connection;
use crate::mount::mountinfo::MountEntry;
use crate::pages::invalidator::Name;
use crate::pages::known::{Known, LATER, Stamp, TERM};
use crate::pages::names::is_gone;
use crate::pages::own_mount::Take;
use crate::pages::unserved;
use crate::serve::server::{Server, knows};
use siftfs_base::{InodeNr, errno};
use siftfs_proto::{Attr, Credentials, FileKind, Notice, Owed, Request};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often the thread looks at what it waits for.
const LOOK: Duration = Duration::from_millis(10);
/// A kernel may take that long to drop pages. A READ that waits for a slow disk keeps its page.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the thread is told.
enum Word {
    /// Something changed whose attributes are taken back, but for those of inodes that the kernel
    /// does not know yet.
    Changed {
        notice: Notice,
        unknown: Vec<InodeNr>,
    },
    /// The kernel may know all of this.
    All(Notice),
    /// The server was lost, and answers again: the kernel may have old pages of this file.
    Lost(Attr),
    /// What was asked for under this number is done.
    Done(u64),
    /// It could not be asked for: the mount has no place, as one that was detached while files are
    /// open.
    NoPlace(u64),
    End,
}

/// The way to the thread. It ends when this is dropped.
pub(crate) struct Teller {
    server: Weak<Server>,
    known: Arc<Known>,
    notifier: Notifier,
    words: Sender<Word>,
    entry: MountEntry,
}

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = self.words.send(Word::End);
    }
}

impl Teller {
    /// Starts the thread of the mount `entry`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(
        server: &Arc<Server>,
        notifier: Notifier,
        entry: MountEntry,
    ) -> io::Result<Self> {
        let (words, told) = channel();
        let way = notifier.clone();
        let known = server.shares.known.clone().expect("a mount with a front has this");
        let tell = words.clone();
        let done: Done = Arc::new(move |number, done| {
            let word = if done { Word::Done(number) } else { Word::NoPlace(number) };
            let _ = tell.send(word);
        });
        let asker = Asker::new(entry.clone(), server.sections.resetting(), done);
        let desk = Desk {
            server: Arc::downgrade(server),
            known: known.clone(),
            words: words.clone(),
            notifier,
            entry: entry.clone(),
            asker,
            number: 0,
            waiting: HashMap::new(),
            unknown: Vec::new(),
        };
        std::thread::Builder::new().name("siftfs-told".into()).spawn(move || desk.run(&told))?;
        Ok(Self { server: Arc::downgrade(server), known, notifier: way, words, entry })
    }

    /// May others change what the kernel knows? If not, what it is told need not run out.
    pub(super) fn shares(&self, others: bool) {
        self.known.share(others);
    }

    /// Takes back all that the kernel was told while it was alone.
    pub(super) fn forget_all(&self, notice: Notice) {
        let _ = self.words.send(Word::All(notice));
    }

    /// What is told from here on counts for this time at most.
    pub(super) fn trust(&self, time: Duration) {
        self.known.trust(time);
    }

    /// Nobody may answer: what the kernel has of these inodes counts no more. Without attributes of
    /// a directory no path is walked. Pages are dropped by threads that wait for nobody but
    /// requests of the file, and keep nothing of a daemon that is killed meanwhile.
    pub(super) fn doubt(&self, inodes: &[(InodeNr, u32)]) {
        for (ino, _) in inodes {
            forget(&self.notifier, *ino);
        }
        let Some(server) = self.server.upgrade() else { return };
        let files = inodes.iter().copied();
        let files = files.filter_map(|it| Some((it, self.known.has_pages(it.0)?)));
        let files: Vec<((InodeNr, u32), Stamp)> = files.collect();
        let (known, entry) = (self.known.clone(), self.entry.clone());
        let body = move || {
            let begun = Instant::now();
            let numbers = files.iter().map(|(it, _)| unserved::file(*it)).collect();
            let count = files.len();
            let dropped = move |at: usize| {
                files.get(at).iter().for_each(|((ino, _), at)| known.dropped(*ino, *at));
            };
            let dropped: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(dropped);
            server.unserved.drop_pages(&entry, numbers, &dropped);
            tracing::debug!(files = count, after = ?begun.elapsed(), "the kernel has forgotten");
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-doubts".into()).spawn(body) {
            tracing::error!(%error, "no thread: the kernel may show files as they were");
        }
    }

    /// Nobody tells anything any more, because the server is lost, or was: the kernel is to ask
    /// about these inodes, and keeps no page of them. A page may be locked by a request that waits
    /// for the server, so the pages are dropped later, by threads that keep nothing of a daemon
    /// that is killed meanwhile.
    pub(super) fn lost(&self, inodes: &[InodeNr]) {
        self.known.share(true);
        for ino in inodes {
            forget(&self.notifier, *ino);
        }
        let has_pages = |ino: &InodeNr| self.known.has_pages(*ino).is_some();
        let pages: Vec<InodeNr> = inodes.iter().copied().filter(has_pages).collect();
        if pages.is_empty() {
            return;
        }
        let (server, notifier) = (self.server.clone(), self.notifier.clone());
        let words = self.words.clone();
        let body = move || drop_when_it_answers(&server, &notifier, &words, &pages);
        if let Err(error) = std::thread::Builder::new().name("siftfs-lost".into()).spawn(body) {
            tracing::error!(%error, "no thread: the kernel may show files as they were");
        }
    }

    /// Takes back what `notice` names. Answers that are given from here on count for no longer than
    /// other front ends have left the directory alone.
    pub(super) fn tell(&self, notice: Notice) {
        for (ino, _, _) in &notice.data {
            self.known.takes(*ino);
        }
        self.tell_own(notice);
    }

    /// As [`Teller::tell`], of a write of this kernel's own, which it may have lost.
    pub(super) fn tell_own(&self, notice: Notice) {
        // It takes no lock and looks at no page. The kernel waits for an inode alone that it is
        // just freeing, for which it waits for nobody who waits for the caller.
        let attributes = notice.attributes.iter().copied();
        let unknown: Vec<_> = attributes.filter(|ino| !forget(&self.notifier, *ino)).collect();
        let names = names_of(&self.known, &notice);
        let rest = !unknown.is_empty()
            || names.values().any(|names| !names.is_empty())
            || !files_of(&self.known, &notice).is_empty();
        if rest {
            // A mount that has ended shows nothing: the notice comes back, and is dropped.
            let _ = self.words.send(Word::Changed { notice, unknown });
        }
    }
}

/// Has the pages of some inodes dropped as soon as the server answers again. If the session is
/// over, every request is an error: nothing waits then, and a notification drops them.
fn drop_when_it_answers(
    server: &Weak<Server>,
    notifier: &Notifier,
    words: &Sender<Word>,
    inodes: &[InodeNr],
) {
    for ino in inodes {
        let Some(server) = server.upgrade() else { return };
        let get = Request::GetAttr { file: (*ino).into() };
        match server.entry(&Credentials::default(), get) {
            // A mount that has ended shows nothing.
            Ok(attr) => drop(words.send(Word::Lost(attr))),
            Err(error) if error == errno(libc::ESTALE) || error == errno(libc::ENOENT) => {}
            Err(_) => {
                if let Err(error) = notifier.drop_pages(node(*ino), 0, 0)
                    && !is_gone(&error)
                {
                    tracing::error!(ino, %error, "the kernel may show a file as it was");
                }
            }
        }
    }
}

/// The kernel asks for attributes before it uses those that it has. False if it does not know the
/// inode: it may just be learning of it from an answer with older ones, and is to be told again.
fn forget(notifier: &Notifier, ino: InodeNr) -> bool {
    match notifier.forget_attributes(node(ino)) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return false,
        Err(error) if !is_gone(&error) => {
            tracing::error!(ino, %error, "the kernel may show a file's attributes as they were");
        }
        _ => {}
    }
    true
}

/// The names of a notice by their directories: those that the kernel may know, and until when.
fn names_of<'a>(known: &Known, notice: &'a Notice) -> BTreeMap<InodeNr, Vec<(&'a [u8], Instant)>> {
    let mut dirs: BTreeMap<InodeNr, Vec<&[u8]>> = BTreeMap::new();
    for (dir, name) in &notice.names {
        dirs.entry(*dir).or_default().push(name);
    }
    let changed =
        |(dir, names): (InodeNr, Vec<&'a [u8]>)| (dir, known.changed(dir, names.into_iter()));
    dirs.into_iter().map(changed).collect()
}

/// What is to be taken back of the files and directories of a notice, of which the kernel may have
/// more than attributes.
fn files_of(known: &Known, notice: &Notice) -> BTreeMap<InodeNr, Take> {
    let mut files = BTreeMap::new();
    for ino in notice.sizes.iter().filter(|ino| known.is_open(**ino)) {
        files.insert(*ino, Take::Attributes);
    }
    for (ino, _, _) in notice.data.iter().filter(|(ino, _, _)| known.has_pages(*ino).is_some()) {
        files.insert(*ino, Take::Pages);
    }
    for (dir, _) in notice.names.iter().filter(|(dir, _)| known.has_pages(*dir).is_some()) {
        files.insert(*dir, Take::Listing);
    }
    files
}

/// Something that the kernel was asked for.
struct Waiting {
    /// Acknowledged when all that share it are dropped.
    _notice: Arc<Notice>,
    since: Instant,
    what: What,
}

enum What {
    /// Names of a directory that count until then.
    Names(InodeNr, Instant),
    /// A file's pages, which the kernel had at that moment.
    Pages(InodeNr, Option<Stamp>),
    /// The same, from before the server was lost.
    Lost(InodeNr, Option<Stamp>),
}

struct Desk {
    server: Weak<Server>,
    known: Arc<Known>,
    words: Sender<Word>,
    notifier: Notifier,
    entry: MountEntry,
    asker: Asker,
    number: u64,
    waiting: HashMap<u64, Waiting>,
    /// Inodes that the kernel did not know yet, though it was told of them, and until when that
    /// may be.
    unknown: Vec<(InodeNr, Instant, Arc<Notice>)>,
}

impl Desk {
    fn run(mut self, told: &Receiver<Word>) {
        loop {
            let word = match self.waiting.is_empty() && self.unknown.is_empty() {
                true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => told.recv_timeout(LOOK),
            };
            match word {
                Ok(Word::Changed { notice, unknown }) => self.changed(notice, unknown),
                Ok(Word::All(notice)) => self.all(notice),
                Ok(Word::Lost(attr)) => self.lost(&attr),
                Ok(Word::Done(number)) => self.done(number),
                Ok(Word::NoPlace(number)) => self.notify(number),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    fn changed(&mut self, notice: Notice, unknown: Vec<InodeNr>) {
        let Some(server) = self.server.upgrade() else { return };
        let notice = Arc::new(notice);
        let until = Instant::now() + TERM;
        self.unknown.extend(unknown.into_iter().map(|ino| (ino, until, notice.clone())));
        self.names(&server, &notice);
        for (ino, take) in files_of(&self.known, &notice) {
            self.ask(&server, (ino, take), &notice);
        }
    }

    /// What the kernel was told while it was alone counts for a day: it is waited for without end,
    /// and the one that waits gives up.
    fn all(&mut self, notice: Notice) {
        let Some(server) = self.server.upgrade() else { return };
        let notice = Arc::new(notice);
        // Answers from before are on their way to the kernel. Nobody else waits: it was alone.
        std::thread::sleep(LATER);
        let until = Instant::now() + TERM;
        for ino in &notice.attributes {
            if !forget(&self.notifier, *ino) {
                self.unknown.push((*ino, until, notice.clone()));
            }
        }
        let mut dirs: BTreeMap<InodeNr, Vec<Name>> = BTreeMap::new();
        for (dir, name) in &notice.names {
            dirs.entry(*dir).or_default().push((*dir, name.clone()));
        }
        for names in dirs.into_values() {
            let notice = notice.clone();
            server.forget_names(names, Vec::new(), Box::new(move || drop(notice)));
        }
    }

    /// Has the kernel look names up again that it may know.
    fn names(&mut self, server: &Server, notice: &Arc<Notice>) {
        for (dir, known) in names_of(&self.known, notice) {
            let Some(until) = known.iter().map(|(_, until)| *until).max() else { continue };
            let names = known.into_iter().map(|(name, _)| (dir, name.to_vec())).collect();
            let number = self.wait(notice, What::Names(dir, until));
            let words = self.words.clone();
            let then = Box::new(move || drop(words.send(Word::Done(number))));
            server.forget_names(names, Vec::new(), then);
        }
    }

    fn ask(&mut self, server: &Server, (ino, take): (InodeNr, Take), notice: &Arc<Notice>) {
        let at = self.known.has_pages(ino);
        let get = Request::GetAttr { file: ino.into() };
        // What is gone shows nothing.
        let Ok(attr) = server.entry(&Credentials::default(), get) else { return };
        let number = self.wait(notice, What::Pages(ino, at.filter(|_| take != Take::Attributes)));
        self.ask_for(number, &attr, take);
    }

    fn ask_for(&self, number: u64, attr: &Attr, take: Take) {
        let node = node(attr.ino);
        let generation = if node == ROOT { 0 } else { attr.generation };
        self.asker.ask(Job { number, node, generation, take });
    }

    /// Has the kernel drop pages from before the server was lost.
    fn lost(&mut self, attr: &Attr) {
        let Some(at) = self.known.has_pages(attr.ino) else { return };
        let mut owed = Owed::default();
        let nobody_waits = Arc::new(Notice::new(&mut owed));
        let number = self.wait(&nobody_waits, What::Lost(attr.ino, Some(at)));
        let take = match attr.kind {
            FileKind::Directory => Take::Listing,
            _ => Take::Pages,
        };
        self.ask_for(number, attr, take);
    }

    fn wait(&mut self, notice: &Arc<Notice>, what: What) -> u64 {
        self.number += 1;
        let waiting = Waiting { _notice: notice.clone(), since: Instant::now(), what };
        self.waiting.insert(self.number, waiting);
        self.number
    }

    /// Pages can only be taken back by a notification. It waits for pages, so it has a thread.
    fn notify(&mut self, number: u64) {
        let waiting = self.waiting.get(&number).map(|waiting| &waiting.what);
        let Some(What::Pages(ino, Some(_)) | What::Lost(ino, Some(_))) = waiting else {
            return self.done(number);
        };
        let (notifier, words, ino) = (self.notifier.clone(), self.words.clone(), *ino);
        let body = move || {
            if let Err(error) = notifier.drop_pages(node(ino), 0, 0)
                && !is_gone(&error)
            {
                tracing::error!(ino, %error, "the kernel does not drop its pages");
            }
            let _ = words.send(Word::Done(number));
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-notice".into()).spawn(body) {
            tracing::error!(%error, ino, "no thread: the kernel may show a file as it was");
            self.done(number);
        }
    }

    fn done(&mut self, number: u64) {
        let what = self.waiting.remove(&number).map(|waiting| waiting.what);
        if let Some(What::Pages(ino, Some(at)) | What::Lost(ino, Some(at))) = what {
            self.known.dropped(ino, at);
        }
    }

    /// Lets go of what need not be waited for any more.
    fn look(&mut self) {
        let unknown = std::mem::take(&mut self.unknown);
        if let Some(server) = self.server.upgrade().filter(|_| !unknown.is_empty()) {
            for (ino, until, notice) in unknown {
                // A kernel that has forgotten the inode says so.
                if knows(&server, ino) && !forget(&self.notifier, ino) && Instant::now() < until {
                    self.unknown.push((ino, until, notice));
                }
            }
        }
        let (now, known) = (Instant::now(), &self.known);
        let mut silent = None;
        self.waiting.retain(|_, waiting| match waiting.what {
            What::Names(dir, until) => {
                if until <= now {
                    known.leave_alone(dir);
                }
                now < until
            }
            What::Pages(ino, _) => {
                let waits = waiting.since + LOOK > now || !known.is_held_back(ino);
                if waits && waiting.since + PATIENCE <= now {
                    silent = Some(ino);
                }
                waits
            }
            What::Lost(..) => true,
        });
        if let Some(ino) = silent {
            self.abort(ino);
        }
    }

    fn abort(&mut self, ino: InodeNr) {
        let dir = self.entry.mount_point.display();
        tracing::error!(
            ino,
            %dir,
            "the kernel keeps pages that another mount changed: this mount's connection ends"
        );
        if let Err(error) = connection::abort(&self.entry) {
            tracing::error!(%error, %dir, "the connection could not be ended");
        }
        self.waiting.clear();
    }
}

/// The node of the mount's root, which has no generation in the kernel.
const ROOT: u64 = 1;
