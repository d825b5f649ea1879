//! Recovering a volume without mounting it, and giving its log up.

use crate::mount::open::Volume;
use crate::options::{OpenOptions, Progress, RecoverReport};
use crate::volume::discard::{self, Discarded};
use crate::volume::media::{open_media, open_what_is_left};
use siftfs_base::{Clock, Result, SystemClock};
use siftfs_log::show_uuid;
use siftfs_volume::Media;
use std::path::Path;
use std::sync::Arc;

/// Recovers a volume without mounting it; afterwards it is plain ext4.
pub fn recover(path: &Path, opts: &OpenOptions, progress: Progress<'_>) -> Result<RecoverReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let opened = open_media(path, opts)?;
    let mut volume = Volume::read(opened.media, true)?;
    opened.places.remember(&show_uuid(&volume.view().header.volume));
    volume.recover(&clock, opts, progress)
}

/// Gives the log of a volume up: see [`discard_log_on`].
pub fn discard_log(path: &Path, opts: &OpenOptions) -> Result<Discarded> {
    discard_log_on(open_what_is_left(path, opts)?.media)
}

/// Forgets everything that lies in the log alone and clears the marker, for a dirty volume whose
/// log is lost (rule R16). What had been fsynced since the last checkpoint may be lost, and the
/// file system may be inconsistent: e2fsck must follow.
pub fn discard_log_on(media: impl Into<Media>) -> Result<Discarded> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    discard::discard_log(media.into(), &clock)
}

/// As [`recover`], on any devices.
pub fn recover_on(media: impl Into<Media>, opts: &OpenOptions) -> Result<RecoverReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    Volume::read(media.into(), true)?.recover(&clock, opts, &mut |_, _, _| {})
}
