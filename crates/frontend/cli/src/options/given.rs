//! A value of an option, as it was given, and what it is read as.

use crate::options::parsed::FileLogs;
use crate::options::size::parse_size;
use siftfs_placement::{LogsPlace, MIN_MEMORY};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// `name=value`.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

/// Most microseconds that a wait for the other side may spin.
pub const MAX_SPIN: u64 = 10_000;
/// Most bytes of memory shared with a device process.
const MAX_ARENA: u64 = 1 << 30;
/// Smallest of each cache, in bytes.
pub const MIN_CACHE: u64 = 8 << 20;

/// Each error is a message that names the option and says what is possible.
impl Given<'_> {
    fn wrong(&self, what: impl Display) -> String {
        format!("{}={}: {what}", self.name, self.value)
    }

    /// A whole number, `low` and `high` among them.
    pub fn number(&self, low: u64, high: u64) -> Result<u64, String> {
        match self.value.parse::<u64>() {
            Ok(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(self.wrong(format_args!("not a number from {low} to {high}"))),
        }
    }

    /// The name of a served volume: that of a file, or a UUID.
    pub fn volume(&self) -> Result<String, String> {
        let odd = |c: char| c.is_control() || c == '/';
        match self.value.len() {
            1..=255 if !self.value.contains(odd) => Ok(self.value.into()),
            _ => Err(self.wrong("not a name of 1 to 255 bytes without `/`")),
        }
    }

    /// A number of hundredths, from `low` to `high`.
    pub fn percent(&self, low: u8, high: u8) -> Result<u8, String> {
        let n = self.number(low.into(), high.into())?;
        Ok(u8::try_from(n).expect("at most `high`"))
    }

    /// A path from the root: the daemon has no other directory to start from.
    pub fn absolute(&self) -> Result<PathBuf, String> {
        match self.value.starts_with('/') {
            true => Ok(self.value.into()),
            false => Err(format!("{}={}: not an absolute path", self.name, self.value)),
        }
    }

    /// What the type reads itself.
    pub fn parsed<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        self.value.parse().map_err(|e| self.wrong(e))
    }

    /// One of these words.
    pub fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, String> {
        let found = words.iter().find(|(word, _)| *word == self.value);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| match words {
            [(one, _), (other, _)] => self.wrong(format_args!("neither {one} nor {other}")),
            _ => {
                let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                self.wrong(format_args!("not one of {}", all.join(", ")))
            }
        })
    }

    /// The word `on`, or `off`.
    pub fn switch(&self, on: &str) -> Result<bool, String> {
        match self.value {
            "off" => Ok(false),
            other if other == on => Ok(true),
            _ => Err(self.wrong(format_args!("{on} or off"))),
        }
    }

    /// Whether programs have private logs, and where those lie.
    pub fn file_logs(&self) -> Result<(bool, FileLogs), String> {
        match self.value {
            "off" => Ok((false, FileLogs::None)),
            "daemon" => Ok((true, FileLogs::None)),
            "on" => Ok((true, FileLogs::Beside)),
            dir if dir.starts_with('/') => Ok((true, FileLogs::In(LogsPlace::from(dir)))),
            place => match place.strip_prefix("volatile:").filter(|dir| dir.starts_with('/')) {
                Some(dir) => Ok((true, FileLogs::In(LogsPlace::volatile(dir.as_ref())))),
                None => Err(self.wrong("not off, on, daemon, an absolute path or volatile:/DIR")),
            },
        }
    }

    /// Bytes, such as `2G`.
    pub fn size(&self) -> Result<u64, String> {
        parse_size(self.value).map_err(|e| self.wrong(e))
    }

    /// The size of a cache, in bytes.
    pub fn cache(&self) -> Result<u64, String> {
        match self.size()? {
            n if n >= MIN_CACHE => Ok(n),
            _ => Err(self.wrong("at least 8M")),
        }
    }

    /// Memory of a checkpoint, in bytes.
    pub fn memory(&self) -> Result<u64, String> {
        parse_memory(self.value).map_err(|e| format!("{}={e}", self.name))
    }

    /// Memory shared with a device process, in bytes; 0: none.
    pub fn arena(&self) -> Result<u64, String> {
        let bytes = if self.value == "0" { 0 } else { self.size()? };
        if bytes > MAX_ARENA {
            return Err(self.wrong(format_args!("at most {}M can be shared", MAX_ARENA >> 20)));
        }
        Ok(bytes)
    }

    /// Milliseconds; given as seconds, also in parts, from 0.01 to an hour.
    pub fn milliseconds(&self) -> Result<u64, String> {
        let wrong = || self.wrong("not a number of seconds from 0.01 to 3600");
        let (whole, part) = self.value.split_once('.').unwrap_or((self.value, "0"));
        if part.is_empty() || part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let part: u64 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
        match whole.checked_mul(1000).map(|ms| ms + part) {
            Some(ms) if (10..=3_600_000).contains(&ms) => Ok(ms),
            _ => Err(wrong()),
        }
    }

    /// A directory by its path from a root, which may begin with it; `None` for the root itself.
    pub fn directory(&self) -> Result<Option<PathBuf>, String> {
        let mut path = PathBuf::new();
        for part in Path::new(self.value).components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::RootDir | Component::CurDir => {}
                _ => return Err(self.wrong("not a path from the volume's root without `..`")),
            }
        }
        if self.value.is_empty() {
            return Err(self.wrong("not a path from the volume's root"));
        }
        Ok(Some(path).filter(|path| !path.as_os_str().is_empty()))
    }

    /// The type of a mount: letters and digits; `None` if it is empty.
    pub fn subtype(&self) -> Result<Option<String>, String> {
        let odd = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
        if self.value.contains(odd) {
            return Err(self.wrong("letters and digits only"));
        }
        Ok(Some(self.value.to_string()).filter(|v| !v.is_empty()))
    }
}

/// The size of a cache on the command line, in bytes.
///
/// # Errors
/// A message that says what is possible.
pub fn parse_cache(value: &str) -> Result<u64, String> {
    match parse_size(value).map_err(|e| format!("{value}: {e}"))? {
        bytes if bytes >= MIN_CACHE => Ok(bytes),
        _ => Err(format!("{value}: at least 8M")),
    }
}

/// Memory of a checkpoint on the command line, in bytes.
///
/// # Errors
/// A message that says what is possible.
pub fn parse_memory(value: &str) -> Result<u64, String> {
    let bytes = parse_size(value).map_err(|e| format!("{value}: {e}"))?;
    if bytes < MIN_MEMORY {
        return Err(format!("{value}: a checkpoint needs at least {}M", MIN_MEMORY >> 20));
    }
    Ok(bytes)
}
