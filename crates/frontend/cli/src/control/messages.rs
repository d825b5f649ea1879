//! How commands speak with the daemon of a mount: JSON documents, each behind its length, on a
//! unix socket named after the mount's device number, so that it can be found even when the
//! mount itself is busy or dead, and after the volume. A daemon with several mounts has one socket,
//! with a name for each of them.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use siftfs_fuse::MountEntry;
use siftfs_placement::{RbdPlace, principal};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of these messages; both sides refuse another one.
pub const VERSION: u32 = 6;
/// Largest message in bytes.
const MAX_MESSAGE: u32 = 4 << 20;
const DIRECTORY: &str = "/run/siftfs";

/// What a command asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// The status document.
    Status,
    /// Which files are open for writing: a list of node id and generation.
    Writers,
    /// What the daemon itself was told of pages that could not be written, once: an errno or null.
    Lost,
    /// Make everything durable.
    Sync,
    /// Bring everything into the area.
    Checkpoint,
    /// Give the space of all free blocks back.
    Trim,
    /// Answer at once with a [`Left`], with others as time goes by, and in the end with something
    /// else: when the volume is closed, or, with a [`Gone`], when the mount that is asked about is
    /// gone and the volume has others. The first answer says that the last will come, however soon
    /// the mount goes. The caller is about to take the mount away.
    WaitClosed,
    /// As [`Op::WaitClosed`], for a command that waits for another one to take the mount away.
    Watch,
    /// Change options of the mount.
    Remount(Change),
    /// Make one more mount of the volume. The answer is an [`Attaching`].
    Attach(Attach),
    /// Hold the volume for a snapshot. The answer is a [`Freezing`]. The caller says with a
    /// [`Thaw`] that its command is done; then, or when the term is over, a [`Thawed`] follows.
    Freeze(Freeze),
}

/// The longest term of a hold.
pub const MOST_WITHIN: Duration = Duration::from_secs(300);

/// A hold for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// How many seconds changes may wait: 1 to those of [`MOST_WITHIN`].
    pub within_s: u64,
}

/// The volume is plain ext4 from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freezing {
    /// Do changes wait until the end of the hold? A volume that was opened read-only takes no
    /// changes, and has no hold.
    pub held: bool,
}

/// The command under a hold is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thaw {}

/// A hold has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thawed {
    /// Did it last until the command was done, so that the snapshot is one?
    pub whole: bool,
}

/// One more mount of a volume that the daemon has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// As `-o` has them.
    pub options: Vec<String>,
}

/// What comes of [`Op::Attach`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attaching {
    /// The mount is made. Its descriptor comes behind this message: the caller puts it on its
    /// directory, closes it and says with an [`Attached`] that it has, which is answered when the
    /// mount is served.
    Made {
        /// What the user is to know.
        warnings: Vec<String>,
    },
    /// The last mount has gone, and the volume is being closed.
    Closing,
}

/// What became of a mount whose descriptor was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// It is where it belongs.
    pub done: bool,
}

/// A mount is gone, and the volume stays mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Where.
    pub stays_on: Vec<PathBuf>,
}

/// Options that change while a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// As `-o` has them.
    pub options: Vec<String>,
    /// mount(8) says all of the kernel's options: one that it does not name is off.
    pub complete: bool,
    /// Say whether that can be done, and change nothing.
    pub only_check: bool,
}

/// How much is still to be done before the volume is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// About this many bytes are not in the area yet.
    pub left_bytes: u64,
    /// The process that the daemon waits for, in words for people.
    #[serde(default)]
    pub waiting: Option<String>,
    /// Does the kernel still have the mount, anywhere? If not, the volume is being closed. Where
    /// the question names no mount, it is about all.
    #[serde(default)]
    pub mounted: Option<bool>,
    /// Is a command about to take the mount away?
    #[serde(default)]
    pub leaving: bool,
}

/// A command's message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ask {
    /// [`VERSION`].
    pub version: u32,
    /// Which mount it is about; `None`: the volume.
    pub mount: Option<Device>,
    /// What is asked.
    pub op: Op,
}

/// The device number of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its major part.
    pub major: u32,
    /// Its minor part.
    pub minor: u32,
}

impl Device {
    /// The number of this mount.
    pub fn of(mount: &MountEntry) -> Self {
        Self { major: mount.major, minor: mount.minor }
    }
}

/// The daemon's answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// What failed; `None` when nothing did.
    pub error: Option<String>,
    /// The document asked for.
    #[serde(default)]
    pub value: serde_json::Value,
}

/// The directory of all sockets.
pub fn directory() -> PathBuf {
    PathBuf::from(DIRECTORY)
}

/// The socket of a mount.
pub fn socket_path(mount: &MountEntry) -> PathBuf {
    directory().join(format!("{}-{}.sock", mount.major, mount.minor))
}

/// The socket where a mount's programs show their tokens for private logs.
pub fn logs_socket_path(mount: &MountEntry) -> PathBuf {
    directory().join(format!("{}-{}.logs", mount.major, mount.minor))
}

/// The second name of a mount's socket, after the volume: it is found there when the mount has gone
/// and the daemon still closes the volume.
///
/// # Errors
/// The volume's metadata cannot be read.
pub fn volume_socket_path(volume: &Path) -> io::Result<PathBuf> {
    if let Some(Ok(image)) = RbdPlace::parse(&principal(volume)) {
        // Names of images are longer than those of sockets may be.
        let mut hasher = DefaultHasher::new();
        image.absolute()?.to_string().hash(&mut hasher);
        return Ok(directory().join(format!("rbd-{:016x}.sock", hasher.finish())));
    }
    let meta = std::fs::metadata(principal(volume))?;
    let name = match meta.file_type().is_block_device() {
        true => format!("block-{}.sock", meta.rdev()),
        false => format!("file-{}-{}.sock", meta.dev(), meta.ino()),
    };
    Ok(directory().join(name))
}

/// Sends one message.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let len = u32::try_from(body.len()).ok().filter(|n| *n <= MAX_MESSAGE);
    let len = len.ok_or_else(|| io::Error::other("message too long"))?;
    let mut all = len.to_le_bytes().to_vec();
    all.extend_from_slice(&body);
    to.write_all(&all)?;
    to.flush()
}

/// Receives one message; an announced length is not believed before the bytes are there.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MAX_MESSAGE {
        return Err(io::Error::other("message too long"));
    }
    let mut body = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut body)?;
    if body.len() as u64 != u64::from(len) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
