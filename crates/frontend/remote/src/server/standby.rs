//! A server that waits to take a volume over: clients that find it are told so, and go on to the
//! next address that they know.

use super::session::refuse;
use super::{Logged, POLL};
use crate::Listener;
use siftfs_base::Error;
use std::time::Instant;

/// Tells all that connect why they get no session, until `over`. No connection lasts, and none is
/// heard: a client that says nothing keeps nobody waiting.
pub fn turn_away(listener: &Listener, why: &dyn Fn() -> String, over: &dyn Fn() -> bool) {
    let logged = Logged::default();
    while !over() {
        logged.look();
        match listener.accept(Some(POLL)) {
            Ok(Some(end)) => refuse(&end.sender, &Error::Refused(why())),
            Ok(None) => {}
            Err(error) => {
                let lines = logged.turned_away.note(&error.to_string(), Instant::now());
                Logged::turned_away(lines);
            }
        }
    }
}
