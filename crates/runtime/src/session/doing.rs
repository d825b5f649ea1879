//! What one request of a session changes, and owes to the others for it.

use crate::state::State;
use crate::state::leases::{Does, Touch};
use crate::state::sharing::{By, Notices};
use crate::state::step::Step;
use crate::state::tree::references::SessionId;
use siftfs_base::InodeNr;
use siftfs_proto::{Origin, Owed, Target};
use std::cell::RefCell;
use std::sync::Arc;

/// A request that is being carried out.
pub(crate) struct Doing {
    pub(super) session: Option<SessionId>,
    /// The file that it names, if it touches one, and what it does with it.
    file: Option<(Target, Does)>,
    /// Which call of a client it is, if that may have to be known after a crash (rule R53).
    origin: Option<Arc<Origin>>,
    owed: RefCell<Owed>,
}

impl Doing {
    /// A request of `session`, and the file that it names.
    pub(crate) fn of(session: SessionId, file: Option<(Target, Does)>) -> Self {
        Self { session: Some(session), file, origin: None, owed: RefCell::default() }
    }

    /// The same, of this call of a client.
    pub(crate) fn from(self, origin: Option<&Arc<Origin>>) -> Self {
        Self { origin: origin.cloned(), ..self }
    }

    /// Which call of a client it is.
    pub(crate) fn origin(&self) -> Option<&Arc<Origin>> {
        self.origin.as_ref()
    }

    /// What the background does.
    pub(crate) fn background() -> Self {
        Self { session: None, file: None, origin: None, owed: RefCell::default() }
    }

    /// The request touches the file that it names (rule R48). Under the same hold of the lock as
    /// what it does with the file.
    ///
    /// # Errors
    /// Stops if another session's write lease has to end before.
    pub(crate) fn touch(&self, st: &mut State) -> Step<()> {
        match (self.session, self.file) {
            (Some(session), Some((file, does))) => {
                st.leases.touch_file(&st.metadata.tree, Touch { session, does }, file)
            }
            _ => Ok(()),
        }
    }

    /// The request touches what a name stands for, if anything.
    ///
    /// # Errors
    /// As [`Doing::touch`], and those of a lookup.
    pub(crate) fn touch_name(&self, st: &mut State, name: (InodeNr, &[u8])) -> Step<()> {
        match self.session {
            Some(session) => {
                let touch = Touch { session, does: Does::Anything };
                st.leases.touch_name(&mut st.metadata.tree, touch, name)
            }
            None => Ok(()),
        }
    }

    /// For a change that the session's own kernel knows of by itself, if it asked for it.
    pub(crate) fn told(&self) -> By {
        By { session: self.session, untold: false }
    }

    /// For a change that the session's own kernel has to be told, too.
    pub(crate) fn untold(&self) -> By {
        By { session: self.session, untold: true }
    }

    /// Tells other sessions of a change, without the state lock.
    pub(crate) fn tell(&self, notices: Option<Notices>) {
        if let Some(notices) = notices {
            self.owe(notices.send());
        }
    }

    /// Adds to what the request owes.
    pub(crate) fn owe(&self, owed: Owed) {
        self.owed.borrow_mut().add(owed);
    }

    /// What the request owes.
    pub(crate) fn owed(self) -> Owed {
        self.owed.into_inner()
    }
}
