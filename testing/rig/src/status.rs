//! `siftfs status --json`, read by programs that measure. The types take a document that lacks a
//! field, and have zero in its place; a measurement of that would be wrong in silence.

use crate::place::{Failed, Result};
use serde::Deserialize;
use serde_json::Value;
use siftfs_status::Status;

/// The document, all of it.
///
/// # Errors
/// It makes no sense, or lacks something.
pub fn read(text: &str) -> Result<Status> {
    let failed = |e: serde_json::Error| Failed(format!("status: {e}"));
    let given: Value = serde_json::from_str(text).map_err(failed)?;
    let status = Status::deserialize(&given).map_err(failed)?;
    let known = serde_json::to_value(&status).map_err(failed)?;
    match missing(&known, &given) {
        Some(path) => Err(Failed(format!("status has nothing at {path}"))),
        None => Ok(status),
    }
}

/// The path of something that `known` has and `given` has not.
fn missing(known: &Value, given: &Value) -> Option<String> {
    match known {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match given.get(name) {
            Some(given) => missing(value, given).map(|path| format!("/{name}{path}")),
            None => Some(format!("/{name}")),
        }),
        Value::Array(list) => list.iter().enumerate().find_map(|(i, value)| {
            let given = given.get(i)?;
            missing(value, given).map(|path| format!("/{i}{path}"))
        }),
        _ => None,
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
