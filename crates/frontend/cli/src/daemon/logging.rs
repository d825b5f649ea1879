//! The log: where it goes, what it holds, how it is written.

use crate::show::failure::{Failure, USAGE};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::reload::Handle;

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document per line.
    Json,
}

/// What the log holds: every event of a level and of the levels above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// What cannot go on.
    Error,
    /// What should not be.
    Warn,
    /// Mounts, recoveries, ends.
    Info,
    /// What helps to find a fault.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Starts the log: to a file, or to standard error in the foreground. A level that was asked for
/// counts more than `SIFTFS_LOG`, which filters as `tracing` describes; the default is `info`.
///
/// # Errors
/// Wrong usage if `SIFTFS_LOG` makes no sense; a failure if the file cannot be written.
pub fn start(
    file: Option<&Path>,
    foreground: bool,
    level: Option<Level>,
    format: Format,
) -> Result<(), Failure> {
    let filter = filter(level, std::env::var("SIFTFS_LOG").ok().as_deref())?;
    let (writer, ansi) = match file {
        Some(path) => (BoxMakeWriter::new(std::sync::Mutex::new(open(path)?)), false),
        None if foreground => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal()),
        None => return Ok(()),
    };
    let builder = tracing_subscriber::fmt().with_writer(writer);
    match format {
        Format::Text => {
            let builder = builder.with_ansi(ansi).with_env_filter(filter).with_filter_reloading();
            keep_handle(builder.reload_handle());
            builder.init();
        }
        Format::Json => {
            let builder = builder.json().flatten_event(true).with_ansi(false);
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            keep_handle(builder.reload_handle());
            builder.init();
        }
    }
    Ok(())
}

/// Gives a running log another filter.
type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;
static RELOAD: OnceLock<Reload> = OnceLock::new();

fn keep_handle<S: 'static>(handle: Handle<EnvFilter, S>) {
    let reload = move |filter| handle.reload(filter).map_err(|e| e.to_string());
    let _ = RELOAD.set(Box::new(reload));
}

/// The log holds this from now on, if there is one.
///
/// # Errors
/// The log cannot be changed any more.
pub fn set_level(level: Level) -> Result<(), String> {
    RELOAD.get().map_or(Ok(()), |reload| reload(EnvFilter::new(level.name())))
}

fn filter(level: Option<Level>, variable: Option<&str>) -> Result<EnvFilter, Failure> {
    let text = match (level, variable) {
        (Some(level), _) => level.name(),
        (None, Some(text)) if !text.is_empty() => text,
        (None, _) => "info",
    };
    EnvFilter::try_new(text).map_err(|e| {
        Failure::plain(format!("SIFTFS_LOG={text}: {e}; say a level, such as `debug`"))
            .with_code(USAGE)
    })
}

fn open(path: &Path) -> Result<std::fs::File, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(path).map_err(|e| Failure::about(path, e))
}

#[cfg(test)]
#[path = "logging_tests.rs"]
mod tests;
