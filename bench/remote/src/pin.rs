//! On which processors the ends run.

use rustix::thread::{CpuSet, sched_setaffinity};
use siftfs_rig::place::{Failed, Result};

/// A processor for each end, the server's first, or none.
#[derive(Clone, Copy, Debug)]
pub struct Pin(pub Option<(usize, usize)>);

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let both = || {
            let (server, client) = text.split_once(',')?;
            Some((server.parse().ok()?, client.parse().ok()?))
        };
        match (text, both()) {
            ("none", _) => Ok(Self(None)),
            (_, Some((server, client))) if server != client => Ok(Self(Some((server, client)))),
            _ => Err("neither two processors such as 0,1, nor none".into()),
        }
    }
}

impl Pin {
    /// For people.
    pub fn label(self) -> String {
        match self.0 {
            Some((server, client)) => format!(
                "pinned apart: server on processor {server}, client on {client}, both spin on shared memory; the \
                 program that has the volume itself calls on {client}, and its volume's threads run on both"
            ),
            None => "nothing is pinned, nobody spins".into(),
        }
    }

    /// The calling thread, and those that it starts, run where clients do.
    pub fn to_client(self) -> Result<()> {
        let Some((_, client)) = self.0 else { return Ok(()) };
        let mut set = CpuSet::new();
        if client >= CpuSet::MAX_CPU {
            return Err(Failed(format!("processor {client}: there is no such one")));
        }
        set.set(client);
        sched_setaffinity(None, &set)
            .map_err(|e| Failed(format!("processor {client}: {e}; --pin none pins nothing")))
    }
}

#[cfg(test)]
#[path = "pin_tests.rs"]
mod tests;
