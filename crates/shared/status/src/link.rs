//! The way from the Runtime to the Service.

use serde::{Deserialize, Serialize};

/// Where the Service is, and how the connection to it fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Fields")]
pub struct Link {
    /// `host`: in the mount's process; `device`: in another one.
    pub placement: String,
    /// Processor time of the mount's process in microseconds.
    pub host_cpu_us: u64,
    /// The connection, which there is with a device process alone. Its fields stand beside the
    /// others in the document.
    #[serde(flatten)]
    pub remote: Option<Remote>,
}

/// The connection to a device process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remote {
    /// Where the device process listens.
    pub address: String,
    /// Which process answered last, for people.
    pub peer: String,
    /// A process does the background work.
    pub connected: bool,
    /// And it is the mount's own.
    pub fallback: bool,
    /// Seconds after which the mount's own process does it in the place of one that is away; none
    /// if never.
    pub fallback_after_s: Option<f64>,
    /// These have passed, and the process that is away keeps its place: what needs it gets
    /// ETIMEDOUT.
    pub overdue: bool,
    /// Seconds for which no process has done it; none while one does.
    pub away_s: Option<f64>,
    /// Why no process does it, for people.
    pub trouble: Option<String>,
    /// Times that a process began to do it.
    pub greetings: u64,
    /// Times that the process was gone.
    pub losses: u64,
    /// Times that the mount's process began to serve.
    pub takeovers: u64,
    /// Times that the other side refused a Hello.
    pub refusals: u64,
    /// Answers that this side refused, and bytes that are no message.
    pub objections: u64,
    /// Seconds without a process that does it, all together; a wait that lasts is not in it.
    pub waited_s: f64,
    /// Hints sent that small durable steps are expected.
    pub hints: u64,
    /// Messages sent, repetitions included.
    pub messages: u64,
    /// Messages kept until they are answered.
    pub unanswered: u64,
}

impl Link {
    /// As a process describes it that has the Service in itself.
    pub fn host() -> Self {
        Self { placement: "host".into(), ..Self::default() }
    }

    /// As a process describes it whose Service is in another one.
    pub fn device(remote: Remote) -> Self {
        Self { placement: "device".into(), remote: Some(remote), ..Self::default() }
    }
}

/// A link as it is read: `placement` decides whether there is a connection, and not which of a
/// connection's fields happen to be there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    placement: String,
    host_cpu_us: u64,
    #[serde(flatten)]
    remote: Remote,
}

impl From<Fields> for Link {
    fn from(f: Fields) -> Self {
        let remote = (f.placement == "device").then_some(f.remote);
        Self { placement: f.placement, host_cpu_us: f.host_cpu_us, remote }
    }
}
