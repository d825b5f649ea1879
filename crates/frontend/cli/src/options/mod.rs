//! What a user can say: the command line and `-o`.

pub mod args;
pub mod mount;
pub mod option_list;
pub mod place;
pub mod size;
