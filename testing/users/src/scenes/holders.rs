//! Users who keep the locks of their own directories, for as long as they like.

use super::{Scene, Stage};
use siftfs_base::Rng;
use siftfs_rig::hostile::callers::{Callers, make};
use siftfs_rig::hostile::lock::Held;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const FIRST: u32 = 62_001;
/// Users at most, and the compounds that each has waiting.
const USERS: u64 = 3;
const COMPOUNDS: usize = 40;

/// Each user keeps its directory's lock and makes files there by compounds, which the kernel cannot
/// be told of before it lets go: at the round's end.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let users = 1 + u32::try_from(rng.below(USERS)).unwrap_or(0);
    let mut held = Vec::new();
    let mut callers = Vec::new();
    for user in FIRST..FIRST + users {
        let dir = stage.directory(&stage.fresh("held"), user, 0o755)?;
        for n in 0..100 {
            std::fs::write(dir.join(format!("n{n}")), "")?;
        }
        let place = stage.own.join(stage.fresh("silent"));
        std::fs::create_dir(&place)?;
        held.push(Held::new(&place, &dir, user)?);
        let stage = stage.clone();
        let act = move |n| {
            // The caller waits with its directory: nobody promised it an answer.
            let _ = make(&dir, &format!("made{n}"));
            stage.has_tried(Scene::Holders);
        };
        callers.push(Callers::start(COMPOUNDS, (user, None), act)?);
    }
    // Until then ordinary users must come back although the locks are kept.
    while !stage.is_judged() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(held);
    drop(callers);
    Ok(())
}
