//! Files that a program reads and writes where their volume's storage is, at a target, without the
//! host in between.

use crate::{
    Address, Claim, Error, File, Result, Secured, Shared, TransportOptions, Volume, usual,
};
use siftfs_base::InodeNr;
use siftfs_direct::{Reach, Session};
use siftfs_placement::TargetPlace;
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, Handle, Holder, Opening};
use siftfs_remote::Client;
use std::sync::Arc;

pub use siftfs_direct::{AtomicSection, DirectFile};

/// A session for such files. The host grants their blocks to this program, as long as nobody else
/// wants the file; the program then goes to the target, with one round trip for a write and its
/// fdatasync. All else goes to the host, and so does everything while others use the file
/// (`docs/design/target.md`), and what a file's first few calls are: one that is opened for those
/// alone has nothing granted ([`DirectFile::is_direct`] asks at once).
///
/// ```no_run
/// # fn main() -> siftfs::Result<()> {
/// let direct = siftfs::Direct::connect("unix:/run/siftfs/mail.sock", "")?;
/// let file = direct.create("/queue", 0o640)?;
/// file.write_at(0, b"first")?;
/// file.sync_data()
/// # }
/// ```
///
/// It ends when it is dropped; its files are of no use after that.
pub struct Direct {
    session: Session,
    /// The names of the volume, in the same session.
    names: Volume,
}

impl Direct {
    /// A session of a volume that this process has open, at a target.
    ///
    /// # Errors
    /// `Refused` if the volume is not at a target; `ENFILE` if too many sessions are open on it.
    pub fn of(volume: &Volume) -> Result<Self> {
        let local = volume.local()?;
        let Some(place) = local.target_place() else {
            let what = "this process has the volume's storage itself: direct files are for a volume \
                        whose storage a target has";
            return Err(Error::Refused(what.into()));
        };
        Self::open(Box::new(move |_| Ok(place.clone())), |holder| {
            local.holder(Opening::owner(), holder)
        })
    }

    /// A session of a volume that another process serves, as [`Volume::connect_to`] opens one. The
    /// target is reached where the server says that it is, with this machine's keys. When the
    /// server or the connection is lost, so are the session and its files.
    ///
    /// # Errors
    /// As [`Volume::connect_to`].
    pub fn connect(address: &str, volume: &str) -> Result<Self> {
        let address = address.parse()?;
        let (claim, options, secured) = usual(&address)?;
        Self::connect_with(&address, (&options, secured.as_ref()), (volume, claim), reach())
    }

    /// As [`Direct::connect`], as [`Volume::connect_with`] reaches a server; `reach` says how the
    /// target is reached that the server names.
    ///
    /// # Errors
    /// As [`Volume::connect_with`].
    pub fn connect_with(
        address: &Address,
        reached: (&TransportOptions, Option<&Secured>),
        (volume, claim): (&str, Claim),
        reach: Reach,
    ) -> Result<Self> {
        Self::open(reach, |holder| {
            Ok(Arc::new(Client::connect_to_hold(address, reached, volume, claim, holder)?))
        })
    }

    fn open(
        reach: Reach,
        open: impl FnOnce(Arc<dyn Holder>) -> Result<Arc<dyn siftfs_proto::FileService>>,
    ) -> Result<Self> {
        let session = Session::open(reach, open)?.patient();
        let service = session.service().clone();
        let shared = Arc::new(Shared { service, cred: Credentials::default() });
        let names = Volume { local: None, remote: None, shared };
        Ok(Self { session, names })
    }

    /// Creates a regular file, as [`Volume::create`] does, and opens it.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create(&self, path: &str, perm: u16) -> Result<DirectFile> {
        Ok(self.direct(self.names.create(path, perm)?))
    }

    /// Opens a regular file, to read and write it.
    ///
    /// # Errors
    /// As [`Volume::open_file`].
    pub fn open_file(&self, path: &str) -> Result<DirectFile> {
        Ok(self.direct(self.names.open_file(path)?))
    }

    /// Opens a regular file, to read it. Any number of programs do so at the target at once, as
    /// long as nobody changes the file; what one has changed all read when that was answered.
    ///
    /// # Errors
    /// As [`Volume::open_file`]; writes are `EBADF`.
    pub fn open_to_read(&self, path: &str) -> Result<DirectFile> {
        let file = self.names.open_for(path, Access::Read)?;
        let (handle, ino) = taken(file);
        Ok(self.session.file_to_read(handle, ino))
    }

    fn direct(&self, file: File) -> DirectFile {
        let (handle, ino) = taken(file);
        self.session.file(handle, ino)
    }

    /// The volume, in this session: names, attributes, and all else that [`Volume`] has.
    pub fn names(&self) -> &Volume {
        &self.names
    }
}

/// The handle of a file, which is another one's to close, and its inode.
fn taken(file: File) -> (Handle, InodeNr) {
    let taken = (file.handle(), file.ino());
    file.closed();
    taken
}

/// Where a server says that the target is, with this machine's keys.
fn reach() -> Reach {
    Box::new(|target| {
        let named = TargetPlace::parse(target).and_then(std::result::Result::ok);
        let refuse = || Error::Refused(format!("{target} is no target's volume"));
        let (address, volume) = named.ok_or_else(refuse)?;
        let (_, options, secured) = usual(&address)?;
        Ok(TargetPlace { address, volume, options, secured })
    })
}
