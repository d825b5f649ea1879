//! Users whose view of the mount is read-only, or hides a part of it: they change nothing there.

use super::{Scene, Stage, make_directory};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, unmount,
};
use siftfs_base::Rng;
use siftfs_client::{Compound, Entry, Level, Publish, Source, publish};
use siftfs_rig::hostile::become_user;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const USER: u32 = 69_001;

/// Each try has a mount namespace of its own, like a container.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.directory(&stage.fresh("views"), USER, 0o755)?;
    let sub = dir.join("sub");
    make_directory(&sub, USER, 0o755)?;
    std::fs::write(sub.join("kept"), "kept")?;
    std::os::unix::fs::chown(sub.join("kept"), Some(USER), Some(USER))?;
    let view = stage.own.join(stage.fresh("view"));
    std::fs::create_dir(&view)?;
    while !stage.is_over() {
        let user = if rng.chance(50) { USER } else { 0 };
        let hidden = rng.chance(50);
        let what = rng.below(4);
        let tried =
            std::thread::scope(|s| s.spawn(|| try_one((&dir, &view), (user, hidden), what)).join());
        let (how, ended) = tried.expect("the user does not panic")?;
        let names: Vec<_> = std::fs::read_dir(&sub)?
            .map(|e| e.map(|e| e.file_name()))
            .collect::<io::Result<_>>()?;
        let same = names == ["kept"] && std::fs::read(sub.join("kept"))? == b"kept";
        if ended.is_ok() || !same {
            let view = if hidden { "a hidden directory" } else { "a read-only view" };
            stage.find(
                Scene::Views,
                &format!("{how} in {view} by user {user}: {ended:?}; {names:?}"),
            );
            return Ok(());
        }
        stage.has_tried(Scene::Views);
    }
    Ok(())
}

/// Tries a change of `sub` in a namespace where it is read-only or hidden.
#[allow(unsafe_code)] // rustix has no unshare of one thread
fn try_one(
    (dir, view): (&Path, &PathBuf),
    (user, hidden): (u32, bool),
    what: u64,
) -> io::Result<(&'static str, io::Result<()>)> {
    // SAFETY: the calling thread alone gets another mount namespace; no memory is passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let (base, prefix) = match hidden {
        true => {
            mount("none", dir.join("sub"), "tmpfs", MountFlags::empty(), None)?;
            (dir.to_path_buf(), "sub/")
        }
        false => {
            mount_bind(dir.join("sub"), view)?;
            mount_remount(view, MountFlags::BIND | MountFlags::RDONLY, "")?;
            (view.clone(), "")
        }
    };
    become_user(user)?;
    let base = File::open(base)?;
    let ended = change(&base, prefix, what);
    drop(base);
    if user == 0 && !hidden {
        // The namespace goes with the thread; what it holds must not outlive the round.
        let _ = unmount(view, UnmountFlags::DETACH);
    }
    Ok(ended)
}

fn change(base: &File, prefix: &str, what: u64) -> (&'static str, io::Result<()>) {
    let name = |n: &str| format!("{prefix}{n}");
    let mut steps = Compound::on(base);
    let how = match what {
        0 => {
            steps.create(name("new"), 0o644);
            "a compound that creates"
        }
        1 => {
            steps.unlink(name("kept"));
            "a compound that unlinks"
        }
        2 => {
            steps.open_truncated(name("kept"));
            "a compound that truncates"
        }
        _ => {
            let source = Source::Path(name("kept").into());
            let entry = Entry { source, to: name("published").into(), replace: false };
            let entries = Publish { entries: vec![entry], level: Level::Visible };
            return ("a publish", publish(base.as_fd(), &entries));
        }
    };
    (how, steps.run(Level::Visible).map(drop).map_err(io::Error::from))
}
