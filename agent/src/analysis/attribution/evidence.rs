//! What a conclusion rests on, in words: the numbers that it was drawn from.

use super::bottleneck::{SLOW_IPC, Term};
use super::flow::Node;
use super::model::Model;
use super::price::Price;
use crate::analysis::verdict::units::{amount, duration_ms, percent};

/// Stages of a pool that are told by name.
const MOST_SHARERS: usize = 3;

/// What a conclusion rests on: numbers, in a clause.
pub(super) fn evidence(model: &Model<'_>, term: Term) -> String {
    let (facts, r) = (model.facts, &model.facts.resources);
    let share = |used: Option<f64>| percent(100.0 * used.unwrap_or(0.0), 0);
    match term {
        Term::Stage(stage) => of_stage(model, stage),
        Term::Pool(pool) => of_pool(model, pool),
        Term::Cores => cores_evidence(model),
        Term::Quota => format!(
            "the quota of {} cores ran out in {} % of its periods",
            amount(r.cores_usable.unwrap_or(0.0)),
            percent(r.throttled_pct.unwrap_or(0.0), 0)
        ),
        Term::Gil => gil_evidence(model),
        Term::Gc => format!(
            "the garbage collector stops the process for {} % of the time",
            percent(r.gc_pct.unwrap_or(0.0), 1)
        ),
        Term::Disk => format!("the disk is busy {} % of the time", share(model.uses.disk)),
        Term::Engines => {
            let busy = share(model.uses.engines);
            match model.decoder {
                Some((stage, engines)) => format!(
                    "the {engines} decoders are busy {busy} % of the time with {} decodes at once",
                    amount(model.nodes[stage].active(facts.step_ms))
                ),
                None => format!("the decoders are busy {busy} % of the time"),
            }
        }
        Term::Memory => memory_evidence(model),
        Term::Jitter => {
            let longest = (0..model.nodes.len())
                .map(|stage| model.nodes[stage].limit_ms)
                .fold(model.free_ms, f64::max);
            format!(
                "no limit is above {}, but calls vary and the buffers are too small for it",
                duration_ms(longest)
            )
        }
        Term::Compute if facts.floor_ms.is_some() => format!(
            "with free data a step takes {} of {}",
            duration_ms(model.free_ms),
            duration_ms(facts.step_ms)
        ),
        Term::Compute => format!(
            "the loop waits {} of {} for data",
            duration_ms(facts.wait_ms),
            duration_ms(facts.step_ms)
        ),
    }
}

/// A stage is named if it uses at least this many cores.
const LEAST_CORES: f64 = 0.1;

fn cores_evidence(model: &Model<'_>) -> String {
    let r = &model.facts.resources;
    let others = r.others_cores.filter(|others| *others >= 0.1);
    let others = others.map_or_else(String::new, |others| {
        format!(", other programs use {}", amount(others))
    });
    let most = most_cores(model).map_or_else(String::new, |(stage, cores)| {
        format!(", {} of them by `{stage}`", amount(cores))
    });
    format!(
        "{} of {} cores used{most}{others}{}",
        amount(r.cores_used.unwrap_or(0.0)),
        amount(r.cores_usable.unwrap_or(0.0)),
        oversubscription(model)
    )
}

