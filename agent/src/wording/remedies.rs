//! The sentence of each remedy: what the user can change.

use super::evidence::evidence_text;
use super::process_start::with_process_start;
use super::units::{amount, bytes, duration_ms, percent, signed};
use super::verdict::place_in_file;
use crate::analysis::attribution::{
    Action, GuessedWork, Remedy, Shared, SmallerBuffer, WorkerMemory,
};
use crate::model::record::{RemedyRecord, Setting, SmallerBufferRecord};
use crate::model::stack::LOADER;

/// If more worker processes than this fit into the memory, their number is not shown.
const MAX_NAMED_WORKERS: u32 = 100;

/// The record of a remedy.
pub fn remedy_record(remedy: &Remedy) -> RemedyRecord {
    let start = remedy.process_start.as_ref();
    RemedyRecord {
        code: remedy.action.code().as_str().to_owned(),
        what: with_process_start(action(&remedy.action), start),
        stage: remedy.stage.clone(),
        resource: remedy.resource,
        change: remedy.change.clone(),
        predicted_step_ms: remedy.predicted_step_ms,
        predicted_gain_pct: remedy.predicted_gain_pct,
        measured_step_ms: remedy.measured_step_ms,
        at_least: remedy.at_least,
        concerns_bottleneck: remedy.concerns_bottleneck,
        obstacle: start.and_then(|start| start.sent.obstacle.clone()),
        process_start_ms: start.and_then(|start| start.ms),
        evidence: evidence_text(&remedy.evidence),
        confidence: remedy.confidence,
    }
}

/// The record of a smaller buffer. `step_ms` is the measured step.
pub fn smaller_buffer_record(found: &SmallerBuffer, step_ms: f64) -> SmallerBufferRecord {
    SmallerBufferRecord {
        queue: found.queue.clone(),
        change: found.change.clone(),
        predicted_step_ms: found.predicted_step_ms,
        freed_items: found.freed_items,
        freed_bytes: found.freed_bytes,
        text: smaller_buffer(found, step_ms),
        confidence: found.confidence,
    }
}

fn smaller_buffer(found: &SmallerBuffer, step_ms: f64) -> String {
    let SmallerBuffer {
        queue, from, to, ..
    } = found;
    let longer_pct = 100.0 * (found.predicted_step_ms / step_ms - 1.0);
    let change = match found.change.setting() {
        Some(Setting::PrefetchFactor) => format!(" (prefetch_factor={})", found.change.to),
        _ => String::new(),
    };
    let freed = match found.freed_bytes {
        Some(count) => format!("at least {} of memory become free", bytes(count)),
        None => format!(
            "the queue holds at least {} fewer items",
            amount(found.freed_items)
        ),
    };
    format!(
        "A capacity of {to} instead of {from} is enough for the queue `{queue}`{change}: the predicted step is {} \
         ({} %), and {freed}.",
        duration_ms(found.predicted_step_ms),
        signed(longer_pct, 1)
    )
}

