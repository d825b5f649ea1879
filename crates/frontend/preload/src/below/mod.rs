//! What the library stands on instead of the program's memory and the C library's state.

pub mod file;
pub mod guard;
pub mod heap;
pub mod real;
pub mod renew;
pub mod user;
