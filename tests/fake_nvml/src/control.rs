//! Functions that the real NVML does not have. A test uses them to advance the clock and to read
//! the state.

use std::ffi::{c_char, c_int};

use crate::layout;
use crate::pointer::Text;
use crate::world::{World, parse, world};

/// Loads a new script and resets the clock, the counters, the samples and the inits.
///
/// Returns 0, or 1 if the script is refused. A refused script changes nothing, and the reason is
/// printed to stderr.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_script(json: Text) -> c_int {
    let read = json
        .get()
        .map_err(|_| "it is no text".to_owned())
        .and_then(parse);
    match read {
        Ok(script) => {
            *world() = World::new(script, None);
            0
        }
        Err(problem) => {
            eprintln!("fake_nvml: the script is refused: {problem}");
            1
        }
    }
}

/// Moves the clock forward by `seconds`.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_advance(seconds: f64) {
    world().advance(seconds);
}

/// The clock, in seconds.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_now() -> f64 {
    world().now()
}

/// How often a function was called, refused calls included.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_calls(function: Text) -> u64 {
    let name = function.get().unwrap_or_default();
    world().calls.get(name).copied().unwrap_or(0)
}

/// Number of GPM samples that are allocated and not freed.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_samples_alive() -> u64 {
    world().samples.len() as u64
}

/// Successful inits minus shutdowns.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_inits_alive() -> u64 {
    world().inits
}

/// The layout of this library's structs, as JSON. The text is never freed.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_layout() -> *const c_char {
    layout::json().as_ptr()
}
