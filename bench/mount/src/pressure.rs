//! SIFT's pressure workload (`siftfs-pressure`), on any mounted file system: the load is that
//! crate's.

use crate::area::{CHUNK, Measured, WorkArea, rate};
use crate::row::{Metric, Row};
use siftfs_pressure::load::{Background, Load, Seen, Shape, Target};
use siftfs_rig::fresh::refresh;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The paper's sizes are divided by this: a hot region of 1 MiB, and two of 8 MiB.
const SCALE: u64 = 8;
/// How long the load runs before the window opens.
const WARM_UP: Duration = Duration::from_millis(700);

const fn foreground(name: &'static str, what: &'static str, target: f64) -> Row {
    Row { name, what, metric: Metric::Operations, target: Some(target) }
}

const fn background(name: &'static str, what: &'static str) -> Row {
    Row { name, what, metric: Metric::Bytes, target: Some(0.9) }
}

/// An fsync after every 32 writes of the background.
pub const ROWS_32: [Row; 2] = [
    foreground("pressure-32", "pressure, i = 32: foreground", 3.0),
    background("pressure-32-back", "pressure, i = 32: background"),
];
/// ... after every 128.
pub const ROWS_128: [Row; 2] = [
    foreground("pressure-128", "pressure, i = 128: foreground", 4.0),
    background("pressure-128-back", "pressure, i = 128: background"),
];

/// The foreground's operations, then the background's MiB. Nothing else is counted: it would be of
/// both.
pub fn measure(area: &WorkArea, interval: u64, time: Duration) -> io::Result<Vec<Measured>> {
    let mut targets = Vec::new();
    for (name, bytes, hot) in Shape::of_paper(SCALE).files() {
        let path = area.dir.join(name);
        let mut file = File::create_new(&path)?;
        let mut piece = vec![0; CHUNK];
        for _ in 0..bytes / CHUNK as u64 {
            file.write_all(refresh(&mut piece))?;
        }
        file.sync_all()?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        targets.push((Target::Mounted(file), hot));
    }
    area.settle()?;
    let opens = Instant::now() + WARM_UP;
    let load = Load::new(opens, time);
    let how = Background { interval, rate: None };
    let (seen, ()) = load.run(&targets, 1, how, || {
        std::thread::sleep((opens + time).saturating_duration_since(Instant::now()));
    });
    let Seen { foreground, background_bytes } = seen?;
    let foreground = rate(foreground.sum_up().operations, time);
    Ok(vec![foreground, rate(background_bytes >> 20, time)])
}
