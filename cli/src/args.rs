//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use headspace_agent::model::Mode;

/// How much faster would training run if data were free, and what is in the way?
#[derive(Debug, Parser)]
#[command(name = "headspace", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Tune(TuneArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Doctor(DoctorArgs),
    Top(TopArgs),
    Serve(ServeArgs),
}

/// Run a training command under watch, without a change to its code.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    headspace run -- python train.py --epochs 3
    headspace run --mode probe -- torchrun --nproc-per-node 4 train.py
    headspace run --batch-from train:get_batch -- python train.py

Watches what the training loop iterates, in every Python process that the command starts: torch's
DataLoader, SPDL's Pipeline and loaders, Hugging Face datasets, WebDataset, MONAI's threaded loader,
fastai, Grain and tf.data. Without such a loader it counts the steps of torch's optimizers. The verdict
is printed on stderr at the end. HEADSPACE=0 switches everything off.

Exit code: the command's own; 126 when it cannot be executed, 127 when there is none of that name, 2
when the command line was not understood.")]
pub(crate) struct RunArgs {
    /// `measure` watches; `probe` also finds the floor, with batches of a cache in between; `replay`
    /// goes over to cached batches for good
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,

    /// The folder that holds one folder a run.
    #[arg(
        long,
        value_name = "DIR",
        help = "The folder that holds one folder a run [default: HEADSPACE_DIR, else headspace-runs]"
    )]
    pub(crate) dir: Option<PathBuf>,

    /// Seconds between two ticks, or a duration such as 250ms [default: 1]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) interval: Option<String>,

    /// Say nothing on stderr
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Name of the training loop in the verdict, if headspace picks the wrong one
    #[arg(long = "loop", value_name = "NAME")]
    pub(crate) loop_name: Option<String>,

    /// Time the calls of a function that returns a batch, where the training loop iterates no loader:
    /// `train:get_batch` is `get_batch` of the script train.py, or of a module of that name
    #[arg(long, value_name = "MODULE:FUNCTION", value_parser = function)]
    pub(crate) batch_from: Option<String>,

    /// The command, as it is without headspace
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) probe: ProbeArgs,
}

/// Options of modes `probe` and `replay`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of --mode probe and --mode replay")]
pub(crate) struct ProbeArgs {
    /// Most steps of the probe, 200 or more [default: as the loader needs, 2400 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(200..))]
    pub(crate) probe_steps: Option<u32>,

    /// Batches that are repeated [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_caches: Option<u32>,

    /// End the training loop's epochs once the probe is done
    #[arg(long)]
    pub(crate) stop_after_probe: bool,

    /// Deliver every batch of the loader in a probed epoch: it is longer then by the repeated ones.
    /// Else an epoch keeps its length, where the loader has one, and repeated batches take the place
    /// of others
    #[arg(long)]
    pub(crate) exactly_once: bool,

    /// Live batches before a replay [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) return_caches_after: Option<u32>,

    /// Batches after which an epoch of a replay ends [default: the length of the loader]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stop_after: Option<u32>,
}

/// Find the knobs of a training command with which it runs fastest.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TuneArgs {
    /// Read by the Python package, which the search is a part of.
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// Print the verdict of a run, or compare several.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 when everything named was reported, 1 when something could not be read, 2 when the
command line was not understood. Lines that are no records are skipped, and counted on stderr.")]
pub(crate) struct ReportArgs {
    /// Runs: folders, folders of such folders, or `rank<r>.jsonl` files.
    #[arg(
        value_name = "PATH",
        help = "Folders of runs, folders that hold such folders, or rank<r>.jsonl files. Without \
                any: the newest run in HEADSPACE_DIR (default: headspace-runs)"
    )]
    pub(crate) paths: Vec<PathBuf>,

    /// Print the last `summary` record: an object when one run is asked for, a list when several are,
    /// also where only some can be read. What was not measured is null
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the run as a page with charts to FILE: one file that holds everything itself, for a
    /// browser. Of one run
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,

    /// Write the run as a trace to FILE, for ui.perfetto.dev: ticks, epochs, probe windows and
    /// notices of every rank, and what was read as counters. Of one run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    pub(crate) perfetto: Option<PathBuf>,
}

