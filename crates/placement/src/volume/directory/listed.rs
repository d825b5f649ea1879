//! What is said of a volume of a directory or a pool.

use siftfs_base::{Error, Result};

/// What is to be said of a volume without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// It is plain ext4 at the moment, and nobody has it open.
    Clean,
    /// It was not unmounted; its next use recovers it.
    Dirty,
    /// A process has it open and may write it.
    Used,
    /// It cannot be opened as it is.
    Damaged,
}

/// A volume of a directory.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ListedVolume {
    /// The file's name; what is no UTF-8 of it is replaced.
    pub name: String,
    /// Bytes of the file or block device.
    pub bytes: u64,
    /// Bytes of its file system; `None` where its superblock says nothing.
    pub area_bytes: Option<u64>,
    /// The volume's UUID, as text; `None` if it is damaged.
    pub uuid: Option<String>,
    /// What it is like.
    pub state: VolumeState,
    /// Does its log lie on a file or device of its own?
    pub log_elsewhere: bool,
    /// Why it is damaged.
    pub problem: Option<String>,
}

/// The volume that was found, if it is known to be one.
///
/// # Errors
/// Refused if it is no volume, or damaged.
pub(super) fn known(found: Option<ListedVolume>) -> Result<ListedVolume> {
    let Some(volume) = found else {
        return Err(Error::Refused("it is no volume: nothing was removed".into()));
    };
    match &volume.problem {
        Some(problem) => Err(Error::Refused(format!(
            "it is damaged, and may be something else: {problem}. Nothing was removed"
        ))),
        None => Ok(volume),
    }
}
