//! The figures, one in a file. Each is a function of [`crate::Plan`] that answers an
//! [`siftfs_rig::figure::Output`]; [`beside`] has words of its own.

pub mod beside;
pub mod fairness;
pub mod fig11;
pub mod fig12;
pub mod fig13;
pub mod fig14;
pub mod fig15a;
pub mod fig15b;
pub mod fig2;
pub mod open;
pub mod table1;
pub mod table2;
