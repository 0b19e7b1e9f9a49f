//! Defines the command line: the commands, their options and their help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use headspace_agent::batch_source::LEAST_WHAT_IF_STEPS;
use headspace_agent::model::Mode;

/// Measures how much faster training would run if data loading were free, and what slows it down.
#[derive(Debug, Parser)]
#[command(name = "headspace", bin_name = "headspace", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a small model on a slow loader, and show what headspace finds
    #[command(disable_help_flag = true)]
    Demo(PythonArgs),
    Run(RunArgs),
    /// Find the settings with which a training command runs fastest
    #[command(disable_help_flag = true)]
    Tune(PythonArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Doctor(DoctorArgs),
    Top(TopArgs),
    Serve(ServeArgs),
    Completion(CompletionArgs),
}

/// Run a training command and measure its data loaders. Code that uses a known loader needs no change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    headspace run -- python train.py --epochs 3
    headspace run --mode probe -- torchrun --nproc-per-node 4 train.py
    headspace run --batch-from train:get_batch -- python train.py

headspace watches these loaders in every Python process that the command starts: torch's DataLoader, \
SPDL's Pipeline and loaders, Hugging Face datasets, WebDataset, LitData, MosaicML Streaming, Ray Data, \
MONAI's threaded loader, fastai, Grain and tf.data. Without such a loader it counts the steps of torch's \
optimizers. For another loader, name the function that makes the batches with --batch-from, or wrap what \
the loop iterates in headspace.wrap(...). headspace prints the verdict on stderr at the end. HEADSPACE=0 turns everything off.

Exit code: that of the command; 126 if it cannot be executed, 127 if it does not exist, 2 for an error \
in the command line.")]
pub(crate) struct RunArgs {
    /// `measure` times each step; `probe` also measures the step time with free data, by repeating cached
    /// batches in some of the steps; `whatif` also changes one stage after another for some steps, to measure what
    /// each change gains; `replay` trains on cached batches after the first live ones
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,

    /// Where run folders are written.
    #[arg(
        long,
        value_name = "DIR",
        help = "Where run folders are written [default: HEADSPACE_DIR, else headspace-runs]"
    )]
    pub(crate) dir: Option<PathBuf>,

    /// Time between two ticks, in seconds or as a duration such as 250ms. In each tick, headspace reads the
    /// sources and writes a record
    /// [default: 1]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) interval: Option<String>,

    /// Print nothing on stderr
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Name of the training loop, if headspace picks the wrong one: the loop's name as the verdict shows it,
    /// without count and time, for example `DataLoader (evaluation)`
    #[arg(long = "loop", value_name = "NAME")]
    pub(crate) loop_name: Option<String>,

    /// Function or generator that makes the batches, for a training loop without a loader that headspace knows.
    /// `train:get_batch` is `get_batch` in the script train.py or in the module `train`
    #[arg(long, value_name = "MODULE:FUNCTION", value_parser = function)]
    pub(crate) batch_from: Option<String>,

    /// Number of epochs of the run, so that the verdict states how long the run takes [default: what Lightning or Hugging
    /// Face's Trainer says, else unknown]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: Option<u32>,

    /// Number of batches of the run, instead of or in addition to `--epochs`: the run ends at the first of both
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) total_steps: Option<u32>,

    /// What is counted to find what makes the memory grow: `types` counts Python objects, `tracemalloc` also records
    /// the line that allocates each object, which slows Python code, and `off` counts nothing
    /// [default: types]
    #[arg(long, value_name = "WHAT", value_parser = ["off", "types", "tracemalloc"])]
    pub(crate) memory: Option<String>,

    /// The training command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) probe: ProbeArgs,

    #[command(flatten)]
    pub(crate) what_if: WhatIfArgs,
}

/// Options of mode `whatif`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of --mode whatif")]
pub(crate) struct WhatIfArgs {
    /// Maximum number of steps of the what-if, 300 or more [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(LEAST_WHAT_IF_STEPS)..))]
    pub(crate) what_if_steps: Option<u32>,

    /// Train on every input: only delay calls of stages and requests for batches, or let calls wait for each other. By
    /// default, the loop also trains on repeated results
    #[arg(long)]
    pub(crate) keep_data: bool,
}

/// Options of modes `probe` and `replay`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of --mode probe and --mode replay")]
pub(crate) struct ProbeArgs {
    /// Maximum number of steps of the probe, 200 or more [default: as many as the loader needs, at most 2400]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(200..))]
    pub(crate) probe_steps: Option<u32>,

