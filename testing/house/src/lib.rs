//! House rules that are read off the sources: which crate may know which, imports that go round in
//! circles, and what else no compiler says. `make lint` runs the tests of this crate.

pub mod functions;
pub mod imports;
pub mod methods;
pub mod sources;
