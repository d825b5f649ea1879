//! A program's queues at a target: requests on what hosts have granted to it, in an order that the
//! target keeps (`docs/design/target.md`, "Queues").

mod atomic;
mod lines;
mod queue;
mod sequence;
mod writes;

pub use atomic::{Fate, Outcome};
pub use lines::{Connects, Lines};
pub use queue::{Covered, Queue, Turn};
pub use sequence::{Kind, RequestOrder, Sequence, Taken};
pub use writes::{Failed, Kept, Next};
