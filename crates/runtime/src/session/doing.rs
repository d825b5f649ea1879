//! What one request of a session changes, and owes to the others for it.

use crate::state::sharing::{By, Notices};
use crate::state::tree::references::SessionId;
use siftfs_proto::Owed;
use std::cell::RefCell;

/// A request that is being carried out.
pub(crate) struct Doing {
    session: Option<SessionId>,
    owed: RefCell<Owed>,
}

impl Doing {
    /// A request of `session`.
    pub(crate) fn of(session: SessionId) -> Self {
        Self { session: Some(session), owed: RefCell::default() }
    }

    /// What the background does.
    pub(crate) fn background() -> Self {
        Self { session: None, owed: RefCell::default() }
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
            let owed = notices.send();
            self.owed.borrow_mut().add(owed);
        }
    }

    /// What the request owes.
    pub(crate) fn owed(self) -> Owed {
        self.owed.into_inner()
    }
}
