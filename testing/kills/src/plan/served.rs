//! Volumes that a server has: what the workers' mount is then, what becomes of the server, and how
//! such rounds end.

use super::{Mount, Only, draw, skewed};
use siftfs_model::Rng;

/// What becomes of the server while the load goes on.
pub(super) const INCIDENTS: [&str; 6] = [
    "server",
    "server-twice",
    "server-recovering",
    "server-term",
    "server-stop",
    "server-and-device",
];
/// What is so in every round if it is asked for by name, else in some: files are made without a
/// name.
pub(super) const NAMED: [&str; 1] = ["nameless"];
/// How such rounds end.
pub(super) const ENDS: [&str; 7] = [
    "unmount",
    "client",
    "client-then-server",
    "server-then-client",
    "all",
    "client-in-unmount",
    "server-in-unmount",
];
/// Options that belong to the process that has the volume. The others are the workers' mount's.
const OF_VOLUME: [&str; 12] = [
    "replay",
    "commit",
    "low_watermark",
    "group_wait",
    "fsyncs",
    "cache",
    "meta_cache",
    "checkpoint_memory",
    "service_memory",
    "service_spin",
    "nouring",
    "nodirect",
];

/// Which program serves the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `siftfs serve`.
    Serve,
    /// `siftfs mount VOLUME DIR --listen`: it has a mount of its own beside.
    Mount,
}

/// The workers' mount is one of a volume that another process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which program serves it.
    pub by: By,
    /// The mount reaches it over TCP, with keys that make it a trusted machine's; else by a unix
    /// socket.
    pub tcp: bool,
    /// Arguments of the serving program.
    pub server: Vec<String>,
    /// Workers make files without a name.
    pub nameless: bool,
}

/// What becomes of the server. The workers' mount waits for it: none of their calls fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// SIGKILL; another one after this many milliseconds.
    Kill(u64),
    /// SIGKILL, and again when its successor has served for this many milliseconds: mostly while
    /// the mount comes back.
    Twice(u64),
    /// SIGKILL, and again when its successor is this many milliseconds old: while it recovers.
    Recovering(u64),
    /// SIGTERM: it ends in order. Another one after this many milliseconds.
    Term(u64),
    /// SIGSTOP; after this many milliseconds it goes on if they are even, else it is killed.
    Stop(u64),
    /// SIGKILL of server and device process; both are there again after this many milliseconds.
    WithDevice(u64),
}

/// How the load of a round ends, or its unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// SIGKILL of the workers' mount. The server goes on, with all that it has answered.
    Client,
    /// The same, and of the server after this many milliseconds.
    ClientThenServer(u64),
    /// The other way round.
    ServerThenClient(u64),
    /// SIGKILL of server, device process and mount at once.
    All,
    /// SIGKILL of the mount's daemon this many milliseconds into an unmount.
    ClientInUnmount(u64),
    /// SIGKILL of the server then: the mount goes, and says whether it had made durable what it
    /// kept.
    ServerInUnmount(u64),
}

impl Served {
    /// Draws who serves `mount`'s volume, and takes that side's options out of the mount's.
    pub(super) fn draw(rng: &mut Rng, mount: &mut Mount, only: &Only) -> Self {
        mount.options = mount.options.replace("=writeback", "=writethrough");
        let is_of_volume =
            |option: &&str| OF_VOLUME.contains(&option.split('=').next().unwrap_or_default());
        let (volume, kernel): (Vec<&str>, Vec<&str>) =
            mount.options.split(',').partition(is_of_volume);
        let by = draw(rng, &[By::Serve, By::Serve, By::Mount]);
        let server = match by {
            By::Mount => vec!["-o".to_string(), volume.join(",")],
            By::Serve => {
                let schedule = draw(rng, &["fcfs", "fair"]);
                let executors = draw(rng, &[2, 8]);
                vec![format!("--schedule={schedule}"), format!("--executors={executors}")]
            }
        };
        // The server opens the volume by its path.
        mount.target = false;
        if by == By::Serve {
            // It knows none.
            mount.fallback = None;
        }
        mount.options = kernel.join(",");
        let nameless = rng.chance(50) || only.names(NAMED[0]);
        Self { by, tcp: rng.chance(25), server, nameless }
    }
}

impl Death {
    pub(super) fn draw(rng: &mut Rng, word: &str) -> Self {
        let ms = skewed(rng, 400);
        match word {
            "server-twice" => Self::Twice(skewed(rng, 400)),
            "server-recovering" => Self::Recovering(skewed(rng, 120)),
            "server-term" => Self::Term(ms),
            "server-stop" => Self::Stop(ms),
            "server-and-device" => Self::WithDevice(ms),
            _ => Self::Kill(ms),
        }
    }

    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill(_) => "server",
            Self::Twice(_) => "server-twice",
            Self::Recovering(_) => "server-recovering",
            Self::Term(_) => "server-term",
            Self::Stop(_) => "server-stop",
            Self::WithDevice(_) => "server-and-device",
        }
    }

    /// The words of which one may be drawn.
    pub(super) fn words(only: &Only, device: bool) -> Vec<&'static str> {
        let mut words = only.of(&INCIDENTS);
        words.retain(|word| device || *word != "server-and-device");
        if words.is_empty() { vec!["server"] } else { words }
    }
}

impl Finish {
    /// The end with this word; `None` for an unmount in order.
    pub(super) fn draw(rng: &mut Rng, only: &Only) -> Option<Self> {
        let word = draw(rng, &only.of(&ENDS));
        let ms = skewed(rng, 200);
        match word {
            "client" => Some(Self::Client),
            "client-then-server" => Some(Self::ClientThenServer(ms)),
            "server-then-client" => Some(Self::ServerThenClient(ms)),
            "all" => Some(Self::All),
            "client-in-unmount" => Some(Self::ClientInUnmount(ms)),
            "server-in-unmount" => Some(Self::ServerInUnmount(ms)),
            _ => None,
        }
    }

    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::ClientThenServer(_) => "client-then-server",
            Self::ServerThenClient(_) => "server-then-client",
            Self::All => "all",
            Self::ClientInUnmount(_) => "client-in-unmount",
            Self::ServerInUnmount(_) => "server-in-unmount",
        }
    }

    /// The mount's daemon dies, and its server lives: what was answered is in the server's memory.
    pub fn keeps_answered(self) -> bool {
        matches!(self, Self::Client | Self::ClientInUnmount(_))
    }
}
