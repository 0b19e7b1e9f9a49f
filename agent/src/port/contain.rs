//! Keeps a fault in an adapter from becoming a fault of the training process.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls into an adapter; a panic comes back as its message.
///
/// The panic hook still prints, once, which is what a bug report needs. The adapter is not called
/// again after a panic, so that its broken state is never seen.
///
/// # Errors
///
/// The panic's message.
pub fn contain<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message")
            .to_owned();
        // A payload whose own `drop` panics must not reach the caller either.
        std::mem::forget(payload);
        format!("it panicked: {message}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_as_its_message() {
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = contain(|| panic!("engine {} is gone", 3));
        std::panic::set_hook(quiet);

        assert_eq!(outcome, Err("it panicked: engine 3 is gone".to_owned()));
    }
}
