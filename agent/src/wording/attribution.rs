//! Texts of bottlenecks and remedies.

use super::units::{amount, duration_ms, percent};
use crate::analysis::attribution::{
    Action, Bottleneck, CoresEvidence, Evidence, Limit, Remedy, Shared, StageEvidence, Work,
};
use crate::model::record::{BottleneckKind, BottleneckRecord, RemedyRecord};

/// The record of a bottleneck.
#[must_use]
pub fn bottleneck_record(found: &Bottleneck) -> BottleneckRecord {
    let (kind, name) = match &found.limit {
        Limit::Stage(name) => (BottleneckKind::Stage, Some(name.clone())),
        Limit::Pool(name) => (BottleneckKind::Pool, Some(name.clone())),
        Limit::Resource(resource) => (BottleneckKind::Resource, Some(resource.as_str().to_owned())),
        Limit::Jitter => (BottleneckKind::Jitter, None),
        Limit::Compute => (BottleneckKind::Compute, None),
    };
    BottleneckRecord {
        kind,
        name,
        limit_ms: found.limit_ms,
        evidence: evidence(&found.evidence),
        confidence: found.confidence,
    }
}

/// The record of a remedy.
#[must_use]
pub fn remedy_record(remedy: &Remedy) -> RemedyRecord {
    RemedyRecord {
        code: remedy.action.code().to_owned(),
        what: action(&remedy.action),
        stage: remedy.stage.clone(),
        resource: remedy.resource,
        change: remedy.change.clone(),
        predicted_step_ms: remedy.predicted_step_ms,
        predicted_gain_pct: remedy.predicted_gain_pct,
        at_least: remedy.at_least,
        evidence: evidence(&remedy.evidence),
        confidence: remedy.confidence,
    }
}

/// The evidence of a conclusion, as a clause.
fn evidence(evidence: &Evidence) -> String {
    match evidence {
        Evidence::Stage(stage) => stage_evidence(stage),
        Evidence::TrainingThread {
            wait_ms,
            step_ms,
            without_workers,
            receive_ms,
        } => training_thread(*wait_ms, *step_ms, *without_workers, *receive_ms),
        Evidence::Pool {
            threads,
            busy,
            stages,
            more,
        } => pool(*threads, *busy, stages, *more),
        Evidence::Cores(cores) => cores_evidence(cores),
        Evidence::Quota {
            cores,
            throttled_pct,
        } => format!(
            "the quota of {} cores ran out in {} % of its periods",
            amount(*cores),
            percent(*throttled_pct, 0)
        ),
        Evidence::Gil { wait_ms, work } => gil(*wait_ms, *work),
        Evidence::Gc { pct } => format!(
            "the garbage collector stops the process for {} % of the time",
            percent(*pct, 1)
        ),
        Evidence::Disk { busy } => format!("the disk is busy {} % of the time", share(*busy)),
        Evidence::Decoders { busy, engines } => match engines {
            Some((engines, decodes)) => format!(
                "the {engines} decoders are busy {} % of the time with {} decodes at once",
                share(*busy),
                amount(*decodes)
            ),
            None => format!("the decoders are busy {} % of the time", share(*busy)),
        },
        Evidence::Memory { slower_ms, ipc } => memory(*slower_ms, *ipc),
        Evidence::Jitter { longest_ms } => format!(
            "no limit is above {}, but calls vary and the buffers are too small for it",
            duration_ms(*longest_ms)
        ),
        Evidence::Floor { floor_ms, step_ms } => format!(
            "with free data a step takes {} of {}",
            duration_ms(*floor_ms),
            duration_ms(*step_ms)
        ),
        Evidence::Waiting { wait_ms, step_ms } => format!(
            "the loop waits {} of {} for data",
            duration_ms(*wait_ms),
            duration_ms(*step_ms)
        ),
    }
}

fn share(share: f64) -> String {
    percent(100.0 * share, 0)
}

fn stage_evidence(stage: &StageEvidence) -> String {
    let busy = share(stage.busy);
    let busy = if stage.concurrency > 1.0 {
        format!("{} at a time, busy {busy} %", amount(stage.concurrency))
    } else {
        format!("busy {busy} %")
    };
    let queue = |state: &str, pct: Option<f64>| {
        pct.map(|pct| format!("the queue {state} {} % of the time", percent(pct, 0)))
    };
    let slow = stage.slow_pct.map(|pct| percent(pct, 0));
    let inner = stage.inner.as_ref();
    clauses([
        Some(busy),
        queue("before it full", stage.full_before_pct),
        queue("after it empty", stage.empty_after_pct),
        slow.map(|pct| format!("{pct} % of its calls take over 3 times the median")),
        inner.map(|(inner, part)| format!("{} % of it is `{inner}`", share(*part))),
    ])
}

