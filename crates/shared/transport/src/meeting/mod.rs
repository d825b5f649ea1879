//! How two sides meet: one listens, the other connects, and they agree to talk.

mod begin;
pub(crate) mod connect;
mod door;
mod listener;
mod queues;
mod repeats;
mod secured;

pub use connect::{connect, connect_over, dial_unix, nobody_listens, reach};
pub use listener::Listener;
pub use repeats::Repeats;
pub use secured::{Secured, Trust};
