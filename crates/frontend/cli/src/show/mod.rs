//! What a user sees: texts, numbers, progress, and how a command ends.

pub mod failure;
pub mod human;
pub mod output;
pub mod progress;
pub mod status_text;
