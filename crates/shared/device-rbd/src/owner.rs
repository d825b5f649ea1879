//! One writer of an image at a time (rule R9), and the fence between it and the next one.
//!
//! The exclusive lock says which client may write. A process that was taken for dead may have
//! writes under way in its library and wake hours later, so a lock alone keeps nothing away: before
//! a successor reads a byte, the addresses of all earlier owners that did not end in order are on
//! the cluster's block list, for ten years. Each process writes its address down beside the image
//! before it asks for the lock, so that none is missed whose lock librbd itself has broken (with an
//! entry of an hour). The lock's owner is known to be dead when the cluster has given it
//! up, 30 seconds after its last sign, or at once by a file of this machine that it had locked.

use crate::image::Image;
use crate::notes::{About, Notes};
use crate::{Access, Had, RbdPlace, Standing};
use rustix::fs::{FlockOperation, flock};
use siftfs_base::{Error, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the files are that owners on this machine have locked; gone when the machine restarts.
const RUN_DIR: &str = "/run/siftfs/rbd";
/// How long an owner that lives is waited for: one that ends needs a moment.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest file of an owner that is read, in bytes.
const MAX_FILE: u64 = 4096;

/// The right to write an image, until it is given back or the process dies.
pub(crate) struct Owner {
    local: Option<LocalLock>,
    notes: Notes,
    /// By which the cluster knows this process.
    address: String,
}

impl Owner {
    /// Takes the right to write. When this returns, nothing that an earlier owner has under way
    /// reaches the image any more.
    ///
    /// # Errors
    /// Refused: a process that lives has the image, or the cluster does not answer.
    pub fn take(image: &Image, place: &RbdPlace, access: &Access) -> Result<Self> {
        let local = LocalLock::take(image, place, access)?;
        let own = image.cluster.own_address()?;
        let notes = Notes::of(image.cluster.clone(), About::Owners, &image.id()?)?;
        let dead = local.as_ref().and_then(|local| local.last.clone());
        // Before the lock is asked for: from then on others have to know whom to fence.
        notes.add(&own, &describe())?;
        let taken = acquire(image, &notes, place, access, dead.as_deref());
        let taken = taken.and_then(|fenced| fence_earlier(image, &notes, place, &own, &fenced));
        taken.inspect_err(|_| {
            if let Err(error) = notes.remove(&own) {
                tracing::debug!(%place, %error, "a note of this process stays at the image");
            }
        })?;
        let mut owner = Self { local, notes, address: own };
        if let Some(local) = &mut owner.local {
            local.write(&owner.address);
        }
        Ok(owner)
    }

    /// Gives the right to write back, after every write has ended: the next owner fences nobody.
    ///
    /// # Errors
    /// The cluster does not take it; then the next owner fences this process's address, which is of
    /// no use by then.
    pub fn give_back(&mut self, image: &Image) -> Result<()> {
        self.notes.remove(&self.address)?;
        image.release()?;
        if let Some(local) = &mut self.local {
            local.write("");
        }
        Ok(())
    }
}

/// Fences all others that are written down, under the lock, and strikes them out.
fn fence_earlier(
    image: &Image,
    notes: &Notes,
    place: &RbdPlace,
    own: &str,
    fenced: &[String],
) -> Result<()> {
    for (earlier, whose) in notes.all()?.iter().filter(|(address, _)| address != own) {
        if !fenced.contains(earlier) {
            tracing::info!(%place, %earlier, %whose, "it did not end in order: fenced");
            image.cluster.fence(earlier)?;
        }
        notes.remove(earlier)?;
    }
    Ok(())
}

/// Refuses an image that a living process may write, for one that only reads.
///
/// # Errors
/// As said.
pub(crate) fn refuse_written(image: &Image, place: &RbdPlace) -> Result<()> {
    let notes = || Notes::of(image.cluster.clone(), About::Owners, &image.id()?);
    match living_owner(image)? {
        Some(owner) => Err(in_use(&notes()?, place, &owner)),
        None => Ok(()),
    }
}

/// The owner of an image that is open only to be read, if the cluster has not given it up.
pub(crate) fn living_owner(image: &Image) -> Result<Option<String>> {
    let Some(owner) = image.owner_when_opened()? else { return Ok(None) };
    Ok(image.watchers()?.contains(&owner).then_some(owner))
}

/// Takes the exclusive lock, and fences an owner that is known to be dead, or any if this is a
/// takeover. Returns the addresses that were fenced.
fn acquire(
    image: &Image,
    notes: &Notes,
    place: &RbdPlace,
    access: &Access,
    dead: Option<&str>,
) -> Result<Vec<String>> {
    let (until, mut fenced) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        match image.owner()? {
            None if image.acquire().is_ok() => return Ok(fenced),
            None => {}
            Some(owner) => {
                let gone = dead == Some(&owner)
                    || !image.watchers()?.contains(&owner)
                    || is_meant(access, notes, &owner)?;
                if gone && !fenced.contains(&owner) {
                    tracing::warn!(%place, %owner, "the image's owner is fenced");
                    image.cluster.fence(&owner)?;
                    image.break_lock(&owner)?;
                    fenced.push(owner);
                    continue;
                }
            }
        }
        if Instant::now() >= until {
            return Err(match image.owner()? {
                Some(owner) => in_use(notes, place, &owner),
                None => Error::Refused(format!(
                    "{place}: the cluster does not give the exclusive lock to this client: see \
                     rbd lock ls, and whether its key has profile rbd"
                )),
            });
        }
        thread::sleep(PAUSE);
    }
}

