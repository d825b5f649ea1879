//! What a user can say: the command line and `-o`.

pub mod args;
pub mod execution;
pub mod given;
pub mod keys;
pub mod mount;
pub mod parsed;
pub mod place;
pub mod programs;
pub mod serve;
pub mod served;
pub mod size;
pub mod status;
pub mod table;
pub mod target;
pub mod volumes;