    /// Number of cached batches [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_caches: Option<u32>,

    /// When the probe is done, end the current epoch. Later epochs end at once
    #[arg(long)]
    pub(crate) stop_after_probe: bool,

    /// Deliver every batch of the loader also in an epoch with a probe or a what-if. The repeated batches make this epoch
    /// longer. By default, repeated batches replace batches of the loader, and the epoch keeps its length
    #[arg(long)]
    pub(crate) exactly_once: bool,

    /// `replay`: number of live batches before the first cached one [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) return_caches_after: Option<u32>,

    /// `replay`: number of batches in an epoch [default: the length of the loader]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stop_after: Option<u32>,
}

/// The words after a command that the Python package parses and runs.
#[derive(Debug, Args)]
pub(crate) struct PythonArgs {
    /// Passed to the Python package.
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// Print the verdict of a run, or a table of several runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Lines that are not records are skipped; stderr says how many.

Exit code: 0; 1 if something cannot be read; 2 for an error in the command line.")]
pub(crate) struct ReportArgs {
    /// Runs: folders, folders of such folders, or `rank<r>.jsonl` files.
    #[arg(
        value_name = "PATH",
        help = "Run folders, folders that contain run folders, or rank<r>.jsonl files [default: the \
                newest run in HEADSPACE_DIR, else headspace-runs]"
    )]
    pub(crate) paths: Vec<PathBuf>,

    /// Print the last `summary` record as JSON: an object for one run, a list for several. Missing values
    /// are null
    #[arg(long)]
    pub(crate) json: bool,

    /// Write one run to FILE as a self-contained web page with charts
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,

    /// Write one run as a trace for ui.perfetto.dev to FILE: steps, epochs, probe windows, sampled stacks,
    /// notices and counters of every rank
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    pub(crate) perfetto: Option<PathBuf>,

    /// Write the sampled stacks of one run to FILE for speedscope.app: a profile for each stage and for
    /// compute
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "perfetto"])]
    pub(crate) speedscope: Option<PathBuf>,

    /// Write the sampled stacks of one run to FILE as collapsed stacks, for scripts that draw flame graphs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "perfetto", "speedscope"])]
    pub(crate) collapsed: Option<PathBuf>,
}

/// Compare two runs: what changed, and whether the change is larger than the noise.
#[derive(Debug, Args)]
#[command(after_help = "\
A and B are run folders, rank<r>.jsonl files, or folders with several runs of the same configuration. \
With one run per side, headspace assumes how much runs vary. The more runs there are, the more of this \
variation is measured.

Exit code: 0; 1 if B is slower than --fail-if-slower allows; 2 if A or B cannot be read or \
has too few steps, or for an error in the command line.")]
pub(crate) struct CompareArgs {
    /// The baseline: a run, or a folder of runs
    pub(crate) a: PathBuf,

    /// The run to compare with the baseline: a run, or a folder of runs
    pub(crate) b: PathBuf,

    /// Exit with 1 if B is slower than A by more than PERCENT, that is, if the whole 95 % confidence interval
    /// of the change lies above PERCENT
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_if_slower: Option<f64>,

    /// Print one JSON object (schema: docs/schema/headspace-compare-1.schema.json)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show a run as a live web page with charts.
#[derive(Debug, Args)]
#[command(after_help = "\
Other addresses: /api/summary (the same as `report --json`), /api/page (the data of the page), /metrics \
(all ranks, for Prometheus) and /events (changes, as server-sent events).

Exit code: 0 after Ctrl-C; 1 if the path cannot be read; 2 if the address cannot be used, or for an \
error in the command line.")]
pub(crate) struct ServeArgs {
    /// A run, or a folder of runs.
    #[arg(
        value_name = "PATH",
        help = "A run folder, a rank<r>.jsonl file, or a folder with runs (shows the newest \
                run, and switches to each new run) [default: HEADSPACE_DIR, else headspace-runs]"
    )]
    pub(crate) path: Option<PathBuf>,

    /// Host name or address to listen on. An address that other machines can reach needs a token
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// Port to listen on; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = 8321)]
    pub(crate) port: u16,

    /// Token that requests must contain, in the header `Authorization: Bearer`. In a browser, open
    /// `/?token=TOKEN` once: it sets a cookie for later requests. Other users of this machine can read the command
    /// line. If there are any, set `HEADSPACE_TOKEN` instead
    #[arg(long, env = "HEADSPACE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<crate::token::GivenToken>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::named(text).ok_or_else(|| "write `measure`, `probe`, `replay` or `whatif`".to_owned())
}

