//! Programs to which hosts have granted blocks of the area.

mod atomic;
mod attached;
mod counts;
#[cfg(test)]
mod door_tests;
mod entrance;
mod fresh;
mod grant;
mod grants;
pub mod queue;
mod table;

pub(crate) use attached::Attached;
pub(crate) use fresh::Report;
pub(crate) use grants::{HostGrants, Settled, Tokens};