/// Is the owner at this address one that an administrator says is to be fenced?
fn is_meant(access: &Access, notes: &Notes, owner: &str) -> Result<bool> {
    Ok(match access {
        Access::TakeOver(whom) => whom.is_meant(&described(notes, owner)?),
        Access::Alone | Access::ReadOnly => false,
    })
}

fn in_use(notes: &Notes, place: &RbdPlace, owner: &str) -> Error {
    let by = described(notes, owner).unwrap_or_else(|_| owner.into());
    Error::Refused(format!("{place} is in use by {by}"))
}

/// The owner at this address, as it describes itself.
fn described(notes: &Notes, owner: &str) -> Result<String> {
    let known = notes.all()?.into_iter().find(|(address, _)| address == owner);
    Ok(known.map_or_else(
        || format!("the client at {owner}, which is not SiftFS's"),
        |(_, whose)| whose,
    ))
}

/// What the note of this process says: nothing that another process ever says.
pub(crate) fn describe() -> String {
    static SAID: OnceLock<String> = OnceLock::new();
    let say = || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        format!("process {} of {host}, begun at {since} us", std::process::id())
    };
    SAID.get_or_init(say).clone()
}

/// Who has the image, as a process sees it that has not. `notes` are the image's.
///
/// # Errors
/// The cluster does not answer.
pub(crate) fn standing(image: &Image, notes: &Notes, place: &RbdPlace) -> Result<Standing> {
    let Some(owner) = image.owner()? else { return Ok(Standing::Free) };
    let is_dead = LocalLock::says_dead(&local_name(image, place)?, &owner)
        || !image.watchers()?.contains(&owner);
    let whose = described(notes, &owner)?;
    if is_dead {
        return Ok(Standing::Dead(whose));
    }
    Ok(Standing::Had(Had { address: owner, whose }))
}

/// The name of an image's file on this machine.
fn local_name(image: &Image, place: &RbdPlace) -> Result<String> {
    Ok(format!("{}.{}.{}", image.cluster.fsid, place.pool, image.id()?))
}

/// A file of this machine that an owner has locked as long as it lives, with its address in it.
struct LocalLock {
    file: File,
    /// The address of the owner before, which is dead.
    last: Option<String>,
}

impl LocalLock {
    /// `None` where no such file can be made, and where a takeover fences the process that has it:
    /// then the cluster alone says who the owner is.
    ///
    /// # Errors
    /// Refused: a process of this machine has the image.
    fn take(image: &Image, place: &RbdPlace, access: &Access) -> Result<Option<Self>> {
        Self::at(Path::new(RUN_DIR), &local_name(image, place)?, place, access)
    }

    fn at(dir: &Path, name: &str, place: &RbdPlace, access: &Access) -> Result<Option<Self>> {
        let Ok(mut file) = open(dir, name) else {
            tracing::debug!(%place, "no file of this machine says that an owner is dead");
            return Ok(None);
        };
        let until = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if matches!(access, Access::TakeOver(_)) {
                return Ok(None);
            }
            if Instant::now() >= until {
                return Err(Error::Refused(format!(
                    "{place} is in use by another process of this machine"
                )));
            }
            thread::sleep(PAUSE);
        }
        let mut last = String::new();
        // What cannot be read names nobody.
        let read = (&mut file).take(MAX_FILE).read_to_string(&mut last).is_ok();
        let last = Some(last).filter(|last| read && !last.is_empty());
        Ok(Some(Self { file, last }))
    }

    /// Is the file there, of an owner at this address, and has the kernel ended that one's lock?
    fn says_dead(name: &str, owner: &str) -> bool {
        let Ok(mut file) = open(Path::new(RUN_DIR), name) else { return false };
        let mut last = String::new();
        // For a moment, in which a process that opens the image waits.
        flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
            && (&mut file).take(MAX_FILE).read_to_string(&mut last).is_ok()
            && last == owner
    }

    /// A hint for the next owner: that it cannot be written costs that one 30 seconds.
    fn write(&mut self, address: &str) {
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(address.as_bytes()));
        if let Err(error) = written {
            tracing::debug!(%error, "this machine's file of the image's owner is not written");
        }
    }
}

fn open(dir: &Path, name: &str) -> std::io::Result<File> {
    fs::create_dir_all(dir)?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    let path: PathBuf = dir.join(name.chars().map(plain).collect::<String>());
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
