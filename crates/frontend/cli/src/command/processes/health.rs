//! `siftfs status --healthy`: does a volume serve, for those who watch mounts and servers.

use crate::command::live::status_of;
use crate::options::args;
use crate::options::mount as mount_options;
use crate::options::served::{Served, served};
use crate::show::failure::{FAILED, Failure, Outcome, USAGE};
use crate::show::output::{print_json, say};
use serde_json::json;
use siftfs_proto::{Credentials, FileService, Reply, Request};
use siftfs_remote::{Claim, Trust, Ways, claim_at};
use siftfs_status::{State, Status};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long a volume may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(15);

/// What was found out of a volume.
struct Found {
    /// What its process does; none if that could not be asked.
    state: Option<State>,
    /// Why it is not healthy, in one line.
    why: Option<String>,
    /// Where it was asked.
    address: Option<String>,
}

/// `siftfs status --healthy`. 0 if the volume is healthy, and 1 with the reason if it is not.
pub fn healthy(a: &args::Status) -> Outcome {
    let found = ask(a)?;
    let is_healthy = found.why.is_none();
    if a.json {
        let state = found.state.map(State::name);
        let Found { why, address, .. } = found;
        let said = json!({ "healthy": is_healthy, "state": state, "why": why, "address": address });
        print_json(&said)?;
        return Ok(if is_healthy { 0 } else { FAILED });
    }
    match found.why {
        Some(why) => Err(Failure::about(&a.dir, why)),
        None => {
            let at = found.address.map_or(String::new(), |address| format!(", at {address}"));
            say(format_args!("{}: healthy{at}", a.dir.display()))?;
            Ok(0)
        }
    }
}

/// Asks the volume, which may not answer: a path of a mount may not even be looked up then.
///
/// # Errors
/// The command line is wrong.
fn ask(a: &args::Status) -> Result<Found, Failure> {
    let (dir, lists) = (a.dir.clone(), a.options.clone());
    let (tell, told) = channel();
    let asks = move || {
        let found = mount_options::parse(&lists, false)
            .and_then(|options| Ok((served(&dir, &options.served)?, options.service.trust)))
            .map_err(|why| Failure::plain(why).with_code(USAGE))
            .map(|(served, trust)| match served {
                Some(served) => of_server(&served, &trust),
                None => of_mount(&dir),
            });
        // Nobody listens any more if it took too long.
        let _ = tell.send(found);
    };
    thread::Builder::new().name("siftfs-healthy".into()).spawn(asks).map_err(Failure::plain)?;
    let why = match told.recv_timeout(PATIENCE) {
        Ok(found) => return found,
        Err(RecvTimeoutError::Timeout) => {
            format!("it does not answer within {} s", PATIENCE.as_secs())
        }
        Err(RecvTimeoutError::Disconnected) => "it could not be asked".into(),
    };
    Ok(Found { state: None, why: Some(why), address: None })
}

/// What the daemon of a mount says.
fn of_mount(dir: &std::path::Path) -> Found {
    match status_of(dir) {
        Ok(status) => Found {
            state: status.state,
            why: status.unhealthy(),
            address: status.server.map(|server| server.address),
        },
        Err(failure) => Found { state: None, why: Some(failure.message), address: None },
    }
}

/// What a server says to an administrator.
fn of_server(served: &Served, trust: &Trust) -> Found {
    let first = served.addresses.first();
    let claim = if served.addresses.are_remote() { Claim::Owner } else { claim_at(first) };
    let ways = Ways::trusting(&served.addresses, trust);
    let said = ways.open(&served.volume, claim).and_then(|client| {
        let status = client.call(&Credentials::default(), Request::Status);
        status.and_then(Reply::status)
    });
    let address = Some(ways.address().to_string());
    match said {
        Ok(runtime) => {
            let state = Some(State::of(&runtime));
            let why = Status { state, runtime, ..Status::default() }.unhealthy();
            Found { state, why, address }
        }
        // A server that waits says so instead of opening a session.
        Err(error) => {
            let why = error.to_string();
            let state = why.contains(State::Standby.name()).then_some(State::Standby);
            Found { state, why: Some(why), address: None }
        }
    }
}
