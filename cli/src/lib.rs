//! The `headspace` command: runs training with measurement, reports on runs, and checks the sources of
//! this machine.
//!
//! [`main`] never ends the process and never panics, so that the Python wheel can call it through
//! its extension module. Output goes to the standard streams, or with [`run`] to any others.
//!
//! ```
//! let code = headspace::main(["headspace", "--version"].map(Into::into).into_iter());
//! assert_eq!(code, headspace::EXIT_OK);
//! ```

mod args;
mod compare;
mod completion;
mod doctor;
mod find_runs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod output;
pub mod page;
mod python_commands;
pub mod python_sources;
pub mod ranks_at_end;
mod report;
mod run;
mod serve;
mod skipped_lines;
#[cfg(test)]
mod testing;
mod token;
mod top;
mod whole_run;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use headspace_collectors::catalog::{Entry, Settings};
use headspace_exporters::encode::terminal_text::plain;

use self::args::{Cli, Command};
use self::output::PlainWriter;

/// The requested output was printed.
pub const EXIT_OK: i32 = 0;
/// Something that the user named could not be read. The rest was printed.
pub const EXIT_UNREADABLE: i32 = 1;
/// The command line is invalid, or the arguments of `compare` cannot be compared.
pub const EXIT_USAGE: i32 = 2;
/// `compare --fail-if-slower` found B slower by more than the limit.
pub const EXIT_SLOWER: i32 = 1;

/// The default folder of runs.
pub const DEFAULT_DIR: &str = "headspace-runs";

/// The output streams of a command, and its settings from the environment.
pub struct Context<'a> {
    /// Output of results.
    pub out: &'a mut dyn Write,
    /// Output of errors, and of remarks about a result.
    pub err: &'a mut dyn Write,
    /// The folder of runs if none is named: `HEADSPACE_DIR`.
    pub runs: PathBuf,
    /// Settings of the sources of readings: see [`source_settings`].
    pub settings: Settings,
    /// Opens the sources that only the caller has; they follow those of the catalog. Commands that read
    /// no source do not call it.
    pub more_sources: &'a mut dyn FnMut() -> Vec<Entry>,
    /// The folder that makes a Python process import headspace, if it is on its path. The Python
    /// package provides it.
    pub inject: Option<PathBuf>,
}

impl Context<'_> {
    /// Prints an error message. Returns the exit code `code`.
    fn fail(&mut self, message: impl Display, code: i32) -> io::Result<i32> {
        self.warn(message).map(|()| code)
    }

    /// Prints an error, or a remark about a result, on one line.
    fn warn(&mut self, message: impl Display) -> io::Result<()> {
        let message = plain(&message.to_string());
        writeln!(self.err, "headspace: {message}")
    }

    /// Prints one line of a result.
    fn print_line(&mut self, line: impl Display) -> io::Result<()> {
        let line = plain(&line.to_string());
        writeln!(self.out, "{line}")
    }
}

/// The settings of the sources from the environment: `HEADSPACE_NVML_LIB` and `CUDA_VISIBLE_DEVICES`.
pub fn source_settings() -> Settings {
    let library = std::env::var_os("HEADSPACE_NVML_LIB").filter(|path| !path.is_empty());
    Settings {
        nvml_library: library.map(PathBuf::from),
        visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        ..Settings::default()
    }
}

/// Runs the command on the standard streams, and returns its exit code. `args` begins with the
/// program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    main_with(args, &mut python_sources::absent, None)
}

/// The same for a caller with its own sources, which `more_sources` opens, and with the folder that
/// `headspace run` injects.
pub fn main_with(
    args: impl Iterator<Item = OsString>,
    more_sources: &mut dyn FnMut() -> Vec<Entry>,
    inject: Option<PathBuf>,
) -> i32 {
    let runs = std::env::var_os("HEADSPACE_DIR").filter(|dir| !dir.is_empty());
    run(
        args,
        &mut Context {
            out: &mut io::stdout().lock(),
            err: &mut io::stderr().lock(),
            runs: runs.map_or_else(|| DEFAULT_DIR.into(), PathBuf::from),
            settings: source_settings(),
            more_sources,
            inject,
        },
    )
}

/// Runs the command in `context`, and returns its exit code. `args` begins with the program's name. The
/// output has no control characters, except the ends of lines.
pub fn run(args: impl Iterator<Item = OsString>, context: &mut Context<'_>) -> i32 {
    let args: Vec<OsString> = args.collect();
    let plain_context = &mut Context {
        out: &mut PlainWriter(context.out),
        err: &mut PlainWriter(context.err),
        runs: context.runs.clone(),
        settings: context.settings.clone(),
        more_sources: context.more_sources,
        inject: context.inject.clone(),
    };
    execute(&args, plain_context)
}

fn execute(args: &[OsString], context: &mut Context<'_>) -> i32 {
    let done = match Cli::try_parse_from(args) {
        _ if args.len() <= 1 => first_steps(context),
        Ok(Cli { command }) => match command {
            Command::Run(args) => run::run(&args, context),
            Command::Demo(args) => {
                python_commands::report_missing_package("demo", ".", &args, context)
            }
            Command::Tune(args) => {
                python_commands::report_missing_package("tune", "'.[tune]'", &args, context)
            }
            Command::Report(args) => report::report(&args, context),
            Command::Compare(args) => compare::compare(&args, context),
            Command::Doctor(args) => doctor::doctor(&args, context),
            Command::Serve(args) => serve::serve(&args, context),
            Command::Top(args) => top::top(&args, context),
            Command::Completion(args) => completion::completion(&args, context),
        },
        Err(error) => explain(&error, context),
    };
    match done.and_then(|code| context.out.flush().map(|()| code)) {
        Ok(code) => code,
        // The reader has closed the pipe: `headspace report | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_OK,
        Err(error) => {
            let _ = context.warn(format_args!("cannot print: {error}"));
            EXIT_UNREADABLE
        }
    }
}

/// Prints what to do first.
fn first_steps(context: &mut Context<'_>) -> io::Result<i32> {
    context.out.write_all(
        b"headspace measures how much faster training would run if data loading were free, and what slows it down.

First steps:
    headspace demo                      train a small model on a slow loader, and read the verdict
    headspace run -- python train.py    measure your training; code with a known loader needs no change
    headspace report                    print the verdict of the newest run again
    headspace doctor                    check what can be measured on this machine

`headspace --help` lists all commands.
",
    )?;
    Ok(EXIT_OK)
}

/// Prints help if it was requested, or else the error.
fn explain(error: &clap::Error, context: &mut Context<'_>) -> io::Result<i32> {
    let text = error.render().to_string();
    if error.use_stderr() {
        context.err.write_all(text.as_bytes())?;
        Ok(EXIT_USAGE)
    } else {
        context.out.write_all(text.as_bytes())?;
        Ok(EXIT_OK)
    }
}
