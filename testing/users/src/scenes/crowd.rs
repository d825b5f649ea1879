//! Very many threads that change names of one directory at once.

use super::{Scene, Stage};
use siftfs_rig::hostile::callers::{Callers, make, remove};
use std::fs::File;
use std::io;
use std::sync::Arc;

const USER: u32 = 63_001;
/// Threads that make files by open(2).
const OPENERS: usize = 32;

/// Compounds make and remove names while open(2) does the same: each must end with the round.
pub fn play(stage: &Arc<Stage>) -> io::Result<()> {
    let dir = stage.directory("crowd", USER, 0o755)?;
    let (own, place) = (stage.clone(), dir.clone());
    let compounds = Callers::start(stage.crowd, (USER, None), move |n| {
        let calls = own.calls(format!("caller {n} of the crowd"));
        let name = format!("c{n}");
        while !own.is_over() {
            // A refusal for want of room is an answer; silence is a finding.
            let made = calls.call("a compound that makes a file", || make(&place, &name));
            if made.is_ok() {
                let _ = calls.call("a compound that removes a file", || remove(&place, &name));
            }
            own.has_tried(Scene::Crowd);
        }
    })?;
    let (own, place) = (stage.clone(), dir);
    let openers = Callers::start(OPENERS, (USER, None), move |n| {
        let calls = own.calls(format!("opener {n} of the crowd"));
        let path = place.join(format!("p{n}"));
        while !own.is_over() {
            let made = calls.call("open(O_CREAT)", || File::create(&path)).map(drop);
            let gone = calls.call("unlink", || std::fs::remove_file(&path));
            if let Err(error) = made.and(gone) {
                own.find(Scene::Crowd, &format!("a plain file: {error}"));
                return;
            }
        }
    })?;
    drop(compounds);
    drop(openers);
    Ok(())
}
