//! Progress of long work, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

const MEASURED: &str = "{spinner} {msg} {wide_bar} {percent}% {eta}";
const UNMEASURED: &str = "{spinner} {msg} ({elapsed})";

/// A line on standard error, shown only when that is a terminal.
pub struct Display {
    bar: ProgressBar,
    /// The work that is shown, and the template it is shown by.
    now: (String, &'static str),
}

impl Display {
    /// Nothing is shown before the first [`Display::update`] or [`Display::wait`].
    pub fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        Self { bar, now: (String::new(), "") }
    }

    /// `done` of `total` of `what`.
    pub fn update(&mut self, what: &str, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.show(what, MEASURED);
    }

    /// Work of unknown length has begun.
    pub fn wait(&mut self, what: &str) {
        self.show(what, UNMEASURED);
    }

    fn show(&mut self, what: &str, template: &'static str) {
        if self.now.0 == what && self.now.1 == template {
            return;
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.now = (what.to_string(), template);
        self.bar.set_message(self.now.0.clone());
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// Is the progress shown on a terminal?
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
