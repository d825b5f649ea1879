//! Sessions of a volume that another process serves (`docs/design/network.md`).

use super::Source;
use super::lenders::Lenders;
use crate::options::served::Served;
use siftfs_base::{Error, Result, errno};
use siftfs_placement::{Address, PrivateLogs};
use siftfs_proto::{
    Cache, Completion, Credentials, FileService, Holder, Identity, Opening, Reply, Request,
};
use siftfs_remote::{Claim, Client, Trust, transport};
use siftfs_status::Server;
use std::sync::{Arc, OnceLock};

/// Why a server at a TCP port opens no session for a kernel.
const NO_KERNEL: &str = "over TCP without keys nothing says which machine's kernel it is: let the server ask for \
                         keys, or mount the volume on its machine by its unix socket";

/// A volume that another process serves.
pub struct RemoteVolume {
    served: Served,
    /// How the server is known over TCP, and what it is shown.
    trust: Trust,
    /// The mount's session, which commands go by, too.
    front: OnceLock<Arc<Client>>,
    /// Those of its programs' private logs.
    lenders: Arc<Lenders>,
}

impl RemoteVolume {
    /// The volume at this address. Nothing is asked yet.
    pub fn new(served: &Served, trust: &Trust) -> Self {
        let (front, lenders) = Default::default();
        Self { served: served.clone(), trust: trust.clone(), front, lenders }
    }

    fn connect(&self, opening: Opening, cache: Option<Arc<dyn Cache>>) -> Result<Arc<Client>> {
        let Served { address, volume } = &self.served;
        let claim = claim(opening);
        let kernel = claim == Claim::Kernel;
        let options = transport();
        // The command has asked its user about a server that is not known.
        let secured = self.trust.secure(address, &options, None)?;
        let reached = (&options, secured.as_ref());
        let client = Client::connect(address, reached, volume, claim, cache);
        client.map(Arc::new).map_err(|error| match (address, error) {
            (Address::Tcp { .. }, Error::Refused(why))
                if kernel && why.contains(" speaks for ") =>
            {
                Error::Refused(format!("{why}; {NO_KERNEL}"))
            }
            (_, error) => error,
        })
    }

    /// How the connection is.
    pub fn server(&self) -> Server {
        let client = self.front.get();
        Server {
            address: self.served.address.to_string(),
            peer: client.map_or_else(String::new, |client| client.peer().into()),
            lost: client.and_then(|client| client.lost()).map(|error| error.to_string()),
            calls: client.map_or(0, |client| client.calls()),
            placement: self.lenders.placement(),
        }
    }

    /// The mount is gone, and its session ends.
    ///
    /// # Errors
    /// The server was lost before.
    pub fn close(&self) -> std::result::Result<(), String> {
        match self.front.get().and_then(|client| client.lost()) {
            None => {
                self.front.get().iter().for_each(|client| client.leave());
                Ok(())
            }
            Some(error) => Err(format!(
                "it is unmounted; its server was lost before ({error}): what programs had not made durable \
                 may not be there"
            )),
        }
    }

    fn session(&self) -> Result<&Client> {
        self.front.get().map(|client| &**client).ok_or_else(|| errno(libc::ENOTCONN))
    }
}

/// For whom a session is to speak, as a server is asked.
fn claim(opening: Opening) -> Claim {
    match opening.identity {
        Identity::Kernel => Claim::Kernel,
        Identity::User { .. } if opening.administrator => Claim::Owner,
        Identity::User { uid, gid, rights } => Claim::User { uid, gid, rights },
    }
}

impl Source for RemoteVolume {
    fn open(&self, opening: Opening) -> Result<Arc<dyn FileService>> {
        Ok(self.connect(opening, None)?)
    }

    fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        let client = self.connect(opening, Some(cache))?;
        // Commands go by the first one.
        let _ = self.front.set(client.clone());
        Ok(client)
    }

    /// By a connection of its own. The opening is the server's to say.
    fn lender(&self, _: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let Served { address, volume } = &self.served;
        match Client::lend(address, &transport(), volume, holder) {
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
        self.session()?.call(cred, req)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match self.session() {
            Ok(client) => client.submit(cred, req, done),
            Err(error) => done(Err(error)),
        }
    }
}
