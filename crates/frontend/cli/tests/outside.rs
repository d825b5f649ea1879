//! Commands under conditions that users do not plan for: other users that inspect the volume,
//! programs that loop, daemons that are killed or stopped in the middle of a conversation, several
//! mounts of one volume, signals at any moment.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "outside/children.rs"]
mod children;
#[path = "outside/containers.rs"]
mod containers;
#[path = "outside/freezes.rs"]
mod freezes;
#[path = "outside/hung.rs"]
mod hung;
#[path = "outside/interrupted.rs"]
mod interrupted;
#[path = "outside/modes.rs"]
mod modes;
#[path = "manners/place.rs"]
#[allow(dead_code)]
mod place;
#[path = "outside/remounts.rs"]
mod remounts;
#[path = "../../fuse/tests/support/rings.rs"]
mod rings;
#[path = "outside/surroundings.rs"]
mod surroundings;
#[path = "outside/times.rs"]
mod times;
#[path = "outside/umounts.rs"]
mod umounts;
