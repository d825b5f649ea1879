//! How a command ends.

use std::fmt::Display;
use std::path::Path;

/// A command's exit status, or the one message it failed with.
pub type Outcome = Result<u8, Failure>;

/// Exit status of an ordinary failure.
pub const FAILED: u8 = 1;
/// Exit status of wrong usage (as clap's own).
pub const USAGE: u8 = 2;
/// fsck(8): something was put right, and nothing is left.
pub const CORRECTED: u8 = 1;
/// fsck(8): errors left as they are.
pub const DAMAGED: u8 = 4;
/// fsck(8): the check could not be done.
pub const OPERATIONAL: u8 = 8;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub code: u8,
    /// What is wrong and what to do.
    pub message: String,
}

impl Failure {
    /// A failure about a volume or directory, which the message names once.
    pub fn about(path: &Path, what: impl Display) -> Self {
        let (name, what) = (path.display().to_string(), what.to_string());
        let first = what.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', ':']));
        let named = first || what.starts_with("cannot ") && what.contains(&format!(" {name}: "));
        Self { code: FAILED, message: if named { what } else { format!("{name}: {what}") } }
    }

    /// A failure with a message of its own.
    pub fn plain(what: impl Display) -> Self {
        Self { code: FAILED, message: what.to_string() }
    }

    /// The same failure with another exit status.
    pub fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// A defect stops the process at once, as a crash does: what was acknowledged is in the log, and
/// the next mount recovers it. Going on with half a state is what could lose data.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (None, Some(text)) => text.as_str(),
            (None, None) => "assertion failed",
        };
        tracing::error!(place, text, "internal error");
        crate::show::output::complain(format_args!(
            "internal error at {place}: {text}; stopped at once so that nothing \
             acknowledged is lost; mount the volume again to recover it"
        ));
        std::process::abort();
    }));
}
