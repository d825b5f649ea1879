//! Users who publish what link(2) refuses them: other users' files and those without a name to be.

use super::{Scene, Stage, make_directory};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use siftfs_base::Rng;
use siftfs_client::{Entry, Level, Publish, Source, publish};
use siftfs_rig::hostile::become_user;
use std::fs::{File, Permissions, set_permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

const USER: u32 = 68_001;
const OTHER: u32 = 68_002;

/// Publishes of a passed descriptor answer what linkat(2) answers for it.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.directory(&stage.fresh("strangers"), USER, 0o755)?;
    let others = stage.dir.join(stage.fresh("others"));
    make_directory(&others, 0, 0o755)?;
    while !stage.is_over() {
        let owner = *rng.pick(&[0, OTHER, USER]).expect("there are owners");
        let mode = *rng.pick(&[0o600, 0o644, 0o666, 0o4755, 0o4777, 0o2775]).expect("modes");
        let (file, what) = match rng.below(3) {
            0 => (without_name(&others, rng.chance(50))?, "an O_TMPFILE"),
            _ => (named(&others.join(stage.fresh("f")))?, "a file"),
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        chown(&path, Some(owner), Some(owner))?;
        set_permissions(&path, Permissions::from_mode(mode))?;
        let tried = std::thread::scope(|s| s.spawn(|| both(&dir, &file, stage)).join());
        let (link, published) = tried.expect("the user does not panic")?;
        if link != published {
            let text = format!(
                "{what} of user {owner}, mode {mode:o}: linkat(2) answers {link:?}, publish {published:?}"
            );
            stage.find(Scene::Strangers, &text);
        }
        stage.has_tried(Scene::Strangers);
    }
    Ok(())
}

fn named(path: &Path) -> io::Result<OwnedFd> {
    std::fs::write(path, "other's")?;
    Ok(File::options().read(true).write(true).open(path)?.into())
}

fn without_name(dir: &Path, exclusive: bool) -> io::Result<OwnedFd> {
    let more = if exclusive { OFlags::EXCL } else { OFlags::empty() };
    Ok(openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | more, Mode::RUSR)?)
}

/// What linkat(2) and publish answer, each under a name of its own; 0 for success.
fn both(dir: &Path, file: &OwnedFd, stage: &Stage) -> io::Result<(i32, i32)> {
    become_user(USER)?;
    let errno = |e: io::Error| e.raw_os_error().unwrap_or(-1);
    let base = File::open(dir)?;
    let (first, second) = (stage.fresh("linked"), stage.fresh("published"));
    // The publish comes first: a file without a name that may get one may get two.
    let number = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
    let entry = Entry { source: Source::Descriptor(number), to: second.into(), replace: false };
    let published = publish(base.as_fd(), &Publish { entries: vec![entry], level: Level::Visible });
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = linkat(CWD, path.as_str(), &base, first.as_str(), AtFlags::SYMLINK_FOLLOW);
    let link = link.map_err(io::Error::from).err().map_or(0, errno);
    Ok((link, published.err().map_or(0, errno)))
}
