//! Progress of long work, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A line on standard error, shown only when that is a terminal.
pub struct Display {
    bar: ProgressBar,
    what: String,
}

impl Display {
    /// Nothing is shown before the first [`Display::update`].
    pub fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {percent}% {eta}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar, what: String::new() }
    }

    /// `done` of `total` of `what`.
    pub fn update(&mut self, what: &str, done: u64, total: u64) {
        if self.what != what {
            self.what = what.to_string();
            self.bar.set_message(self.what.clone());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Display {
    /// Work of a length that nobody knows has begun.
    pub fn wait(&mut self, what: &str) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            self.bar.set_style(style);
        }
        self.what = what.to_string();
        self.bar.set_message(self.what.clone());
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// Is there somebody who sees it?
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
