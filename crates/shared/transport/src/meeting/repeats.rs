//! What peers can cause to be said as often as they like, in few lines of a log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same thing is counted before it is said again.
const TERM: Duration = Duration::from_secs(10);
/// Different things that are told apart at a time.
const APART: usize = 16;
/// Bytes of a text that are said: some of it may be the peer's.
const LONGEST: usize = 500;
/// What stands for everything beyond [`APART`].
const OTHER: &str = "";

/// Something that was said, since when it is counted.
struct Said {
    key: String,
    since: Instant,
    /// How often it has happened again.
    more: u64,
    /// How it was last.
    last: String,
}

/// Events of one kind, such as connections that are refused. An event is said at once, and its like
/// within the next 10 s are counted: one more line says how many they were.
///
/// Texts that differ only in a port or the number of a process are alike. At most 16 different ones
/// are told apart at a time; all others count as one.
#[derive(Default)]
pub struct Repeats {
    /// In the order of their times.
    said: Mutex<VecDeque<Said>>,
}

/// The text without the numbers of ports and processes.
fn key(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let after = number.trim_start_matches(|c: char| c.is_ascii_digit());
        let (digits, _) = number.split_at(number.len() - after.len());
        let varies = before.ends_with(':') || before.ends_with("process ");
        key.push_str(before);
        key.push_str(if varies { "#" } else { digits });
        rest = after;
    }
    key + rest
}

fn short(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let (short, rest) = text.split_at(end.unwrap_or_default());
    if rest.is_empty() { short.into() } else { format!("{short}...") }
}

fn again(said: &Said) -> String {
    format!("{}, and {} more in the last {} s", said.last, said.more, TERM.as_secs())
}

impl Repeats {
    /// Notes an event. Returns the lines that are to be said now, by whose time it was called.
    pub fn note(&self, text: &str, now: Instant) -> Vec<String> {
        let text = short(text);
        let mut key = key(&text);
        let mut all = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = due(&mut all, now);
        if !all.iter().any(|said| said.key == key) && all.len() >= APART {
            key = OTHER.into();
        }
        match all.iter_mut().find(|said| said.key == key) {
            Some(said) => {
                said.more += 1;
                said.last = text;
            }
            None => {
                lines.push(text.clone());
                all.push_back(Said { key, since: now, more: 0, last: text });
            }
        }
        lines
    }

    /// The lines that are to be said by now, of events that were noted before.
    pub fn due(&self, now: Instant) -> Vec<String> {
        due(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Takes what was counted for a term. What has happened again is counted on.
fn due(all: &mut VecDeque<Said>, now: Instant) -> Vec<String> {
    let mut lines = Vec::new();
    while all.front().is_some_and(|said| now.saturating_duration_since(said.since) >= TERM) {
        let Some(said) = all.pop_front().filter(|said| said.more > 0) else { continue };
        lines.push(again(&said));
        all.push_back(Said { since: now, more: 0, ..said });
    }
    lines
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;
