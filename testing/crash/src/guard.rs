//! Panics of what is tested, as errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `one`; a panic becomes an error.
pub(crate) fn guarded<T>(one: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(one)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
