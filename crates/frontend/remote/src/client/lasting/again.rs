//! A call whose answer did not come, and that is about to be made again: whether that may be, and
//! what its caller is told where nobody can say what became of it.

use super::call::name;
use super::kind::{self, Kind};
use super::{Shared, Using};
use siftfs_base::{Error, Result, errno};
use siftfs_calls::Back;
use siftfs_proto::{Credentials, FileService, Reply, Request, XattrMode};

/// What a call went by that was not answered.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// The server.
    instance: u64,
    /// How often servers had said by then that they know nothing of the session.
    forgotten: u64,
}

impl Before {
    pub fn of(using: &Using<'_>) -> Self {
        Self { instance: using.instance, forgotten: using.forgotten }
    }

    /// Has a server said since that it knows nothing of the session? It may have said so by a
    /// connection that is lost, too.
    fn is_forgotten(self, using: &Using<'_>) -> bool {
        self.forgotten != using.forgotten
    }
}

impl Shared {
    /// The server was lost before it answered a call, which is about to be made again, at the one
    /// that is there now: may it have been carried out already, without being answered as it was?
    ///
    /// # Errors
    /// It is not to be made again.
    pub(super) fn may_repeat(
        &self,
        using: &Using<'_>,
        (before, sent): (Before, u32),
        (kind, cred): (Kind, &Credentials),
        req: &mut Request,
    ) -> Result<bool> {
        let back = using.client.terms.back;
        let certain = self.answers_again(using, (before, sent));
        // Others may have seen since what it did, and have changed that.
        let known = certain || !before.is_forgotten(using);
        match kind {
            Kind::Reads | Kind::GivesBack => {}
            Kind::Absolute if known => {}
            Kind::Once if known && (certain || matches!(back, Back::Again | Back::Clean)) => {}
            Kind::Appends if certain => {}
            Kind::Appends if known => self.may_append_again(using, cred, req)?,
            Kind::Bound => return Err(errno(libc::EIO)),
            Kind::Absolute | Kind::Once | Kind::Appends | Kind::Final => {
                tracing::error!(
                    request = name(req),
                    "nobody can say whether a change was made: its server died, or ended the session, before it \
                     answered"
                );
                return Err(errno(libc::EIO));
            }
        }
        Ok(!certain)
    }

    /// Is a call whose answer did not come answered as it was, if it was carried out? It is by the
    /// same server, and where the server before has carried out nothing that it had not answered.
    fn answers_again(&self, using: &Using<'_>, (before, sent): (Before, u32)) -> bool {
        let same = using.instance == before.instance && using.client.terms.back == Back::Same;
        let same = same && !before.is_forgotten(using);
        // A server that ended in order may have carried out what a connection brought before the
        // last one.
        same || (self.lock().had_answers && sent == 1)
    }

    /// A change was refused that may have been made before, by a server that died: what its caller
    /// is told. An attribute that is there with another value was not made by it. Of one that has
    /// the value, or is not there to be removed, nobody can say whose that is.
    pub(super) fn which_refusal(
        &self,
        using: &Using<'_>,
        cred: &Credentials,
        req: &Request,
        refused: Error,
    ) -> Error {
        if let Request::SetXattr { file, name, value, .. } = req {
            let mut ask = Request::GetXattr { file: *file, name: name.clone() };
            let there = kind::exchange(&mut ask, |own| self.opens.server(own))
                .and_then(|()| using.client.call(cred, ask))
                .and_then(Reply::data);
            if there.is_ok_and(|found| found != *value) {
                return refused;
            }
        }
        tracing::error!(
            request = name(req),
            "nobody can say whether an attribute was changed: its server died before it answered"
        );
        errno(libc::EIO)
    }

    /// Bytes at the end of a file: if the file is no longer than the kernel believed, they are not
    /// there.
    ///
    /// # Errors
    /// They may be there.
    fn may_append_again(&self, using: &Using<'_>, cred: &Credentials, req: &Request) -> Result<()> {
        let Request::Append { file, end, .. } = req else { return Err(errno(libc::EIO)) };
        let mut ask = Request::GetAttr { file: *file };
        let attr = kind::exchange(&mut ask, |own| self.opens.server(own))
            .and_then(|()| using.client.call(cred, ask))
            .and_then(Reply::attr);
        match attr {
            Ok(attr) if attr.size <= *end => Ok(()),
            // The connection is lost once more: the call says so.
            Err(Error::Link(_)) => Ok(()),
            Ok(_) => {
                tracing::error!(?file, "nobody can say whether bytes were appended to a file");
                Err(errno(libc::EIO))
            }
            Err(error) => Err(error),
        }
    }
}

/// Would a change that was made before be refused so?
pub(super) fn was_done(req: &Request, error: &Error) -> bool {
    let is = |number| *error == errno(number);
    match req {
        Request::RemoveXattr { .. } => is(libc::ENODATA),
        Request::SetXattr { mode: XattrMode::Create, .. } => is(libc::EEXIST),
        _ => false,
    }
}
