//! Users who leave sections open on files that others look at.

use super::{Scene, Stage};
use crate::watch::Calls;
use siftfs_base::Rng;
use siftfs_client::Section;
use siftfs_rig::hostile::become_user;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const USER: u32 = 67_001;
/// What a file has before.
const OLD: [u8; 5000] = [b'o'; 5000];

/// A file with an open section is read and listed at once, and an abort leaves what was there. (The
/// kernel's cache may show the section's bytes before that; a program that heeds the owner's lock
/// never sees them.)
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.directory(&stage.fresh("sections"), USER, 0o755)?;
    let calls = stage.calls("a reader of files with open sections");
    while !stage.is_over() {
        let path = dir.join(stage.fresh("f"));
        std::fs::write(&path, OLD)?;
        std::os::unix::fs::chown(&path, Some(USER), Some(USER))?;
        let new = rng.bytes(7000);
        let owner = || -> io::Result<()> {
            become_user(USER)?;
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let section = Section::start(&file)?;
            file.write_all_at(&new, 0)?;
            std::thread::scope(|s| s.spawn(|| look(&calls, &path)).join())
                .expect("the reader does not panic")?;
            match section.abort() {
                // The reader is a thread of the same process: its close(2) may have ended it.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                other => other,
            }
        };
        std::thread::scope(|s| s.spawn(owner).join()).expect("the owner does not panic")?;
        let left = look(&calls, &path)?;
        if left != OLD {
            stage.find(Scene::Sections, &format!("an abort left {} bytes", left.len()));
        }
        stage.has_tried(Scene::Sections);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn look(calls: &Calls, path: &Path) -> io::Result<Vec<u8>> {
    let name = "stat and read of a file with an open section";
    calls.call(name, || std::fs::metadata(path).and_then(|_| std::fs::read(path)))
}
