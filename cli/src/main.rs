//! The `headspace` command as a standalone program. The Python wheel calls the library instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = headspace::main(std::env::args_os());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
