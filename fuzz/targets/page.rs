//! Makes the web page of a run with hostile records. No text of a record may be markup in it.
#![no_main]

use headspace_fuzz::outputs::check_page;
use headspace_fuzz::{run_files, seeds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: { seeds::write("page", seeds::runs()); }, |input: &[u8]| {
    if let Some((run, _)) = run_files::write(input) {
        check_page(&run);
    }
});
