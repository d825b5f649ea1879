//! What a command shows while it waits for a volume that is being closed.

use crate::control::messages::Left;
use crate::show::output::complain;
use crate::show::progress::Display;
use std::path::Path;
use std::time::{Duration, Instant};

/// After how long a user who sees no progress is told that it goes on.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What is seen while the daemon closes the volume.
pub struct Waiting<'a> {
    about: &'a Path,
    what: &'a str,
    display: Display,
    since: Instant,
    told: bool,
    /// Most bytes that were left.
    total: u64,
    /// Fewest bytes that were left: it does not go back.
    left: u64,
    /// When fewer were left than ever before.
    moved: Instant,
    /// The process that is waited for, as it was reported.
    whom: Option<String>,
}

impl<'a> Waiting<'a> {
    /// Nothing is known yet; `what` is shown.
    pub fn new(about: &'a Path, what: &'a str) -> Self {
        let mut display = Display::new();
        display.wait(what);
        let (told, since) = (display.is_shown(), Instant::now());
        Self {
            about,
            what,
            display,
            since,
            told,
            total: 0,
            left: u64::MAX,
            moved: since,
            whom: None,
        }
    }

    /// Shows that so much is left.
    pub fn update(&mut self, left: Left) {
        // Said at once: it is not this machine's work that takes the time.
        if let Some(whom) = left.waiting.filter(|_| self.whom.is_none()) {
            complain(format_args!("{}: {whom}", self.about.display()));
            self.whom = Some(whom);
        }
        if left.left_bytes < self.left {
            (self.left, self.moved) = (left.left_bytes, Instant::now());
        }
        self.total = self.total.max(left.left_bytes);
        if self.total > 0 {
            self.display.update(self.what, self.total - self.left, self.total);
        }
        self.goes_on();
    }

    /// Reports once that it takes long, where the progress is not shown.
    pub fn goes_on(&mut self) {
        if !self.told && self.since.elapsed() >= PATIENCE {
            complain(format_args!("{}: {}", self.about.display(), self.what));
            self.told = true;
        }
    }

    /// When the wait began.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// How long nothing has become less.
    pub fn stands_since(&self) -> Duration {
        self.moved.elapsed()
    }
}
