//! A mail server's work (`siftfs_rig::varmail`): a thousand messages, a quarter of them each
//! thread's, and appends of 16 KiB. The row's number is steps in a second, of all threads.

use crate::area::{Measured, THREADS, WorkArea, rate};
use siftfs_rig::varmail::Varmail;
use std::io;
use std::time::Duration;

const MAIL: Varmail = Varmail { threads: THREADS, messages: 250, any_size: false };

/// The threads work for so long.
pub fn measure(area: &WorkArea, time: Duration) -> io::Result<Measured> {
    MAIL.prepare(&area.dir)?;
    area.settle()?;
    area.count(|| {
        let (steps, took) = MAIL.work(&area.dir, time)?;
        Ok(rate(steps, took))
    })
}
