//! Gives an input to every parser of kernel files and of other programs' names. A parser takes microseconds, so the
//! fuzzer need not choose one, and a recorded file is a seed as it is (`collectors/tests/fixtures`).
#![no_main]

use headspace_collectors::fuzzing::parsers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (_, parse) in parsers() {
        parse(bytes);
    }
});
