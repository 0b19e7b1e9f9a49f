//! Defines all messages that the user can receive during training. Each is shown once.
//!
//! A notice states what happened, why, and what to do. It is printed to stderr in one line, and written to
//! the records as a `notice`, where [`Notice::code`] is the stable name for programs.

pub mod log;
mod probe;
mod what_if;

pub use self::log::NoticeLog;
pub use self::probe::{Afterwards, ProbeFacts};
pub use self::what_if::NoWhatIf;
use self::what_if::effect_on_data;

use crate::model::InPlace;
use crate::model::record::{NoticeRecord, Severity};
use crate::model::{LoopOption, Mode, OptionsFrom};

// thiserror takes a field `source` for the cause of an error, and a field `r#source` for any other.
/// A message to the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Notice {
    /// A source of readings does not work here, or stopped working.
    #[error("`{source}` is off for this run: {reason}. The other sources continue.")]
    SourceOff {
        /// The source's name.
        r#source: &'static str,
        /// Why.
        reason: String,
    },
    /// A source does not respond: the driver or file system that it reads is stuck.
    #[error(
        "`{source}` has not answered for {seconds} s: its driver or file system may be stuck. There \
         are no readings of `{source}` until it answers."
    )]
    SourceSilent {
        /// The source's name.
        r#source: &'static str,
        /// Seconds since the request.
        seconds: u64,
    },
    /// A destination failed permanently.
    #[error(
        "`{exporter}` is off for this run: {reason}. Training continues. Records that it \
         did not deliver are counted as dropped."
    )]
    ExporterOff {
        /// The exporter's name.
        exporter: &'static str,
        /// Why.
        reason: String,
    },
    /// A library that receives numbers failed permanently.
    #[error(
        "`{integration}` is off for this run: {reason}. Training continues, and headspace still \
         writes the run folder."
    )]
    IntegrationOff {
        /// The name of the library, as the user wrote it.
        integration: String,
        /// Why.
        reason: String,
    },
    /// Records were lost because a destination failed.
    #[error(
        "{count} records dropped: {reason}. Fix the cause (for a full disk: free space, or set \
         `HEADSPACE_DIR` to another disk). headspace continues to write."
    )]
    RecordsDropped {
        /// Number so far.
        count: u64,
        /// Why the first of them was lost.
        reason: String,
    },
    /// The loop is about to train on repeated batches.
    #[error("probe of `{loop_name}`: {facts}")]
    ProbeBegins {
        /// The loop's name.
        loop_name: String,
        /// How long the probe takes, and its effect on training.
        facts: ProbeFacts,
    },
    /// The loop is about to change stages.
    #[error(
        "what-if of `{loop_name}`: headspace changes one stage after another, or the requests for batches, for some \
         steps each, and measures the step time. This takes at most {steps} steps. {} Then training continues as usual.",
        effect_on_data(*.keeps_data, *.from)
    )]
    WhatIfBegins {
        /// The loop's name.
        loop_name: String,
        /// Maximum number of steps.
        steps: u32,
        /// Whether each input is trained on.
        keeps_data: bool,
        /// Where the user sets the options of the loop.
        from: OptionsFrom,
    },
    /// An exception ended the run in an epoch in which the loader was changed.
    #[error(
        "`{exception}` ended the run in mode `whatif`. The loader was changed in {} of this epoch of `{loop_name}`. To see \
         whether the error also occurs without that, run again with {}.",
        steps(*.changed),
        .from.with_mode(Mode::Measure)
    )]
    ExceptionInWhatIf {
        /// The loop's name.
        loop_name: String,
        /// The exception's type.
        exception: String,
        /// Number of steps with a changed stage.
        changed: u64,
        /// Where the user sets the options of the loop.
        from: OptionsFrom,
    },
    /// Stages cannot be changed.
    #[error("no what-if of `{loop_name}`: {reason}. The loop is measured as usual.")]
    NoWhatIf {
        /// The loop's name.
        loop_name: String,
        /// Why.
        reason: NoWhatIf,
    },
    /// An exception ended the run in an epoch in which batches were repeated.
    #[error(
        "`{exception}` ended the run in mode `{}`. {} in this epoch of `{loop_name}`. To see \
         whether the error also occurs without repeated batches, run again with {}.",
        .mode.as_str(),
        repeated_batches(*.repeated),
        .from.with_mode(Mode::Measure)
    )]
    ExceptionInProbe {
        /// The loop's name.
        loop_name: String,
        /// `Probe` or `Replay`.
        mode: Mode,
        /// The exception's type.
        exception: String,
        /// Number of repeated batches in the epoch.
        repeated: u64,
        /// Where the user sets the options.
        from: OptionsFrom,
    },
    /// From now on, every batch is a repeated batch.
    #[error(
        "replay of `{loop_name}`: after {live} live batches, every step trains on the \
         same {cached} cached batches. Do not keep the model."
    )]
    ReplayBegins {
        /// The loop's name.
        loop_name: String,
        /// Number of cached batches.
        cached: usize,
        /// Number of live batches delivered before.
        live: u64,
    },
    /// The source ended before the replay was to begin.
    #[error(
        "`{loop_name}` ended after {delivered} batches. Replay was to begin after {expected} \
         batches, but begins now. To choose the number of live batches, set `{}`.",
        .from.with(LoopOption::ReturnCachesAfter, &.delivered.to_string())
    )]
    SourceEndedEarly {
        /// The loop's name.
        loop_name: String,
        /// Number of batches of the source.
        delivered: u64,
        /// Number of live batches that should come before replay.
        expected: u64,
        /// Where the user sets the options.
        from: OptionsFrom,
    },
    /// The loop changes its batches in place, so repeated batches differ from the original ones.
    #[error(
        "the training loop changes the batches of `{loop_name}` in place: {}.",
        handling(*.in_place)
    )]
    BatchesMutated {
        /// The loop's name.
        loop_name: String,
        /// How the cache handles it.
        in_place: InPlace,
    },
    /// A probed epoch keeps its length: repeated batches replaced live ones.
    #[error(
        "repeated batches count towards the epoch of `{loop_name}`, so its last {count} batches \
         are not delivered (`{}` delivers all, in a longer epoch).",
        .from.with(LoopOption::ExactlyOnce, "")
    )]
    BatchesReplaced {
        /// The loop's name.
        loop_name: String,
        /// Batches of the source that were left out of the first such epoch.
        count: u64,
        /// Where the user sets the options.
        from: OptionsFrom,
    },
    /// The run loses time, and the verdict comes only at its end.
    #[error("{text}")]
    TimeLost {
        /// The step, its wait, and what would shorten it.
        text: String,
    },
    /// Several threads take batches from one iterator concurrently.
    #[error(
        "several threads take batches from `{loop_name}` at once: waits and steps are \
         counted, but compute is not known, and a probe is not possible."
    )]
    ConcurrentIteration {
        /// The loop's name.
        loop_name: String,
    },
    /// A destination does not accept data. The export is retried.
    #[error(
        "`{exporter}` does not deliver: {reason}. headspace tries again. Training continues, and \
         headspace still writes the run folder."
    )]
    ExportFailing {
        /// The destination's name.
        exporter: &'static str,
        /// The attempt and its result.
        reason: String,
    },
    /// A destination that failed accepts data again.
    #[error("`{exporter}` accepts data again. {}", dropped_exports(*.lost))]
    ExportResumed {
        /// The destination's name.
        exporter: &'static str,
        /// Number of exports that were dropped meanwhile.
        lost: u64,
    },
    /// The last export of the run failed, or was not answered.
    #[error(
        "`{exporter}` {}. That export is dropped. The run folder contains its data.",
        last_export(.reason.as_deref())
    )]
    LastExportDropped {
        /// The destination's name.
        exporter: &'static str,
        /// The attempt and its result. `None` if there was no answer before the run ended.
        reason: Option<String>,
    },
    /// Records were dropped because the reader of a stream is slower than the records come.
    #[error(
        "`{exporter}` drops records, because its reader is too slow. Dropped records are not sent \
         again. The run folder contains them."
    )]
    ReaderTooSlow {
        /// The destination's name.
        exporter: &'static str,
    },
    /// Spans were lost: a collector refused them, or is too slow.
    #[error(
        "`{exporter}` dropped {count} spans: the collector refused them, or does not take \
         them fast enough. The run folder has the same data."
    )]
    SpansDropped {
        /// The destination's name.
        exporter: &'static str,
        /// Number so far.
        count: u64,
    },
    /// Log records were lost: a collector refused them, or is too slow.
    #[error(
        "`{exporter}` dropped {count} log records: the collector refused them, or does not \
         take them fast enough. The run folder has them; `OTEL_LOGS_EXPORTER=none` sends none."
    )]
    LogRecordsDropped {
        /// The destination's name.
        exporter: &'static str,
        /// Number so far.
        count: u64,
    },
    /// A destination serves requests.
    #[error("`{exporter}` is served at {at}")]
    Serving {
        /// The destination's name.
        exporter: &'static str,
        /// Its address, as a reader writes it.
        at: String,
    },
    /// A setting could not be read. Its default is used.
    #[error("`{setting}`: {problem}")]
    SettingRefused {
        /// The setting as the user wrote its name.
        setting: String,
        /// The problem, and the value that is used instead.
        problem: String,
    },
    /// Steps were lost because the ring was full.
    #[error(
        "Steps are dropped, because headspace's thread did not get a core in time. Free a core for \
         it. The verdict shows the number of dropped steps."
    )]
    StepsDropped,
    /// Worker processes exited unexpectedly.
    #[error(
        "{} What the stages counted before is kept; calls that were in progress are lost. If \
         the system ran out of memory, the kernel log (`dmesg`) says so.",
        exited_workers(*.count, .named, *.first_at_s)
    )]
    WorkersLost {
        /// Number so far.
        count: u64,
        /// Label and process ID of the first ones.
        named: Vec<(String, u32)>,
        /// Time of the first exit, in seconds since the run began.
        first_at_s: f64,
    },
    /// A queue is no longer sampled: reading its depth raised an exception.
    #[error(
        "headspace no longer measures the queue `{queue}`, because its depth cannot be read \
         ({reason}). Pass a function as `depth` to `headspace.queue` that returns the depth."
    )]
    QueueOff {
        /// The queue's name.
        queue: String,
        /// The exception.
        reason: String,
    },
    /// The stacks of a process cannot be read.
    #[error(
        "The stacks of process {pid} cannot be read: {reason}. The verdict names no lines of it."
    )]
    StacksUnreadable {
        /// ID of the process.
        pid: u32,
        /// Why.
        reason: String,
    },
    /// The user's function that counts the units of a batch failed.
    #[error(
        "the function `samples` of `{loop_name}` failed: {problem}. The throughput in {unit} is therefore unknown in this run. \
         The function takes a batch and returns a whole number. Training continues."
    )]
    UnitsNotCounted {
        /// The loop's name.
        loop_name: String,
        /// The unit's name.
        unit: String,
        /// The exception, with its type.
        problem: String,
    },
    /// The agent used more CPU time than its budget.
    #[error(
        "headspace used {percent:.2} % of a core, without the sampling of stacks. The limit is 1 \
         %. Use a longer interval (`headspace run --interval`, `HEADSPACE_INTERVAL`)."
    )]
    OverBudget {
        /// Its CPU time as a share of elapsed time, in percent.
        percent: f64,
    },
    /// `stop` reached its time limit.
    #[error(
        "headspace did not finish writing within {waited_s:.1} s, so the last records may be \
         missing. The disk may be slow."
    )]
    StopTimedOut {
        /// Seconds that it waited.
        waited_s: f64,
    },
}