/// Checks that the text names a function, or one of a class, in a module:
/// `package.module:Class.function`.
fn function(text: &str) -> Result<String, String> {
    let is_path = |path: &str| {
        path.split('.').all(|name| {
            let mut letters = name.chars();
            letters
                .next()
                .is_some_and(|c| c.is_alphabetic() || c == '_')
                && letters.all(|c| c.is_alphanumeric() || c == '_')
        })
    };
    match text.split_once(':') {
        Some((module, path)) if is_path(module) && is_path(path) => {
            let module = module.strip_suffix(".py").unwrap_or(module);
            Ok(format!("{module}:{path}"))
        }
        _ => Err("write a module and a function in it, such as `train:get_batch`".to_owned()),
    }
}

/// Checks that Python can parse the duration: `250ms`, `2s` or `2`.
fn duration(text: &str) -> Result<String, String> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.001..=86_400.0).contains(&(number * scale)) => Ok(text.to_owned()),
        _ => Err("write a duration from `1ms` to a day, such as `250ms` or `2s`".to_owned()),
    }
}

/// Parses `5%`, `5 %` or `5`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write percents from 0 to 1000, such as `5%`".to_owned()),
    }
}

/// Check which sources of measurements work on this machine, how to enable the others, and what measuring
/// costs.
#[derive(Debug, Args)]
#[command(after_help = "\
It opens and reads each source as a training run does, in about two seconds, and changes nothing on the \
machine. HEADSPACE_NVML_LIB and CUDA_VISIBLE_DEVICES have the same effect as in a training run.

With --data, it examines a data set instead: whether the page cache can hold it, and which part of it comes from \
storage in later epochs. It reads some of its files, for at most a few seconds.

Exit code: 0, even if sources are off; 1 if no file of the data set can be read; 2 for an error in the command \
line.")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object: {"sources": [{"name", "state", "reads", "reason", "remedy"}, ...],
    /// "cost": {...}}, with --data {"data": {...}}. Missing values are null
    #[arg(long)]
    pub(crate) json: bool,
    /// Examine a data set instead of the sources: these folders and files
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) data: Vec<PathBuf>,
}

/// Watch a run in the terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: ? shows all keys, q quits. `top` only reads: training is not affected. For a folder with runs, it shows \
the newest run, and switches to each new run. NO_COLOR=1 turns colours off.

Exit code: 0; 1 if PATH cannot be read; 2 if the input or the output is not a terminal, or for an error in the \
command line.")]
pub(crate) struct TopArgs {
    /// What to watch.
    #[arg(
        value_name = "PATH",
        help = "A run folder, a folder with runs, a rank<r>.jsonl file, a named pipe, or unix:SOCKET \
                [default: HEADSPACE_DIR, else headspace-runs]"
    )]
    pub(crate) path: Option<PathBuf>,
}

/// Print the script with which a shell completes the commands and options.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    source <(headspace completion bash)     # a line of ~/.bashrc
    headspace completion zsh > _headspace   # in a folder of $fpath
    headspace completion fish > ~/.config/fish/completions/headspace.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    pub(crate) shell: CompletedShell,
}

/// A shell whose command line can be completed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use super::{duration, function, percent};

    #[test]
    fn a_function_is_named_with_its_module() {
        for right in ["train:get_batch", "my.data:Data.next", "__main__:f"] {
            assert_eq!(function(right), Ok(right.to_owned()));
        }
        assert_eq!(function("train.py:f"), Ok("train:f".to_owned()));
        for wrong in [
            "",
            "get_batch",
            "train:",
            ":get_batch",
            "a:b:c",
            "a:b()",
            "a:1",
            "d/a:b",
        ] {
            assert!(function(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_has_a_unit_or_is_in_seconds() {
        for right in ["250ms", "2s", "2", "0.5", "1ms"] {
            assert_eq!(duration(right), Ok(right.to_owned()));
        }
        for wrong in ["", "0", "fast", "1us", "NaN", "1e9"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_in_percent_with_or_without_the_sign() {
        assert_eq!(percent("5%"), Ok(5.0));
        assert_eq!(percent("2.5 %"), Ok(2.5));
        assert_eq!(percent("0"), Ok(0.0));
        for wrong in ["-1", "five", "", "%", "NaN", "inf", "2000"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
