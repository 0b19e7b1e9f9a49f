//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// How much faster would training run if data were free, and what is in the way?
#[derive(Debug, Parser)]
#[command(name = "headspace", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Report(ReportArgs),
    Doctor(DoctorArgs),
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
