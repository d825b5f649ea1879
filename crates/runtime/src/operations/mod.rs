//! Operations that change several files together (`docs/design/operations.md`).

pub mod publish;
