//! Programs to which hosts have granted blocks of the area.

mod atomic;
mod attached;
mod counts;
#[cfg(test)]
pub(crate) mod door_tests;
mod entrance;
mod fresh;
mod grant;
mod grants;
pub mod queue;
mod request;
mod table;

pub(crate) use attached::{Attached, Attaching, Opening};
pub(crate) use entrance::Entering;
pub(crate) use fresh::Report;
pub(crate) use grant::Within;
pub(crate) use grants::{HostGrants, Settled, Tokens};
pub(crate) use request::{Access, Line, Plan, Request, plan};
