//! Sessions of a volume that another process serves (`docs/design/network.md`).

use super::Source;
use super::lenders::Lenders;
use crate::options::served::Served;
use siftfs_base::{Error, Result, errno};
use siftfs_placement::PrivateLogs;
use siftfs_proto::{
    Cache, Completion, Credentials, FileService, Holder, Identity, Opening, Reply, Request,
};
use siftfs_remote::{Claim, Client, Lasting, Trust, Ways, transport};
use siftfs_status::Server;
use std::sync::{Arc, OnceLock};

/// Why a server at a TCP port opens no session for a kernel.
const NO_KERNEL: &str = "over TCP without keys nothing says which machine's kernel it is: let the server ask for \
                         keys, or mount the volume on its machine by its unix socket";

/// Why a server does not carry out what is about the whole volume.
const NO_ADMINISTRATOR: &str = "the server does this for an administrator's key alone, whose line there has role=admin and squash=none, \
                                and neither maps nor a subtree";

/// What there is in the place of `subdir=`.
const NO_SUBDIR: &str = "subdir= would be searched as the volume's owner; a directory for this machine is subtree= in the \
                         line of its key";

/// A volume that another process serves.
pub struct RemoteVolume {
    served: Served,
    /// How the server is known over TCP, and what it is shown.
    trust: Trust,
    /// The mount's session, which commands go by, too.
    front: OnceLock<Arc<Lasting>>,
    /// Those of its programs' private logs.
    lenders: Arc<Lenders>,
}

impl RemoteVolume {
    /// The volume at this address. Nothing is asked yet.
    pub fn new(served: &Served, trust: &Trust) -> Self {
        let (front, lenders) = Default::default();
        Self { served: served.clone(), trust: trust.clone(), front, lenders }
    }

    /// A session for one command, or one that reads.
    fn connect(&self, opening: Opening) -> Result<Client> {
        let Served { addresses, volume, .. } = &self.served;
        // The command has asked its user about a server that is not known.
        let ways = Ways::trusting(addresses, &self.trust);
        let client = ways.open(volume, claim(opening));
        client.map_err(|error| self.explain(error))
    }

    /// The kernel's session, which comes back when the server was lost.
    fn last(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Lasting> {
        let Served { addresses, volume, patience } = &self.served;
        let (ways, about) = (Ways::trusting(addresses, &self.trust), (&**volume, claim(opening)));
        let lasting = Lasting::connect(ways, about, Some(cache), *patience);
        lasting.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Refused(why)
                if self.served.addresses.are_remote() && why.contains(" speaks for ") =>
            {
                Error::Refused(format!("{why}; {NO_KERNEL}"))
            }
            error => error,
        }
    }

    /// How the connection is.
    pub fn server(&self) -> Server {
        let client = self.front.get();
        let addresses = &self.served.addresses;
        Server {
            address: client.map_or(addresses.first(), |client| client.address()).to_string(),
            addresses: addresses.all().iter().map(ToString::to_string).collect(),
            peer: client.map_or_else(String::new, |client| client.peer()),
            lost: client.and_then(|client| client.lost()).map(|error| error.to_string()),
            calls: client.map_or(0, |client| client.calls()),
            placement: self.lenders.placement(),
        }
    }

    /// The mount is gone, and its session ends.
    ///
    /// # Errors
    /// The server was lost before, or did not make durable what programs had not.
    pub fn close(&self) -> std::result::Result<(), String> {
        let Some(client) = self.front.get() else { return Ok(()) };
        if let Some(error) = client.lost() {
            return Err(format!(
                "it is unmounted; its server was lost before ({error}): what programs had not made durable \
                 may not be there"
            ));
        }
        client.leave();
        match client.kept() {
            0 => Ok(()),
            kept => Err(format!(
                "it is unmounted; its server did not say that {kept} changes are durable: they may not be there"
            )),
        }
    }

    fn session(&self) -> Result<&Lasting> {
        self.front.get().map(|client| &**client).ok_or_else(|| errno(libc::ENOTCONN))
    }
}

/// For whom a session is to speak, as a server is asked.
fn claim(opening: Opening) -> Claim {
    match opening.identity {
        Identity::Kernel | Identity::Machine | Identity::Program => Claim::Kernel,
        Identity::User { .. } if opening.administrator => Claim::Owner,
        Identity::User { uid, gid, rights } => Claim::User { uid, gid, rights },
    }
}

impl Source for RemoteVolume {
    fn open(&self, opening: Opening) -> Result<Arc<dyn FileService>> {
        let owner = claim(opening.clone()) == Claim::Owner;
        self.connect(opening).map(|client| Arc::new(client) as _).map_err(|error| match error {
            Error::Refused(why) if owner && self.served.addresses.are_remote() => {
                Error::Refused(format!("{why}; {NO_SUBDIR}"))
            }
            error => error,
        })
    }

    fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        let client = Arc::new(self.last(opening, cache)?);
        // Commands go by the first one.
        let _ = self.front.set(client.clone());
        Ok(match client.checks() {
            true => siftfs_fuse::vouching(client),
            false => client,
        })
    }

    fn checks_callers(&self) -> bool {
        self.front.get().is_some_and(|client| client.checks())
    }

    /// By a connection of its own, beside the mount's. The opening is the server's to say.
    fn lender(&self, _: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let address = self.served.addresses.first();
        match self.session()?.lend(address, &transport(), holder) {
            Ok(client) => Ok(self.lenders.session(client)),
            Err(error) => {
                self.lenders.refused(&error);
                Err(error)
            }
        }
    }

    fn registry(&self) -> Option<Arc<PrivateLogs>> {
        None
    }

    fn has_path(&self) -> bool {
        false
    }
}

/// What commands ask goes by the mount's own session: another one would count as a front end that
/// may change what the kernel knows.
impl FileService for RemoteVolume {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let whole = matches!(
            req,
            Request::Status | Request::SyncAll | Request::Checkpoint | Request::Trim { .. }
        );
        match self.session()?.call_now(cred, req) {
            Err(Error::Posix(libc::EPERM)) if whole => Err(Error::Refused(NO_ADMINISTRATOR.into())),
            result => result,
        }
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match self.session() {
            Ok(client) => client.submit(cred, req, done),
            Err(error) => done(Err(error)),
        }
    }
}
