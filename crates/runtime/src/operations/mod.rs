//! Operations that change several things together (`docs/design/operations.md`).

pub mod publish;
pub mod sections;
