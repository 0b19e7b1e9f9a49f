//! Isolates panics in adapters from the training process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::IN_MODEL;

/// Calls an adapter, and returns the message of a panic as an error.
///
/// The panic hook still prints once, which a bug report needs. Callers do not call the adapter again after
/// a panic, because its state may be broken: `sampling/sources.rs` disables a source, and
/// `delivery/export_thread.rs` an exporter.
///
/// # Errors
///
/// The panic's message.
pub fn contain<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    if IN_MODEL {
        // A panic is a fault that loom reports.
        return Ok(call());
    }
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message")
            .to_owned();
        // A payload whose own `drop` panics must not reach the caller either.
        std::mem::forget(payload);
        format!("internal error in headspace: {message}. Please report it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_returned_as_its_message() {
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = contain(|| panic!("engine {} is gone", 3));
        std::panic::set_hook(quiet);

        let text = "internal error in headspace: engine 3 is gone. Please report it";
        assert_eq!(outcome, Err(text.to_owned()));
    }
}
