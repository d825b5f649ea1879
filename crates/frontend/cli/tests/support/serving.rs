//! Servers of volumes, for tests of mounts whose volume another process has: those that ask for
//! one, and all others where SIFTFS_TEST_REMOTE says so.

use super::{Ran, SIFTFS};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Serves `volume` at a unix socket beside it.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_start(volume: &str) -> Result<Self, Ran> {
        Self::try_at(volume, &address_of(volume))
    }

    /// Serves `volume`, which may be one that a target has, at this unix socket.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_at(volume: &str, address: &str) -> Result<Self, Ran> {
        let log =
            format!("{}.served.log", address.trim_start_matches("unix:").trim_end_matches(".sock"));
        let address = address.to_owned();
        let mut child = Command::new(SIFTFS)
            .args(["serve", volume, "--listen", &address, "--log-file", &log, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.contains("listening") {
            true => Ok(Self { child, address }),
            false => Err(child.wait_with_output().unwrap().into()),
        }
    }

    /// As [`Server::try_start`], which must succeed.
    #[track_caller]
    pub fn start(volume: &str) -> Self {
        Self::try_start(volume).unwrap_or_else(|ran| panic!("{ran:?}"))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends it a signal, and waits for its end.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a server of `volume` listens.
pub fn address_of(volume: &str) -> String {
    format!("unix:{volume}.sock")
}

/// Is every mount of a test to be one of a served volume?
pub fn everywhere() -> bool {
    std::env::var("SIFTFS_TEST_REMOTE").is_ok_and(|on| on == "1")
}

/// Servers that tests did not ask for, by their volumes.
static SERVERS: Mutex<Option<HashMap<String, Server>>> = Mutex::new(None);

fn servers() -> MutexGuard<'static, Option<HashMap<String, Server>>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does an option belong to the volume? It means nothing for a mount of a served one.
fn is_of_volume(word: &str) -> bool {
    const NAMES: [&str; 6] =
        ["commit", "cache", "meta_cache", "noatime", "checkpoint_memory", "low_watermark"];
    NAMES.contains(&word.split('=').next().unwrap_or_default())
}

/// The arguments of a mount, with the volume's server in its place, and without the volume's own
/// options. A volume that no server of these tests has gets one.
///
/// # Errors
/// What the server says.
pub fn instead(args: &[&str]) -> Result<Vec<String>, Ran> {
    let mut out: Vec<String> = args.iter().map(ToString::to_string).collect();
    let is_value = |at: usize| at > 0 && matches!(args[at - 1], "-o" | "--log" | "--log-file");
    let volume = (1..args.len()).find(|at| !args[*at].starts_with('-') && !is_value(*at));
    let Some(at) = volume else { return Ok(out) };
    let remount = args.iter().any(|arg| arg.split(',').any(|word| word == "remount"));
    let volume = args[at];
    if !std::path::Path::new(volume).is_file() && !volume.starts_with("/dev/") {
        return Ok(out);
    }
    if !remount {
        let mut servers = servers();
        let servers = servers.get_or_insert_default();
        if !servers.contains_key(volume) {
            servers.insert(volume.into(), Server::try_start(volume)?);
        }
    }
    out[at] = address_of(volume);
    for list in (1..out.len()).filter(|at| is_value(*at)) {
        let words = out[list].split(',').filter(|word| !is_of_volume(word));
        out[list] = words.collect::<Vec<_>>().join(",");
    }
    Ok(out)
}

/// A command is about to work on the volumes among `args` themselves: the servers of those that are
/// not mounted end first.
pub fn make_way(args: &[&str]) {
    if !everywhere() {
        return;
    }
    let mounted = siftfs_fuse::mounts().unwrap_or_default();
    let is_mounted = |volume: &str| {
        let address = address_of(volume);
        mounted.iter().any(|m| m.source.to_str() == Some(&address))
    };
    let mut servers = servers();
    let Some(servers) = servers.as_mut() else { return };
    let idle = |arg: &&&str| servers.contains_key(**arg) && !is_mounted(arg);
    let idle: Vec<_> = args.iter().filter(idle).map(ToString::to_string).collect();
    for volume in idle {
        let server = servers.remove(&volume).expect("it is there");
        let ended = server.end(Signal::TERM);
        assert!(ended.success(), "the server of {volume} ended with {ended}");
    }
}

/// The volume goes, and its server with it.
pub fn forget(volume: &str) {
    drop(servers().as_mut().and_then(|servers| servers.remove(volume)));
}