/// Say how two runs differ, and whether that is more than noise.
#[derive(Debug, Args)]
#[command(after_help = "\
A side is a run's folder, a rank<r>.jsonl file, or a folder of runs of the same configuration: three
runs or more a side also measure how much runs differ among themselves.

Exit code: 0; 1 with --fail-if-slower when B is slower by more than that; 2 when a side cannot be read
or is too short to be judged, or the command line was not understood.")]
pub(crate) struct CompareArgs {
    /// What is compared with.
    #[arg(
        value_name = "A",
        help = "What is compared with: a run, or a folder of runs"
    )]
    pub(crate) a: PathBuf,

    /// What is compared.
    #[arg(
        value_name = "B",
        help = "What is compared: a run, or a folder of runs"
    )]
    pub(crate) b: PathBuf,

    /// Exit with 1 when B is slower than A by more than so many percent: when the whole 95 %
    /// confidence interval lies beyond it
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_if_slower: Option<f64>,

    /// Print one JSON object instead (its schema is docs/schema/headspace-compare-1.schema.json)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show a run as a live web page, with charts from its start, in a process of its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Besides the page: /api/summary (what `report --json` prints), /api/page (the page's data), /metrics
(all ranks, for Prometheus) and /events (what is new, as server-sent events).

Exit code: 0 after Ctrl-C, 1 when the path cannot be read, 2 when it cannot listen there or the
command line was not understood.")]
pub(crate) struct ServeArgs {
    /// A run, or a folder of runs.
    #[arg(
        value_name = "PATH",
        help = "A run's folder, a rank<r>.jsonl file, or a folder of runs, of which the newest is \
                shown and then each that begins. Without it: HEADSPACE_DIR (default: headspace-runs)"
    )]
    pub(crate) path: Option<PathBuf>,

    /// Where to listen: a name or an address of this machine. Other machines reach it only with a
    /// token
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// The port; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8321)]
    pub(crate) port: u16,

    /// What requests must bring: in `Authorization: Bearer`, or once in the address as `?token=`
    #[arg(long, value_name = "TOKEN", env = "HEADSPACE_TOKEN", hide_env_values = true,
          value_parser = crate::serve::token)]
    pub(crate) token: Option<crate::serve::Token>,
}

fn mode(text: &str) -> Result<Mode, String> {
    [Mode::Measure, Mode::Probe, Mode::Replay]
        .into_iter()
        .find(|mode| mode.as_str() == text)
        .ok_or_else(|| "write `measure`, `probe` or `replay`".to_owned())
}

/// Lets through what names a function, also of a class, in a module: `package.module:Class.function`.
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

/// Lets through what Python reads: `250ms`, `2s` or `2`.
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

/// Reads `5%`, `5 %` or `5`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write percents from 0 to 1000, such as `5%`".to_owned()),
    }
}

/// Say which sources work here, why the others do not, what to do, and what measuring costs.
#[derive(Debug, Args)]
#[command(after_help = "\
Each source is opened and read as in a training run; nothing on the machine is changed. Takes about
two seconds. Environment: HEADSPACE_NVML_LIB names the NVML library to load, and CUDA_VISIBLE_DEVICES
says which GPUs count, as in a training run.

Exit code: 0, also where sources are off; 1 when the sources did not open within ten seconds.")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object: {"sources": [{"name", "state", "reads", "reason", "remedy"}, ...],
    /// "cost": {...}}. What there is nothing to say of is null
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch a run in the terminal while it goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: ? shows them all; q quits. The training process is not touched, and may end and start again:
of a folder of runs the newest is shown, and then each that begins. NO_COLOR=1 leaves colours away.

Exit code: 0; 1 when PATH cannot be read; 2 when this is no terminal, or the command line was not
understood.")]
pub(crate) struct TopArgs {
    /// What to watch.
    #[arg(
        value_name = "PATH",
        help = "A folder of runs, a run's folder, a rank<r>.jsonl file, a named pipe, or unix:SOCKET. \
                Without it: HEADSPACE_DIR (default: headspace-runs)"
    )]
    pub(crate) path: Option<PathBuf>,
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
