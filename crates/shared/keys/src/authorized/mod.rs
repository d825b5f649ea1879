//! The keys that a server admits, and what each of them may do.

mod line;
mod list;
mod options;
mod words;

pub use line::{AuthorizedLine, Role, Use, Volumes};
pub use list::{Authorized, AuthorizedFile};