/// The action of a remedy, as one sentence.
#[expect(clippy::too_many_lines, reason = "one sentence for each action")]
fn action(action: &Action) -> String {
    match action {
        Action::Stop => "Do not tune the loader further: training is compute-bound. Make the \
                         model faster instead."
            .to_owned(),
        Action::MoreProcesses {
            from,
            to,
            memory,
            splits_stream,
        } => more_processes(*from, *to, *memory, *splits_stream),
        Action::SmallerProcesses {
            from,
            to,
            memory,
            splits_stream,
        } => smaller_processes(*from, *to, *memory, *splits_stream),
        Action::MoreCalls {
            stage,
            from,
            to,
            on_decoders,
        } => format!(
            "{}{}.",
            concurrent_calls(stage, *from, *to),
            if *on_decoders {
                ", at most one per decoder"
            } else {
                ""
            }
        ),
        Action::FewerCalls {
            stage,
            from,
            to,
            shared,
        } => format!("{}{}.", concurrent_calls(stage, *from, *to), competes_for(*shared)),
        Action::FewerProcesses { from, to, shared } => {
            format!("{}{}.", worker_processes(*from, *to), competes_for(*shared))
        }
        Action::SubmitAhead { stage, queue } => format!(
            "Submit more calls of `{stage}` in advance: the pool's queue `{queue}` is usually empty, \
             so more workers would be idle."
        ),
        Action::MoreThreads { pool, from, to } if pool == LOADER => {
            format!("Run the loader on {to} threads instead of {from}.")
        }
        Action::MoreThreads { pool, from, to } => {
            format!("Give the pool `{pool}` {to} threads instead of {from}.")
        }
        Action::MorePrefetch { from, to } => format!(
            "Let each worker prefetch {to} batches instead of {from}: a longer buffer absorbs slow \
             batches."
        ),
        Action::BiggerQueue { queue, from, to } => format!(
            "Let the queue `{queue}` hold {to} items instead of {from}: a longer queue absorbs slow \
             calls."
        ),
        Action::Background { at_once, .. } if *at_once > 1 => format!(
            "Load {at_once} batches at once on separate threads while the loop computes, if no batch needs the one before \
             it: loading mostly waits."
        ),
        Action::Background { in_process, .. } => format!(
            "Load the next batch in a separate {} while the loop computes.",
            if *in_process { "process" } else { "thread" }
        ),
        Action::CheaperCalls { stage, work } => format!(
            "Halve what a call of `{stage}` costs ({}).",
            match work {
                GuessedWork::Video => "shorter clips, fewer or smaller frames, a faster decoder",
                GuessedWork::Images => "smaller images, a faster library",
                GuessedWork::Reading => "smaller samples, a faster store, bigger reads",
                GuessedWork::Unknown => "less work per call, or a faster library",
            }
        ),
        Action::Subprocess { each_thread: true } => {
            "Run the loader's stages in separate processes, as many as there are busy threads. \
             Each process has its own interpreter lock. All threads of one process share that lock."
                .to_owned()
        }
        Action::Subprocess { each_thread: false } => {
            "Run the loader in a subprocess. At present, its threads and the loop share one interpreter lock."
                .to_owned()
        }
        Action::ShardData { ranks } => format!(
            "Let each rank load only its own samples, for example its own files. Now each rank loads \
             all samples and keeps 1/{ranks} of them."
        ),
        Action::PackBatch {
            tensors,
            objects,
            from_torch,
        } => {
            let kind = if tensors.is_some() {
                "other objects"
            } else {
                "objects"
            };
            let (container, function) = if *from_torch {
                ("tensors", " (`collate_fn`)")
            } else {
                ("arrays", "")
            };
            let tensors = tensors.map(|count| format!("{count} tensors"));
            let objects = objects.map(|count| format!("{count} {kind}"));
            let parts: Vec<String> = tensors.into_iter().chain(objects).collect();
            format!(
                "Join the {} of a batch into a few {container} before the worker sends it{function}, \
                 and split them in the training process, because each is passed separately.",
                parts.join(" and ")
            )
        }
        Action::ShareArrays { bytes: count } => format!(
            "Let the worker send the arrays and strings of a batch ({}) as tensors: torch passes tensors in shared memory, \
             and everything else through a pipe.",
            bytes(*count as f64)
        ),
        Action::SmallerTensors { bytes: count } => format!(
            "Let the worker send the tensors of a batch ({}) in a type of half the size, for example `bfloat16` \
             instead of `float32`, and convert them in the training process.",
            bytes(*count as f64)
        ),
        Action::LargerMessages { batches } => format!(
            "Let a worker send {batches} batches in one message, and iterate over them in the training process."
        ),
        Action::LoadInThreads {
            threads,
            stage,
            lock_share,
        } => format!(
            "Load in {threads} {} of the training process, for example with SPDL: then no batch is passed between \
             processes, and a call of `{stage}` holds the interpreter lock for only {} % of its time.",
            if *threads == 1 { "thread" } else { "threads" },
            percent(100.0 * lock_share, 0)
        ),
        Action::FreeLock {
            function,
            file,
            line,
        } => format!(
            "Do the work of `{}` ({function}) in a worker process, or in native code that releases \
             the interpreter lock.",
            place_in_file(file, *line)
        ),
        Action::SeparateLocks { stage, file, line } => format!(
            "Avoid the lock for which the calls of `{stage}` wait at `{}`: give each process or \
             thread its own file, connection or object, or hold the lock for less time.",
            place_in_file(file, *line)
        ),
        Action::CollectBetweenEpochs => "Collect garbage only between epochs: `gc.disable()` at \
                                         the start, `gc.collect()` after each."
            .to_owned(),
        Action::KeepInMemory => "Keep the data in memory: it is read from the disk again and \
                                 again because the page cache is too small for it. Add memory, \
                                 use smaller files, or use a faster disk."
            .to_owned(),
        Action::MoreCores { from, to } => {
            format!("Give the process {to} cores instead of {from}.")
        }
        Action::RaiseQuota { from, to } => {
            format!("Raise the CPU quota from {from} to {to} cores.")
        }
        Action::StopOthers { used, usable } => format!(
            "Stop other programs on this machine, or reserve cores for training: other programs \
             use {} of {} cores.",
            amount(*used),
            amount(*usable)
        ),
        Action::FewerGpuBytes { bytes_per_step } => format!(
            "Copy fewer bytes to and from the GPU (now {} per step): for example, copy images as `uint8` and convert them \
             on the GPU, and copy results only when they are needed.",
            bytes(*bytes_per_step)
        ),
        Action::PinMemory => {
            "Copy batches to the GPU from pinned memory: pin_memory=True.".to_owned()
        }
    }
}

