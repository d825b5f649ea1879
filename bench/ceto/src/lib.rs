//! What of the figures works on mounts, as a library, so that the command's tests can run it. All
//! else is the program's.

pub mod table3;
