//! ioctl(2): SiftFS's own operations on a mount, and fstrim(8)'s.
//!
//! `operations` reads the number of the call and finds the operation; each has a file of its own.
//! The kernel checks nothing for an ioctl that it checks for a system call by path: `view` and
//! `descriptors` do that.

mod commit_all;
pub(crate) mod compound;
mod descriptors;
mod operations;
mod publish;
pub(crate) mod section_table;
mod sections;
mod trim;
mod view;
