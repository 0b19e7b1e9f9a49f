//! Functions that NVML does not have: with them, a test moves the clock and reads the state.

use std::ffi::{c_char, c_int};

use crate::layout;
use crate::pointer::Text;
use crate::world::{World, parse, world};

/// Loads a new script and resets the clock, the counters, the samples and the inits.
///
/// 0, or 1 if the script is refused. The reason is then on stderr, and the old script stays.
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

/// Moves the clock on by so many seconds.
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

/// GPM samples allocated and not freed.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_samples_alive() -> u64 {
    world().samples.len() as u64
}

/// Successful inits minus shutdowns.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_inits_alive() -> u64 {
    world().inits
}

/// The structs as this library has them, as JSON. The text lives as long as the library.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_layout() -> *const c_char {
    layout::json().as_ptr()
}