/// Joins the clauses that there are.
fn clauses<const N: usize>(all: [Option<String>; N]) -> String {
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn training_thread(
    wait_ms: f64,
    step_ms: f64,
    without_workers: bool,
    receive_ms: Option<f64>,
) -> String {
    let (wait, step) = (duration_ms(wait_ms), duration_ms(step_ms));
    let setting = if without_workers {
        " (num_workers=0)"
    } else {
        ""
    };
    let receive = receive_ms.filter(|_| without_workers).map(duration_ms);
    let receive = receive.map(|ms| {
        format!("; to receive a batch from a worker process would take that thread about {ms}")
    });
    format!(
        "runs on the training thread itself{setting}: {wait} of {step} a step, and nothing \
         overlaps{}",
        receive.unwrap_or_default()
    )
}

fn pool(threads: u32, busy: f64, stages: &[String], more: usize) -> String {
    let names: Vec<String> = stages.iter().map(|name| format!("`{name}`")).collect();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let threads = match threads {
        1 => "its thread is".to_owned(),
        threads => format!("its {threads} threads are"),
    };
    format!(
        "{threads} busy {} % of the time with {}{more}",
        share(busy),
        names.join(", ")
    )
}

fn cores_evidence(cores: &CoresEvidence) -> String {
    let (used, usable) = (amount(cores.used), amount(cores.usable));
    let most = cores.most.as_ref();
    let threads = cores.runnable_threads.map(amount);
    let waits = cores.run_queue_pct.map(|pct| percent(pct, 0));
    clauses([
        Some(format!("{used} of {usable} cores used")),
        most.map(|(stage, cores)| format!("{} of them by `{stage}`", amount(*cores))),
        (cores.others).map(|others| format!("other programs use {}", amount(others))),
        threads.map(|threads| format!("{threads} threads want one")),
        waits.map(|pct| format!("the training thread waits for one {pct} % of the time")),
    ])
}

fn gil(wait_ms: f64, work: Option<f64>) -> String {
    let waits = format!(
        "a thread waits {} for the interpreter lock",
        duration_ms(wait_ms)
    );
    match work {
        Some(work) => format!(
            "{waits}, and the stages' threads together use {} % of a core",
            share(work)
        ),
        None => format!("{waits} that the loop needs, too"),
    }
}

fn memory(slower_ms: Option<f64>, ipc: Option<f64>) -> String {
    let slower = slower_ms.map(duration_ms);
    clauses([
        Some("the threads' cores work all the time and cores are free".to_owned()),
        slower.map(|ms| format!("the loop's own code takes {ms} longer while they do")),
        ipc.map(|ipc| format!("it completes {ipc:.2} instructions per cycle")),
    ])
}

/// The action of a remedy, as one sentence.
#[expect(clippy::too_many_lines, reason = "one sentence for each action")]
fn action(action: &Action) -> String {
    match action {
        Action::Stop => "Stop here: the training is compute-bound, and a faster loader does not \
                         shorten the step. Look at the model."
            .to_owned(),
        Action::MoreProcesses { from: 0, to: 1 } => {
            "Load in a worker process instead of on the training thread: num_workers=1.".to_owned()
        }
        Action::MoreProcesses { from: 0, to } => format!(
            "Load in {to} worker processes instead of on the training thread: num_workers={to}."
        ),
        Action::MoreProcesses { from, to } => {
            format!("Load in {to} worker processes instead of {from}.")
        }
        Action::MoreCalls {
            stage,
            from,
            to,
            on_decoders,
        } => format!(
            "Run `{stage}` {to} at a time instead of {from}{}.",
            if *on_decoders {
                ": one on each decoder at most"
            } else {
                ""
            }
        ),
        Action::FewerCalls {
            stage,
            from,
            to,
            shared,
        } => format!(
            "Run `{stage}` {to} at a time instead of {from}{}.",
            match shared {
                Shared::Decoders =>
                    ", one on each decoder: more share the same decoders and hold each other up",
                Shared::Memory =>
                    ": its threads seem to slow each other, and the model, through memory",
                Shared::Cores => ": there are no cores for more",
            }
        ),
        Action::SubmitAhead { stage, queue } => format!(
            "Submit more calls of `{stage}` ahead: nothing waits in `{queue}`, so more workers would \
             have nothing to do."
        ),
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
        Action::Background { in_process } => format!(
            "Load the next batch in a separate {} while the loop computes.",
            if *in_process { "process" } else { "thread" }
        ),
        Action::CheaperCalls { stage, work } => format!(
            "Halve what a call of `{stage}` costs ({}).",
            match work {
                Work::Video => "shorter clips, fewer or smaller frames, a faster decoder",
                Work::Images => "smaller images, a faster library",
                Work::Reading => "smaller samples, a faster store, bigger reads",
                Work::Unknown => "less work a call, or a faster library",
            }
        ),
        Action::Subprocess { each_thread: true } => {
            "Run the loader's stages in separate processes, as many as there are busy threads: \
             each process has its own interpreter lock, which threads must share."
                .to_owned()
        }
        Action::Subprocess { each_thread: false } => {
            "Run the loader in a subprocess: its threads and the loop wait for each other's \
             interpreter lock."
                .to_owned()
        }
        Action::CollectBetweenEpochs => "Collect garbage only between epochs: `gc.disable()` at \
                                         the start, `gc.collect()` after each."
            .to_owned(),
        Action::KeepInMemory => "Keep the data in memory: it is read from the disk again and \
                                 again because the page cache is too small for it. More memory, \
                                 smaller files, or a faster disk."
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
        Action::PinMemory => "Copy batches to the GPU from page-locked memory.".to_owned(),
    }
}
