//! A limit of file sizes, which compounds keep as write(2) does.

use super::{Scene, Stage};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siftfs_base::Rng;
use siftfs_client::{Compound, Level};
use siftfs_rig::hostile::become_user;
use std::fs::File;
use std::io;
use std::sync::Arc;

const USER: u32 = 65_001;
/// The limit, in bytes: more than any other scene writes.
const LIMIT: u64 = 64 << 20;

/// The process's limit, while this lives. A write beyond it fails, and sends no signal.
struct Limited(Rlimit);

impl Limited {
    #[allow(unsafe_code)] // signal(2) has no safe wrapper
    fn new() -> io::Result<Self> {
        let before = getrlimit(Resource::Fsize);
        // SAFETY: a signal is ignored from here on; no handler runs.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let limit = Rlimit { current: Some(LIMIT), maximum: before.maximum };
        setrlimit(Resource::Fsize, limit)?;
        Ok(Self(before))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(Resource::Fsize, self.0).expect("a soft limit may be put back");
    }
}

/// Writes, appends and truncations beyond the limit are refused.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.directory(&stage.fresh("limits"), USER, 0o755)?;
    let _limited = Limited::new()?;
    let body = || -> io::Result<()> {
        become_user(USER)?;
        let base = File::open(&dir)?;
        while !stage.is_over() {
            let name = stage.fresh("f");
            let what = rng.below(3);
            let mut steps = Compound::on(&base);
            let file = steps.create(&name, 0o644);
            match what {
                0 => drop(steps.write(file, LIMIT + rng.below(9000), &b"beyond"[..])),
                1 => drop(steps.set_len(file, LIMIT + 1 + rng.below(1 << 30))),
                _ => {
                    steps.set_len(file, LIMIT);
                    steps.append(file, &b"beyond"[..]);
                }
            }
            let ended = steps.run(Level::Visible).map(drop).map_err(io::Error::from);
            let errno = ended.as_ref().err().and_then(io::Error::raw_os_error);
            if errno != Some(libc::EFBIG) || dir.join(&name).exists() {
                stage.find(Scene::Limits, &format!("beyond RLIMIT_FSIZE ({what}): {ended:?}"));
            }
            stage.has_tried(Scene::Limits);
        }
        Ok(())
    };
    std::thread::scope(|s| s.spawn(body).join()).expect("the user does not panic")
}
