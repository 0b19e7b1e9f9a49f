//! Prints a run with hostile records. No control character except the end of a line may reach the terminal.
#![no_main]

use headspace_fuzz::outputs::{check_terminal, write_other_formats};
use headspace_fuzz::{run_files, seeds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: { seeds::write("terminal", seeds::runs()); }, |input: &[u8]| {
    if let Some((run, output)) = run_files::write(input) {
        check_terminal(&run);
        write_other_formats(&run, &output);
    }
});
