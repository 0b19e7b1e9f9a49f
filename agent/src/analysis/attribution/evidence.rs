//! The measurements that a conclusion is based on.

use super::calls_at_once::find_slowdown;
use super::hand_off_cost::Price;
use super::law_terms::{Term, at_least};
use super::loop_waits::{blocked_loading, long_lock_wait_ms, loop_waits};
use super::mount_reads::slow_mount;
use super::queueing_model::Model;
use super::stage_order::Node;
use crate::analysis::pcie::{bytes_per_s, used_share};
use crate::analysis::stacks::SharedLockWaits;
use crate::analysis::thresholds::{Thresholds, counts};
use crate::model::record::{BatchRecord, CallsAtOnce, Estimate, MountUse, PcieLink};
use crate::model::stack::Frame;

/// The measurements behind a conclusion. Shares are from 0 to 1, percentages (`_pct`) from 0 to 100.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// A stage is busy.
    Stage(StageEvidence),
    /// A what-if measured the step without the work of the stage.
    Freed {
        /// That step.
        step_ms: Estimate,
        /// By how much it is shorter, in percent.
        gain_pct: f64,
        /// The other stage that the model named before the measurement, if it named one.
        modelled: Option<String>,
    },
    /// Loading runs on the training thread itself.
    TrainingThread {
        /// Wait for data per step.
        wait_ms: f64,
        /// The whole step.
        step_ms: f64,
        /// Whether the loader is configured to use no workers.
        without_workers: bool,
        /// Estimated time of the training thread to receive a batch from a worker process, if a batch was
        /// measured.
        receive_ms: Option<f64>,
    },
    /// The threads of a pool are busy.
    Pool {
        /// Number of threads.
        threads: u32,
        /// Share of time that the threads work.
        busy: f64,
        /// The stages that use most of the threads.
        stages: Vec<String>,
        /// Number of further stages that are not named.
        more: usize,
    },
    /// The cores are in use.
    Cores(CoresEvidence),
    /// The CPU quota ran out.
    Quota {
        /// Number of cores that the quota allows.
        cores: f64,
        /// Share of quota periods that were throttled.
        throttled_pct: f64,
    },
    /// Threads wait for Python's interpreter lock.
    Gil {
        /// Mean wait for the lock.
        wait_ms: f64,
        /// Cores' worth of work of the stages' threads together, if the lock alone binds.
        work: Option<f64>,
        /// Share of the loop's compute in which the training thread waits for the lock, if long.
        share_of_compute: Option<f64>,
    },
    /// The training thread receives batches for long.
    HandOff {
        /// Time to receive a batch that is there.
        receive_ms: f64,
        /// Time in which a worker serializes a batch, if measured.
        send_ms: Option<f64>,
        /// Time in which a worker loads a batch, if serializing delays it.
        delayed_load_ms: Option<f64>,
        /// The step.
        step_ms: f64,
        /// Contents of a batch, if known.
        batch: Option<BatchRecord>,
    },
    /// Loading on the training thread waits long for another thread or a device.
    BlockedLoading {
        /// Share of its time in which it waits.
        share: f64,
        /// The line at which it waits longest.
        line: Frame,
        /// The loop's wait for data.
        wait_ms: f64,
        /// The step.
        step_ms: f64,
    },
    /// The loop waits for what threads or processes without stages make.
    Producers {
        /// Time per step in which the loop waits.
        wait_ms: f64,
        /// The step.
        step_ms: f64,
        /// The line of the loop that waits, if it is known.
        waiting_line: Option<Frame>,
        /// The line of other threads with the most time meanwhile, and its share of this time.
        line: Option<(Frame, f64)>,
    },
    /// The garbage collector stops the process.
    Gc {
        /// Share of time.
        pct: f64,
    },
    /// The disk is busy.
    Disk {
        /// Share of time.
        busy: f64,
    },
    /// The video decoders are busy.
    Decoders {
        /// Share of time, over all engines together.
        busy: f64,
        /// Number of engines and number of decodes in progress, if a stage decodes.
        engines: Option<(u32, f64)>,
    },
    /// The `PCIe` link of the GPU is busy.
    Pcie {
        /// Share of what the link carries, in the busier direction.
        used: f64,
        /// Bytes per step in that direction.
        bytes_per_step: f64,
        /// The link.
        link: Option<PcieLink>,
    },
    /// A stage waits for reads from a network file system.
    Mount {
        /// The stage.
        stage: String,
        /// Share of the time of its calls.
        share: f64,
        /// The file system.
        mount: MountUse,
    },
    /// Threads slow each other through memory.
    Memory {
        /// How much longer the loop's own code takes because of this.
        slower_ms: Option<f64>,
        /// Instructions per cycle of the loop's thread, if low.
        ipc: Option<f64>,
    },
    /// No limit binds, but call times vary.
    Jitter {
        /// The longest limit.
        longest_ms: f64,
    },
    /// The floor is near the step.
    Floor {
        /// A step with free data.
        floor_ms: f64,
        /// The whole step.
        step_ms: f64,
    },
    /// The loop hardly waits, or it mostly waits for the GPU.
    Waiting {
        /// Wait for data per step.
        wait_ms: f64,
        /// The whole step.
        step_ms: f64,
        /// Time per step in which the GPU executes kernels or copies, if known.
        gpu_ms: Option<f64>,
    },
}

