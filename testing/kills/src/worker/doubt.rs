//! Calls of which nobody can say whether they were carried out, because the server of the volume
//! died before it answered: what the tree must show then. Of every other call the mount can say it,
//! and waits.

use super::{Numbers, Worker};
use crate::calls::{Prepared, Refused};
use crate::signals::Signals;
use crate::tree::walk;
use crate::ways::How;
use siftfs_base::InodeNr;
use siftfs_model::{Action, Op, Oracle};
use siftfs_proto::{Handle, Request, XattrMode};
use std::sync::atomic::Ordering;

/// What may be said of a call instead of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// EIO: what several files or names share, bytes at the end of a file, and what is refused also
    /// where it was carried out before. It was carried out as a whole, or not at all.
    Whole,
    /// A command: that the server is lost. It does not wait.
    Command,
    /// ESTALE: a file without a name is gone when its server has died since.
    Nameless,
}

/// A call that may be left without an answer, and what its worker knew before.
pub(super) struct Doubt {
    kind: Kind,
    /// The server's life when the call began.
    then: u64,
    oracle: Oracle,
    numbers: Numbers,
}

fn kind(prepared: &Prepared) -> Option<Kind> {
    match &prepared.request {
        Request::SyncAll | Request::Checkpoint => Some(Kind::Command),
        _ if prepared.is_of_a_nameless_file() => Some(Kind::Nameless),
        Request::Publish { .. } | Request::Write { append: true, .. } => Some(Kind::Whole),
        Request::Write { .. } if prepared.how == How::Section => Some(Kind::Whole),
        Request::SetXattr { mode: XattrMode::Create, .. } | Request::RemoveXattr { .. } => {
            Some(Kind::Whole)
        }
        _ => None,
    }
}

impl Worker {
    /// To be asked before a call on a served volume.
    pub(super) fn doubt(&self, prepared: &Prepared, signals: &Signals) -> Option<Doubt> {
        let kind = kind(prepared).filter(|_| self.served)?;
        let (oracle, numbers) = (self.oracle.clone(), self.numbers.clone());
        Some(Doubt { kind, then: signals.server_now(), oracle, numbers })
    }

    /// The call was refused as one may be whose server died. Answers whether the load goes on;
    /// `None` if the refusal has another reason.
    ///
    /// # Errors
    /// The tree shows neither that it was carried out nor that it was not.
    pub(super) fn settle(
        &mut self,
        doubt: Doubt,
        refused: &Refused,
        signals: &Signals,
    ) -> Result<Option<bool>, String> {
        let lost = signals.server_was_lost(doubt.then);
        let explained = match (doubt.kind, refused) {
            (Kind::Command, Refused::Command(said)) => lost && said.contains("lost"),
            // A publish may name such a file, too.
            (Kind::Nameless | Kind::Whole, Refused::Errno(libc::ESTALE)) => lost,
            (Kind::Nameless | Kind::Whole, Refused::Errno(libc::EIO)) => lost,
            _ => false,
        };
        if !explained {
            return Ok(None);
        }
        signals.uncertain.fetch_add(1, Ordering::SeqCst);
        if signals.is_dying() {
            return Ok(Some(false));
        }
        match doubt.kind {
            Kind::Command => {}
            Kind::Nameless => self.go_back(doubt),
            Kind::Whole => {
                let tree = match walk(&self.place) {
                    Err(_) if signals.is_dying() => return Ok(Some(false)),
                    tree => tree?,
                };
                // All files were read just now.
                self.oracle.forget_access_times();
                let with = self.differences(&tree);
                if with.is_empty() {
                    return Ok(Some(true));
                }
                self.go_back(doubt);
                self.oracle.forget_access_times();
                if let Some(without) = self.differences(&tree).first() {
                    let with = with.first().map(String::as_str).unwrap_or_default();
                    return Err(format!("neither done ({with}) nor not done ({without})"));
                }
            }
        }
        self.story.push("  not carried out: its server died".into());
        Ok(Some(true))
    }

    /// What has no name is gone with its server (`docs/design/lost-server.md`), and its number may
    /// be another file's: the worker closes what it has open without a name.
    pub(super) fn leave_nameless(&mut self, signals: &Signals) {
        let now = signals.server_now();
        if std::mem::replace(&mut self.server, now) == now {
            return;
        }
        let model = self.oracle.model();
        let nameless = |(_, ino): &(u64, InodeNr)| model.names_of(*ino).is_empty();
        let handles: Vec<_> = model.handles().filter(nameless).map(|(handle, _)| handle).collect();
        for handle in handles {
            self.handles.close(handle);
            let release = Request::Release { handle: Handle(handle) };
            let op = Op { id: 0, action: Action::Call(self.cred.clone(), release) };
            let _outcome = self.oracle.begin(&op);
            self.oracle.returned(&op);
        }
    }

    fn go_back(&mut self, doubt: Doubt) {
        (self.oracle, self.numbers) = (doubt.oracle, doubt.numbers);
    }
}
