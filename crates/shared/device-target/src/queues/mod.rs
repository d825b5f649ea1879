//! A program's queues at a target: requests on what hosts have granted to it, in an order that the
//! target keeps (`docs/design/target.md`, "Queues").

mod lines;
mod queue;
mod sequence;
mod writes;

pub use lines::{Connects, Lines};
pub use queue::{Covered, Queue, Turn};
pub use sequence::{Kind, RequestOrder};
pub use writes::{Failed, Kept, Next};
