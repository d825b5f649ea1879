//! How long a call takes that recalls a write lease from a holder that answers at once.

use crate::stage::{Stage, said};
use siftfs_rig::place::Result;
use std::time::{Duration, Instant};

/// Bytes that a holder keeps of each file.
const KEPT: usize = 4096;

/// Each of `count` files is recalled once, by another session that opens and reads it. Half of the
/// calls took no longer than the first time, and 99 of 100 no longer than the second.
///
/// # Errors
/// What a call says.
pub fn measure(stage: &Stage, count: usize) -> Result<(Duration, Duration)> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let (path, name) = (format!("/r{number}"), format!("r{number}"));
        let made = stage.embed(move |volume| volume.create(&path, 0o644).map(drop));
        made.map_err(said)?;
        let pieces = vec![(0, vec![7; KEPT])];
        stage.lease(move |leaser| leaser.keep_at_last(&name, &pieces)).map_err(said)?;
        let path = format!("/r{number}");
        let read = stage.embed(move |volume| {
            // The name's lookup tells attributes, so it is what recalls.
            let start = Instant::now();
            let bytes = volume.open_file(&path)?.read_at(0, KEPT)?;
            Ok::<_, siftfs_base::Error>((start.elapsed(), bytes))
        });
        let (time, bytes) = read.map_err(said)?;
        assert_eq!(bytes, [7; KEPT], "what the holder kept");
        times.push(time);
    }
    times.sort();
    Ok((times[count / 2], times[count * 99 / 100]))
}
