//! What an answer tells a kernel that others may take something back from, and how long that
//! counts.

use crate::kernel::convert::inode;
use crate::kernel::owing::owe;
use crate::kernel::reply::{Answer, Token, Valid};
use crate::kernel::request::{Message, Operation};
use crate::pages::known::Known;
use crate::serve::page_debts::PageDebts;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::{Notice, Owed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A name of which a request is going to tell the kernel.
pub(crate) struct Told<'a> {
    known: &'a Known,
    dir: InodeNr,
    name: &'a [u8],
}

/// What a mount keeps because others of its volume may change what its kernel knows.
pub(crate) struct Shares {
    /// What the kernel may know; none for a mount from which nobody takes anything back.
    pub(crate) known: Option<Arc<Known>>,
    /// What pages that came owe.
    pub(crate) page_debts: PageDebts,
    /// Takes back what the kernel knows.
    pub(crate) front: OnceLock<Arc<dyn TakesBack>>,
}

/// Takes back what the own kernel knows.
pub(crate) trait TakesBack: Send + Sync {
    /// What `notice` names, by the numbers that the kernel has.
    fn take_back_own(&self, notice: Notice);
}

impl Shares {
    /// Of a mount that may be one of several, or whose files may be leased, or neither.
    pub(crate) fn new(shared: bool, leased: bool) -> Self {
        let known = (shared || leased).then(|| Arc::new(Known::new(shared)));
        Self { known, page_debts: PageDebts::default(), front: OnceLock::new() }
    }

    /// May others take back what the kernel knows?
    pub(crate) fn has_front(&self) -> bool {
        self.known.is_some()
    }

    /// May others change anything?
    pub(crate) fn may_be_more(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_shared())
    }

    /// An answer is about to bring pages of the file, or of a directory's listing.
    pub(crate) fn note_pages(&self, ino: InodeNr) {
        if let Some(known) = &self.known {
            known.pages(ino);
        }
    }

    /// What is sent counts as long as other front ends let it. Where none changes names, only a
    /// WRITE may have to wait, for pages of the own kernel ([`Shares::wrote`]).
    pub(crate) fn shared(&self, token: Token, message: &Message<'_>) -> Token {
        match &self.known {
            Some(known) if known.is_shared() => {
                token.shared().holds(Valid::both(known.attributes()))
            }
            Some(_) if matches!(message.op, Operation::Write { .. }) => token.shared(),
            _ => token,
        }
    }

    /// A request about names in `dir` is about to be carried out.
    pub(crate) fn tells<'a>(&'a self, dir: u64, op: &Operation<'a>) -> Option<Told<'a>> {
        use Operation as O;
        let known = self.known.as_deref().filter(|known| known.is_shared())?;
        let dir = inode(dir).ok()?;
        match *op {
            O::Lookup { name }
            | O::MakeNode { name, .. }
            | O::MakeDir { name, .. }
            | O::Symlink { name, .. }
            | O::Link { name, .. }
            | O::Create { name, .. } => {
                known.asked(dir, name);
                Some(Told { known, dir, name })
            }
            O::Rename { name, new_dir, new_name, .. } => {
                // The kernel moves what it knows, and keeps how long it counts.
                known.moves((dir, name), (inode(new_dir).ok()?, new_name));
                None
            }
            _ => None,
        }
    }

    /// The answer of a WRITE through the kernel's cache may have to wait for other front ends, as
    /// theirs may for pages that it has locked.
    pub(crate) fn writes(&self, ino: InodeNr, token: Token) -> Token {
        /// Gives the place back.
        struct HeldBack(Arc<Known>, InodeNr);
        impl Drop for HeldBack {
            fn drop(&mut self) {
                self.0.answered(self.1);
            }
        }
        match self.known.clone() {
            None => token,
            Some(known) => token.when_held_back(Box::new(move || {
                known.hold_back(ino);
                Box::new(HeldBack(known, ino))
            })),
        }
    }

    /// A READ is under way until it is answered.
    pub(crate) fn reads(&self, ino: InodeNr, token: Token) -> Token {
        /// Says so.
        struct Reading(Arc<Known>, InodeNr);
        impl Drop for Reading {
            fn drop(&mut self) {
                self.0.read(self.1);
            }
        }
        match self.known.as_ref().filter(|known| known.watches(ino)).cloned() {
            None => token,
            Some(known) => {
                known.reads(ino);
                token.keeps(Box::new(Reading(known, ino)))
            }
        }
    }

    /// A write through the kernel's cache was carried out. If the kernel may have lost it, it is
    /// told of it as another front end is, before the answer.
    pub(crate) fn wrote(&self, ino: InodeNr, (start, end): (u64, u64)) {
        let lost = self.known.as_ref().is_some_and(|known| known.may_have_lost(ino));
        if let Some(front) = self.front.get().filter(|_| lost) {
            let mut owed = Owed::default();
            let mut notice = Notice::new(&mut owed);
            notice.data.push((ino, start, end));
            front.take_back_own(notice);
            owe(owed);
        }
    }

    /// How long entries of the directory count that an answer is going to bring. The kernel counts
    /// from when it takes each of them, which is as late as the program that lists the directory
    /// makes it: with others they count for no time.
    pub(crate) fn lists(&self, dir: InodeNr) -> Valid {
        self.note_pages(dir);
        match &self.known {
            Some(known) if !known.is_alone() => Valid::NEVER,
            Some(known) => Valid::both(known.attributes()),
            None => Valid::ALONE,
        }
    }
}

/// The answer of a request that was noted by [`Shares::tells`]: a name that is missing is not
/// remembered, because nobody would tell the kernel when it appears.
pub(crate) fn told(
    noted: Option<Told<'_>>,
    result: Result<Answer>,
    token: Token,
) -> (Result<Answer>, Token) {
    let Some(Told { known, dir, name }) = noted else { return (result, token) };
    let names = match &result {
        Ok(Answer::Entry(_) | Answer::Created(..)) => known.told(dir, name),
        _ => {
            known.untold(dir, name);
            Duration::ZERO
        }
    };
    let result = match result {
        Ok(Answer::Missing) => Err::<_, Error>(errno(libc::ENOENT)),
        other => other,
    };
    (result, token.holds(Valid { names, attributes: known.attributes() }))
}