impl Evidence {
    /// The stages that it names, besides the one that it describes.
    pub(super) fn stages(&self) -> Vec<&str> {
        match self {
            Self::Stage(stage) => stage.inner.iter().map(|(name, _)| &**name).collect(),
            Self::Pool { stages, .. } => stages.iter().map(|name| &**name).collect(),
            Self::Cores(cores) => cores.most.iter().map(|user| &*user.stage).collect(),
            Self::Mount { stage, .. } => vec![stage],
            _ => Vec::new(),
        }
    }
}

/// How busy a stage and its neighbouring queues are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageEvidence {
    /// Number of concurrent calls.
    pub concurrency: f64,
    /// Share of its concurrency in use.
    pub busy: f64,
    /// Share of time in which the queue before the stage is full, if notable.
    pub full_before_pct: Option<f64>,
    /// Share of time in which the queue after the stage is empty, if notable.
    pub empty_after_pct: Option<f64>,
    /// Share of calls that take more than 3 times the median, if notable.
    pub slow_pct: Option<f64>,
    /// The nested stage that takes most of the stage's time, and its share.
    pub inner: Option<(String, f64)>,
    /// The waits of its calls for a lock that several processes share, if long.
    pub shared_lock: Option<SharedLockWaits>,
    /// The time of a call with few and with many calls at once, if the calls slow each other.
    pub slowed: Option<[CallsAtOnce; 2]>,
}

/// Which programs use the cores, and how much threads wait for a core.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoresEvidence {
    /// Cores in use.
    pub used: f64,
    /// Number of usable cores.
    pub usable: f64,
    /// The stage that uses most cores.
    pub most: Option<CoreUser>,
    /// Cores that the other ranks on the machine use, if notable.
    pub other_ranks: Option<f64>,
    /// Cores that other programs use, if notable.
    pub others: Option<f64>,
    /// Number of runnable threads, if there are more than cores.
    pub runnable_threads: Option<f64>,
    /// Share of time that the training thread waits for a core, if notable.
    pub run_queue_pct: Option<f64>,
}

/// A stage that uses cores. If its input queue is full, items wait for the stage, and the stage waits for cores.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreUser {
    /// Name of the stage.
    pub stage: String,
    /// Number of cores in use for it.
    pub cores: f64,
    /// Share of time in which the queue before the stage is full, if notable.
    pub full_before_pct: Option<f64>,
}