/// Another number of concurrent calls, without a full stop.
fn concurrent_calls(stage: &str, from: u32, to: u32) -> String {
    match to {
        1 => format!("Run one call of `{stage}` at a time instead of {from}"),
        to => format!("Run {to} concurrent calls of `{stage}` instead of {from}"),
    }
}

/// Why fewer concurrent calls would help.
fn competes_for(shared: Shared) -> &'static str {
    match shared {
        Shared::Decoders => ", one per decoder: further calls only delay each other",
        Shared::Memory => {
            ": its threads seem to compete with each other and the model for memory bandwidth"
        }
        Shared::Cores => ": there are no cores for more",
        Shared::InterpreterLock => ": further threads only wait for the interpreter lock",
        Shared::Lock => ": further calls only wait for one another's lock",
        Shared::Unknown => ": further calls only slow each other",
    }
}

/// More of torch's worker processes.
fn more_processes(from: u32, to: u32, memory: Option<WorkerMemory>, splits_stream: bool) -> String {
    let processes = match (from, to) {
        (0, 1) => {
            "Load in a worker process instead of on the training thread: num_workers=1".to_owned()
        }
        (0, to) => {
            format!(
                "Load in {to} worker processes instead of on the training thread: num_workers={to}"
            )
        }
        (from, to) => worker_processes(from, to),
    };
    let memory = memory.map_or_else(String::new, |memory| workers_memory(memory, to));
    format!("{processes}{memory}.{}", own_part(splits_stream))
}

fn smaller_processes(from: u32, to: u32, memory: WorkerMemory, splits_stream: bool) -> String {
    let (each, available) = (bytes(memory.each), bytes(memory.available));
    format!(
        "Reduce the memory of each worker process (now {each}), then load in {to} instead of {from}: further ones may \
         take only {available} in total.{}",
        own_part(splits_stream)
    )
}

/// What a program must do that splits its stream among the workers.
fn own_part(splits_stream: bool) -> &'static str {
    if splits_stream {
        " Each must load its own part of the stream (`torch.utils.data.get_worker_info`)."
    } else {
        ""
    }
}

/// What the memory allows if there are to be `workers` worker processes.
fn workers_memory(memory: WorkerMemory, workers: u32) -> String {
    if memory.fits <= workers {
        return format!(
            ": each takes {}, and further ones may take {} in total",
            bytes(memory.each),
            bytes(memory.available)
        );
    }
    match memory.fits {
        fits @ ..=MAX_NAMED_WORKERS => format!(
            "; each takes {}, and the memory is enough for {fits}",
            bytes(memory.each)
        ),
        _ => String::new(),
    }
}

/// Another number of torch's worker processes, without a full stop.
fn worker_processes(from: u32, to: u32) -> String {
    let processes = if to == 1 { "process" } else { "processes" };
    format!("Load in {to} worker {processes} instead of {from}")
}