impl Notice {
    /// The stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SourceOff { .. } => "source_off",
            Self::SourceSilent { .. } => "source_silent",
            Self::ExporterOff { .. } => "exporter_off",
            Self::IntegrationOff { .. } => "integration_off",
            Self::RecordsDropped { .. } => "records_dropped",
            Self::ExportFailing { .. } => "export_failing",
            Self::ExportResumed { .. } => "export_resumed",
            Self::LastExportDropped { .. } => "last_export_dropped",
            Self::ReaderTooSlow { .. } => "reader_too_slow",
            Self::SpansDropped { .. } => "spans_dropped",
            Self::LogRecordsDropped { .. } => "log_records_dropped",
            Self::Serving { .. } => "serving",
            Self::ProbeBegins { .. } => "probe_begins",
            Self::WhatIfBegins { .. } => "what_if_begins",
            Self::ExceptionInWhatIf { .. } => "exception_in_what_if",
            Self::NoWhatIf { .. } => "no_what_if",
            Self::ExceptionInProbe { .. } => "exception_in_probe",
            Self::ReplayBegins { .. } => "replay_begins",
            Self::SourceEndedEarly { .. } => "source_ended_early",
            Self::BatchesMutated { .. } => "batches_mutated",
            Self::BatchesReplaced { .. } => "batches_replaced",
            Self::TimeLost { .. } => "time_lost",
            Self::ConcurrentIteration { .. } => "concurrent_iteration",
            Self::SettingRefused { .. } => "setting_refused",
            Self::StepsDropped => "steps_dropped",
            Self::WorkersLost { .. } => "worker_lost",
            Self::QueueOff { .. } => "queue_off",
            Self::StacksUnreadable { .. } => "stacks_unreadable",
            Self::UnitsNotCounted { .. } => "units_not_counted",
            Self::OverBudget { .. } => "over_budget",
            Self::StopTimedOut { .. } => "stop_timed_out",
        }
    }

    /// The code and the subject. Notices with the same identity are shown once.
    pub fn identity(&self) -> (&'static str, String) {
        let subject = match self {
            Self::SourceOff { source, .. } | Self::SourceSilent { source, .. } => {
                (*source).to_owned()
            }
            Self::ExporterOff { exporter, .. }
            | Self::ExportFailing { exporter, .. }
            | Self::ExportResumed { exporter, .. }
            | Self::LastExportDropped { exporter, .. }
            | Self::ReaderTooSlow { exporter }
            | Self::SpansDropped { exporter, .. }
            | Self::LogRecordsDropped { exporter, .. }
            | Self::Serving { exporter, .. } => (*exporter).to_owned(),
            Self::ProbeBegins { loop_name, .. }
            | Self::WhatIfBegins { loop_name, .. }
            | Self::ExceptionInWhatIf { loop_name, .. }
            | Self::NoWhatIf { loop_name, .. }
            | Self::ExceptionInProbe { loop_name, .. }
            | Self::ReplayBegins { loop_name, .. }
            | Self::SourceEndedEarly { loop_name, .. }
            | Self::BatchesMutated { loop_name, .. }
            | Self::BatchesReplaced { loop_name, .. }
            | Self::UnitsNotCounted { loop_name, .. }
            | Self::ConcurrentIteration { loop_name } => loop_name.clone(),
            // A list may have several values that cannot be read.
            Self::SettingRefused { setting, problem } => format!("{setting}: {problem}"),
            Self::IntegrationOff { integration, .. } => integration.clone(),
            Self::WorkersLost { count, .. } => count.to_string(),
            Self::QueueOff { queue, .. } => queue.clone(),
            Self::RecordsDropped { .. }
            | Self::TimeLost { .. }
            | Self::StepsDropped
            | Self::StacksUnreadable { .. }
            | Self::OverBudget { .. }
            | Self::StopTimedOut { .. } => String::new(),
        };
        (self.code(), subject)
    }

    fn severity(&self) -> Severity {
        match self {
            Self::ProbeBegins { .. }
            | Self::WhatIfBegins { .. }
            | Self::ExceptionInWhatIf { .. }
            | Self::ExceptionInProbe { .. }
            | Self::ReplayBegins { .. }
            | Self::BatchesReplaced { .. }
            | Self::TimeLost { .. }
            | Self::ExportResumed { .. }
            | Self::Serving { .. } => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// The notice as a record.
    pub fn to_record(&self) -> NoticeRecord {
        NoticeRecord {
            code: self.code().to_owned(),
            severity: self.severity(),
            text: self.to_string(),
        }
    }
}

fn steps(count: u64) -> String {
    format!("{count} step{}", if count == 1 { "" } else { "s" })
}

/// The first sentence about workers that exited unexpectedly.
fn exited_workers(count: u64, named: &[(String, u32)], first_at_s: f64) -> String {
    let mut processes: Vec<String> = named
        .iter()
        .map(|(label, pid)| format!("`{label}` (process {pid})"))
        .collect();
    if count == 1 {
        let process = processes.pop().unwrap_or_default();
        return format!(
            "{process} exited unexpectedly (killed or crashed) after {first_at_s:.1} s."
        );
    }
    let others = if count > named.len() as u64 {
        " and others"
    } else {
        ""
    };
    format!(
        "{count} worker processes exited unexpectedly (killed or crashed): {}{others}; the first \
         after {first_at_s:.1} s.",
        processes.join(", ")
    )
}

/// How the cache handles batches that the loop changes in place.
fn handling(in_place: InPlace) -> &'static str {
    match in_place {
        InPlace::Never => "the cached batches are unmodified",
        InPlace::Copied => "each replayed step gets an unmodified copy of a cached batch",
        InPlace::TooLarge => "copies of the batches would take more than 1 GiB, so none is cached",
    }
}

/// What a destination that accepts data again has missed.
fn dropped_exports(count: u64) -> String {
    let dropped = match count {
        0 => return "No export was dropped.".to_owned(),
        1 => "1 export was dropped".to_owned(),
        more => format!("{more} exports were dropped"),
    };
    format!("{dropped}: counters are complete at the destination, but its gauges have a gap.")
}

/// What happened to the last export of a run.
fn last_export(reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("did not accept the last export: {reason}"),
        None => "did not answer the last export before the run ended".to_owned(),
    }
}

fn repeated_batches(count: u64) -> String {
    match count {
        0 => "No batch was repeated".to_owned(),
        1 => "1 batch was repeated".to_owned(),
        more => format!("{more} batches were repeated"),
    }
}