/// The evidence for a term.
pub(super) fn evidence(model: &Model<'_>, term: Term) -> Evidence {
    let (facts, r) = (model.facts, &model.facts.resources);
    let step_ms = facts.step_ms;
    match term {
        Term::Stage(_) if model.simulated.inline => on_the_training_thread(model),
        Term::Stage(stage) => Evidence::Stage(of_stage(model, stage)),
        Term::Pool(pool) => of_pool(model, pool),
        Term::Cores => Evidence::Cores(of_cores(model)),
        Term::Quota => Evidence::Quota {
            cores: r.cores_usable.unwrap_or(0.0),
            throttled_pct: r.throttled_pct.unwrap_or(0.0),
        },
        Term::Gil => Evidence::Gil {
            wait_ms: r.gil_wait_ms.unwrap_or(0.0),
            work: model.uses.gil.filter(|_| model.gil_binds()),
            share_of_compute: long_lock_wait_ms(model)
                .map(|wait_ms| wait_ms / (step_ms - facts.wait_ms)),
        },
        Term::Gc => Evidence::Gc {
            pct: r.gc_pct.unwrap_or(0.0),
        },
        Term::Disk => Evidence::Disk {
            busy: model.uses.disk.unwrap_or(0.0),
        },
        Term::Engines => Evidence::Decoders {
            busy: model.uses.engines.unwrap_or(0.0),
            engines: (model.decoder)
                .map(|(stage, engines)| (engines, model.nodes[stage].active(step_ms))),
        },
        Term::Pcie => pcie_evidence(model),
        Term::Mount(stage) => mount_evidence(model, stage),
        Term::Memory => Evidence::Memory {
            slower_ms: facts.contention_ms.filter(|ms| *ms > 0.0),
            ipc: r
                .consumer_ipc
                .filter(|ipc| *ipc < model.thresholds.slow_ipc),
        },
        Term::Jitter => Evidence::Jitter {
            longest_ms: (model.nodes.iter())
                .map(|node| node.limit_ms)
                .fold(model.free_ms, f64::max),
        },
        Term::HandOff => Evidence::HandOff {
            receive_ms: facts.receive_ms,
            send_ms: facts.send_ms,
            delayed_load_ms: (model.send_delay.and(model.workers))
                .map(|stage| model.nodes[stage].busy_ms()),
            step_ms,
            batch: facts.loader.batch,
        },
        Term::Compute => compute_evidence(model),
    }
}

/// The evidence that the link of the busiest GPU limits the loop.
fn pcie_evidence(model: &Model<'_>) -> Evidence {
    let gpus = model.facts.resources.own_gpus();
    let shares = gpus.filter_map(|gpu| Some((used_share(gpu)?, gpu)));
    let busiest = shares.max_by(|a, b| a.0.total_cmp(&b.0));
    let (used, link) = busiest.map_or((0.0, None), |(used, gpu)| (used, gpu.pcie_link));
    let bytes_per_s = used * link.and_then(bytes_per_s).unwrap_or(0.0);
    Evidence::Pcie {
        used,
        bytes_per_step: bytes_per_s * model.facts.step_ms / 1e3,
        link,
    }
}

fn mount_evidence(model: &Model<'_>, stage: usize) -> Evidence {
    let (mount, share) = slow_mount(model, stage).unzip();
    Evidence::Mount {
        stage: model.nodes[stage].stage.name.clone(),
        share: share.unwrap_or(0.0),
        mount: mount.cloned().unwrap_or_default(),
    }
}

/// The evidence that compute limits the loop.
fn compute_evidence(model: &Model<'_>) -> Evidence {
    let (step_ms, wait_ms) = (model.facts.step_ms, model.facts.wait_ms);
    if loop_waits(model)
        && let Some(blocked) = blocked_loading(model)
    {
        return Evidence::BlockedLoading {
            share: blocked.share,
            line: blocked.line.clone(),
            wait_ms,
            step_ms,
        };
    }
    match model.facts.floor_ms {
        Some(_) => Evidence::Floor {
            floor_ms: model.free_ms,
            step_ms,
        },
        None => Evidence::Waiting {
            wait_ms,
            step_ms,
            gpu_ms: model.uses.gpu_ms(step_ms),
        },
    }
}