/// The stage that uses most cores, and how many.
fn most_cores<'a>(model: &Model<'a>) -> Option<(&'a str, f64)> {
    let step = model.facts.step_ms;
    let used = model.nodes.iter().filter_map(|node| {
        let cores = node.active(step) * node.cpu()?;
        (cores >= LEAST_CORES).then_some((node.stage.name.as_str(), cores))
    });
    used.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn gil_evidence(model: &Model<'_>) -> String {
    let wait = duration_ms(model.facts.resources.gil_wait_ms.unwrap_or(0.0));
    let waits = format!("a thread waits {wait} for the interpreter lock");
    match model.uses.gil.filter(|_| model.gil_binds()) {
        Some(work) => format!(
            "{waits}, and the stages' threads together use {} % of a core",
            percent(100.0 * work, 0)
        ),
        None => format!("{waits} that the loop needs, too"),
    }
}

fn oversubscription(model: &Model<'_>) -> String {
    let r = &model.facts.resources;
    let threads = r
        .runnable_threads
        .filter(|threads| Some(*threads) > r.cores_usable);
    let waits = r.consumer_run_queue_pct.filter(|pct| *pct >= 5.0);
    let threads = threads.map(|threads| format!(", {} threads want one", amount(threads)));
    let waits = waits.map(|pct| {
        let pct = percent(pct, 0);
        format!(", the training thread waits for one {pct} % of the time")
    });
    [threads, waits].into_iter().flatten().collect()
}

fn memory_evidence(model: &Model<'_>) -> String {
    let r = &model.facts.resources;
    let mut parts = vec!["the threads' cores work all the time and cores are free".to_owned()];
    if let Some(slower) = model.facts.contention_ms.filter(|ms| *ms > 0.0) {
        parts.push(format!(
            "the loop's own code takes {} longer while they do",
            duration_ms(slower)
        ));
    }
    if let Some(ipc) = r.consumer_ipc.filter(|ipc| *ipc < SLOW_IPC) {
        parts.push(format!("it gets {ipc:.2} instructions done in a cycle"));
    }
    parts.join(", ")
}

fn of_stage(model: &Model<'_>, stage: usize) -> String {
    let node = &model.nodes[stage];
    let step = model.facts.step_ms;
    if model.simulated.inline {
        return on_the_training_thread(model);
    }
    let busy = percent(100.0 * (node.limit_ms / step).min(1.0), 0);
    let mut parts = vec![if node.concurrency > 1.0 {
        format!("{} at a time, busy {busy} %", amount(node.concurrency))
    } else {
        format!("busy {busy} %")
    }];
    if let Some(full) = node
        .before
        .and_then(|queue| queue.full_pct)
        .filter(|pct| *pct >= 20.0)
    {
        parts.push(format!(
            "the queue before it full {} % of the time",
            percent(full, 0)
        ));
    }
    if let Some(empty) = node
        .after
        .and_then(|queue| queue.empty_pct)
        .filter(|pct| *pct >= 20.0)
    {
        parts.push(format!(
            "the queue after it empty {} % of the time",
            percent(empty, 0)
        ));
    }
    if let Some(slow) = node.stage.slow_pct.filter(|pct| *pct >= 2.0) {
        parts.push(format!(
            "{} % of its calls take over 3 times the median",
            percent(slow, 0)
        ));
    }
    if let Some((inner, share)) = inner(model, stage) {
        parts.push(format!(
            "{} % of it is `{inner}`",
            percent(100.0 * share, 0)
        ));
    }
    parts.join(", ")
}

fn on_the_training_thread(model: &Model<'_>) -> String {
    let facts = model.facts;
    let takes = format!(
        "{} of {} a step, and nothing overlaps",
        duration_ms(facts.wait_ms),
        duration_ms(facts.step_ms)
    );
    if facts.loader.workers != Some(0) {
        return format!("runs on the training thread itself: {takes}");
    }
    let price = Price::of(&facts.loader);
    let price = price.is_known.then(|| {
        let receive = duration_ms(price.receive_ms);
        format!("; to receive a batch from a worker process would take that thread about {receive}")
    });
    format!(
        "runs on the training thread itself (num_workers=0): {takes}{}",
        price.unwrap_or_default()
    )
}

fn of_pool(model: &Model<'_>, pool: usize) -> String {
    let pool = &model.pools[pool];
    let busy = percent(100.0 * pool.busy().min(1.0), 0);
    let mut stages: Vec<&Node<'_>> = pool.stages.iter().map(|s| &model.nodes[*s]).collect();
    stages.sort_by(|a, b| b.busy_ms().total_cmp(&a.busy_ms()));
    let names: Vec<String> = (stages.iter().take(MOST_SHARERS))
        .map(|node| format!("`{}`", node.stage.name))
        .collect();
    let more = match stages.len().saturating_sub(MOST_SHARERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let threads = match pool.threads {
        1 => "its thread is".to_owned(),
        threads => format!("its {threads} threads are"),
    };
    format!(
        "{threads} busy {busy} % of the time with {}{more}",
        names.join(", ")
    )
}

/// The stage called within that takes most of it, and its share.
pub(super) fn inner<'a>(model: &'a Model<'_>, stage: usize) -> Option<(&'a str, f64)> {
    let node = &model.nodes[stage];
    let whole = node.busy_ms();
    model
        .facts
        .stages
        .iter()
        .filter(|inner| inner.within.as_deref() == Some(&node.stage.name))
        .filter_map(|inner| {
            let part = inner.mean_ms? * inner.calls_per_batch? / whole;
            Some((inner.name.as_str(), part))
        })
        .filter(|(_, share)| *share > 0.3 && *share <= 1.05)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
