//! `headspace completion`: prints the script with which a shell completes the command line.
//!
//! clap makes the script from the definition of the command line. `demo` and `tune` are written in Python and parse
//! their own options, so clap does not know them. They are listed here, for the completion only.
//! `tests/python/test_completion.py` compares the lists with the help of the two commands.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};
use clap_complete::{Shell, generate};
use headspace_agent::model::Mode;

use crate::args::{Cli, CompletedShell, CompletionArgs};
use crate::{Context, EXIT_OK};

/// What follows an option of a Python command.
#[derive(Debug, Clone, Copy)]
enum Value {
    /// Nothing: the option is a switch.
    None,
    /// A number or a text.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A file or a folder.
    Path,
}

/// The options of `headspace demo`.
const DEMO: &[(&str, Value)] = &[
    ("threads", Value::Text),
    ("steps", Value::Text),
    ("video", Value::None),
    ("reset", Value::None),
    ("help", Value::None),
];

/// The options of `headspace tune`.
const TUNE: &[(&str, Value)] = &[
    ("knob", Value::Text),
    ("constraint", Value::Text),
    ("file", Value::Path),
    ("dir", Value::Path),
    ("objective", Value::Words(&["step", "throughput"])),
    ("experiments", Value::Text),
    ("time", Value::Text),
    ("patience", Value::Text),
    ("near-floor", Value::Text),
    ("measure", Value::Text),
    ("timeout", Value::Text),
    ("startup", Value::Text),
    ("stall", Value::Text),
    ("repeats", Value::Text),
    ("confirm", Value::Text),
    ("parallel", Value::Text),
    ("storage", Value::Text),
    ("study", Value::Text),
    ("seed", Value::Text),
    ("what-if-steps", Value::Text),
    ("no-what-if", Value::None),
    ("no-early-stop", Value::None),
    ("no-inject", Value::None),
    ("quiet", Value::None),
    ("help", Value::None),
];

/// The values of `headspace run --mode`, in the order of its help.
const MODES: [Mode; 4] = [Mode::Measure, Mode::Probe, Mode::WhatIf, Mode::Replay];

/// Prints the script for a shell.
pub(crate) fn completion(args: &CompletionArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let shell = match args.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut command_line(), "headspace", &mut script);
    context.out.write_all(&script)?;
    Ok(EXIT_OK)
}

/// The command line, with what the shell completes but the command itself does not parse by clap.
fn command_line() -> Command {
    let known = Cli::command();
    let subcommands = known.get_subcommands().map(|command| {
        let command = command.clone();
        let about = command.get_about().cloned().unwrap_or_default();
        match command.get_name() {
            "demo" => python_command("demo", DEMO).about(about),
            "tune" => python_command("tune", TUNE).about(about),
            // The command parses the mode with its own function, which lists no values.
            "run" => command.mut_arg("mode", |mode| {
                mode.value_parser(PossibleValuesParser::new(MODES.map(Mode::as_str)))
            }),
            _ => command,
        }
    });
    Command::new("headspace")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(subcommands.collect::<Vec<_>>())
}

/// A Python command with its options, instead of the words that clap passes on.
fn python_command(name: &'static str, options: &[(&'static str, Value)]) -> Command {
    let options = options.iter().map(|&(name, value)| {
        let option = Arg::new(name).long(name);
        match value {
            Value::None => option.action(ArgAction::SetTrue),
            Value::Text => option.action(ArgAction::Set),
            Value::Words(words) => {
                option.value_parser(PossibleValuesParser::new(words.iter().copied()))
            }
            Value::Path => option.value_hint(ValueHint::AnyPath),
        }
    });
    Command::new(name).disable_help_flag(true).args(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_words;

    fn script(shell: &str) -> String {
        let (code, out, err) = run_words(["headspace", "completion", shell]);
        assert_eq!((code, err.as_str()), (EXIT_OK, ""));
        out
    }

    #[test]
    fn the_script_of_each_shell_contains_the_options_of_rust_and_python_commands() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell);
            for option in ["speedscope", "stop-after-probe", "near-floor", "threads"] {
                assert!(script.contains(option), "{shell}: {option}");
            }
        }
    }

    #[test]
    fn a_script_is_printed_as_clap_makes_it() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut made = Vec::new();
            generate(shell, &mut command_line(), "headspace", &mut made);
            assert!(script(&shell.to_string()).as_bytes() == made, "{shell}");
        }
    }

    #[test]
    fn the_command_line_is_valid() {
        command_line().debug_assert();
    }
}