fn of_cores(model: &Model<'_>) -> CoresEvidence {
    let (r, t) = (&model.facts.resources, model.thresholds);
    CoresEvidence {
        used: r.cores_used.unwrap_or(0.0),
        usable: r.cores_usable.unwrap_or(0.0),
        // The CPU time of a stage is extrapolated from some of its calls, so it may exceed that of all threads.
        most: most_cores(model).filter(|user| at_least(r.cores_used, user.cores)),
        other_ranks: r.other_ranks_cores.filter(|cores| *cores >= t.shown_cores),
        others: r.others_cores.filter(|cores| *cores >= t.shown_cores),
        runnable_threads: (r.runnable_threads).filter(|threads| Some(*threads) > r.cores_usable),
        run_queue_pct: (r.consumer_run_queue_pct).filter(|pct| *pct >= t.negligible_core_wait_pct),
    }
}

/// The stage that uses most cores.
fn most_cores(model: &Model<'_>) -> Option<CoreUser> {
    let step = model.facts.step_ms;
    let used = model.nodes.iter().filter_map(|node| {
        let cores = node.active(step) * node.cpu()?;
        (cores >= model.thresholds.shown_cores).then_some((node, cores))
    });
    let (node, cores) = used.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(CoreUser {
        stage: node.stage.name.clone(),
        cores,
        full_before_pct: full_before_pct(node, model.thresholds),
    })
}

/// Share of time in which the queue before a stage is full, if notable.
fn full_before_pct(node: &Node<'_>, t: &Thresholds) -> Option<f64> {
    let full = node.before.and_then(|queue| queue.full_pct);
    full.filter(|pct| *pct >= t.shown_queue_pct)
}

fn of_stage(model: &Model<'_>, stage: usize) -> StageEvidence {
    let (node, t) = (&model.nodes[stage], model.thresholds);
    let empty = node.after.and_then(|queue| queue.empty_pct);
    StageEvidence {
        concurrency: node.concurrency,
        busy: (node.stage.busy_pct)
            .map_or(node.limit_ms / model.facts.step_ms, |pct| pct / 100.0)
            .min(1.0),
        full_before_pct: full_before_pct(node, t),
        empty_after_pct: empty.filter(|pct| *pct >= t.shown_queue_pct),
        slow_pct: (node.stage.slow_pct).filter(|pct| *pct >= t.shown_slow_calls_pct),
        inner: inner(model, stage).map(|(name, share)| (name.to_owned(), share)),
        shared_lock: model.shared_lock(stage).map(|lock| SharedLockWaits {
            share: lock.wait_ms / node.mean_ms,
            ..lock.waits.clone()
        }),
        slowed: find_slowdown(model, stage).map(|slowdown| slowdown.measured),
    }
}

fn on_the_training_thread(model: &Model<'_>) -> Evidence {
    let facts = model.facts;
    let without_workers = facts.loader.workers == Some(0);
    let price = without_workers.then(|| Price::of(facts, model.thresholds));
    Evidence::TrainingThread {
        wait_ms: facts.wait_ms,
        step_ms: facts.step_ms,
        without_workers,
        receive_ms: price
            .filter(|price| price.is_known)
            .map(|price| price.receive_ms),
    }
}

fn of_pool(model: &Model<'_>, pool: usize) -> Evidence {
    let pool = &model.pools[pool];
    let mut stages: Vec<&Node<'_>> = pool.stages.iter().map(|s| &model.nodes[*s]).collect();
    stages.sort_by(|a, b| b.busy_ms().total_cmp(&a.busy_ms()));
    let named = stages.iter().take(counts::NAMED_STAGES);
    Evidence::Pool {
        threads: pool.threads,
        busy: pool.busy().min(1.0),
        stages: named.map(|node| node.stage.name.clone()).collect(),
        more: stages.len().saturating_sub(counts::NAMED_STAGES),
    }
}

/// The nested stage that takes most of a stage's time, and its share.
pub(super) fn inner<'a>(model: &'a Model<'_>, stage: usize) -> Option<(&'a str, f64)> {
    let (node, t) = (&model.nodes[stage], model.thresholds);
    let whole = node.busy_ms();
    model
        .facts
        .stages
        .iter()
        .filter(|inner| inner.within.as_deref() == Some(&node.stage.name))
        .filter_map(|inner| Some((inner.name.as_str(), inner.busy_ms()? / whole)))
        .filter(|(_, share)| *share > t.shown_nested_stage && *share <= t.max_nested_stage)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
