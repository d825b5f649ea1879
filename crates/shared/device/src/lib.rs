//! Storage: the device trait with explicit write, flush and FUA semantics, its backends, and
//! the counted, bounds-checked regions that each role is handed.

mod api;
pub use api::*;
