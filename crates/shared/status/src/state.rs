//! Whether a process serves its volume, and whether what it says of itself is healthy.

use crate::{RuntimeStatus, Status};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::atomic::{AtomicU8, Ordering};

/// Milliseconds after which a call of the storage that has not returned counts as stuck. A cluster
/// that loses a disk lets calls wait for about half of that, and then answers them.
pub const STUCK_MS: u64 = 60_000;

/// How what a device says of a fence begins, wherever it stands in a message.
const FENCE: &str = "fenced: ";

/// What a process does with its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// The volume is open, and answers.
    Serving,
    /// Another process has the volume; this one waits to take it over.
    Standby,
    /// The volume is being opened, or a mount waits for its server.
    Recovering,
    /// A write or flush failed: changes and fsyncs are errors until the volume is opened again.
    Latched,
    /// Another process has taken the volume over: this one writes nothing more.
    Fenced,
    /// The process ends in order.
    Closing,
}

impl State {
    /// All of them.
    pub const ALL: [State; 6] = [
        State::Serving,
        State::Standby,
        State::Recovering,
        State::Latched,
        State::Fenced,
        State::Closing,
    ];

    /// As the document has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Standby => "standby",
            Self::Recovering => "recovering",
            Self::Latched => "latched",
            Self::Fenced => "fenced",
            Self::Closing => "closing",
        }
    }

    /// The state of this name, if it is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// What a volume that is open says of itself: it serves, or has latched, or was fenced.
    pub fn of(runtime: &RuntimeStatus) -> Self {
        match &runtime.failed {
            None => Self::Serving,
            Some(why) if why.contains(FENCE) => Self::Fenced,
            Some(_) => Self::Latched,
        }
    }

    /// Its name and what it means, in one line.
    pub fn line(self) -> String {
        format!("{}: {}", self.name(), self.means())
    }

    /// What that means, for people.
    fn means(self) -> &'static str {
        match self {
            Self::Serving => "the volume is open",
            Self::Standby => "another process has the volume, and this one waits",
            Self::Recovering => "the volume is not open yet",
            Self::Latched => "a write or flush failed",
            Self::Fenced => "another process has taken the volume over",
            Self::Closing => "the process ends",
        }
    }
}

/// The state of this name; none where it is not said, and where a process of another version names
/// one that is not known.
pub(crate) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<State>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    Ok(name.as_deref().and_then(State::named))
}

/// Where a process notes its state, and where others in it read that. It begins as
/// [`State::Recovering`]. Notes by several threads are in no order.
#[derive(Debug)]
pub struct StateCell(AtomicU8);

impl Default for StateCell {
    fn default() -> Self {
        Self(AtomicU8::new(State::Recovering as u8))
    }
}

impl StateCell {
    /// From now on it is this.
    pub fn set(&self, state: State) {
        self.0.store(state as u8, Ordering::Release);
    }

    /// What was noted last.
    pub fn get(&self) -> State {
        let noted = self.0.load(Ordering::Acquire);
        let found = State::ALL.into_iter().find(|state| *state as u8 == noted);
        found.expect("a state was stored")
    }

    /// The same; of a process that serves, what its volume says.
    pub fn beside(&self, runtime: &RuntimeStatus) -> State {
        match self.get() {
            State::Serving => State::of(runtime),
            noted => noted,
        }
    }
}

impl Status {
    /// Why the volume is not healthy, in one line; `None` if it serves, has not latched, was not
    /// fenced, and no call of its storage is stuck ([`STUCK_MS`]).
    pub fn unhealthy(&self) -> Option<String> {
        if let Some(why) = self.server.as_ref().and_then(|server| server.lost.as_ref()) {
            return Some(line(&format!("the server is lost: {why}")));
        }
        let state = self.state.unwrap_or_else(|| State::of(&self.runtime));
        if state != State::Serving {
            let why = self.runtime.failed.as_deref().unwrap_or_else(|| state.means());
            return Some(line(&format!("{}: {why}", state.name())));
        }
        if let Some(why) = &self.runtime.failed {
            return Some(line(&format!("{}: {why}", State::of(&self.runtime).name())));
        }
        let oldest = self.oldest_call_ms();
        (oldest >= STUCK_MS)
            .then(|| format!("a call of the storage has not returned for {} s", oldest / 1000))
    }

    /// Milliseconds for which the oldest call of the storage has not returned; 0: none waits.
    pub fn oldest_call_ms(&self) -> u64 {
        let devices = self.runtime.devices.iter();
        let clusters = devices.filter_map(|device| device.cluster.as_ref());
        let waits = clusters.map(|cluster| cluster.longest_ms);
        waits.fold(self.runtime.queues.oldest_call_ms, u64::max)
    }
}

/// What is said, as one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
