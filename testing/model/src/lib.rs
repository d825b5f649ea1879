//! The judges of SiftFS: a file system in memory, sequences of operations for it and the real
//! one, and the oracle that says what may be left after a power cut.
//!
//! * [`Model`] carries out the file protocol in plain words and shares no code with the Runtime.
//! * [`Generator`] makes seeded sequences of operations; [`Lockstep`] runs one on a file service
//!   and the model and compares every answer and whole trees.
//! * [`Oracle`] follows a sequence, notes what was made durable, and judges the tree that a
//!   recovery brought back. Its module says, clause by clause, what is allowed.

pub mod compare;
mod content;
mod generator;
mod generator_compounds;
mod generator_sections;
mod history;
mod lockstep;
mod lockstep_compounds;
mod model;
mod model_access;
mod model_acl;
mod model_attr;
mod model_compound;
mod model_compound_files;
mod model_compound_names;
mod model_compute;
mod model_data;
mod model_names;
mod model_publish;
mod model_sections;
mod op;
mod oracle;
mod oracle_check;
mod oracle_compounds;
mod oracle_found;
mod oracle_sections;
mod rng;
mod scripts;
mod service;
mod shrink;
pub mod tree;

pub use content::{Content, PAGE};
pub use generator::{Generator, Profile};
pub use lockstep::{Control, Ids, Lockstep, NoControl};
pub use model::{Effects, Fresh, KnownTime, Model, Node, Outcome};
pub use op::{Action, FIRST_INO, Op};
pub use oracle::Oracle;
pub use rng::{Rng, mix, pattern};
pub use service::ModelService;
pub use shrink::shrink;
pub use tree::{Caller, Seen, Tree};
