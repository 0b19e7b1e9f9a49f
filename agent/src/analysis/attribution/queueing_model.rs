//! Models the pipeline: the demand of each call on the shared resources, without contention.
//!
//! A call's measured time includes its waiting for cores, decoders, the disk or the interpreter lock. If
//! one of these is busy, that waiting is subtracted, because a remedy changes it.

use super::call_times::Times;
use super::law_terms::at_least;
use super::simulation::{SimulatedPipeline, Station, Supply};
use super::stage_order::{Node, chain};
use crate::analysis::attribution::facts::PipelineFacts;
use crate::analysis::thresholds::{Thresholds, bounds, counts};
use crate::model::record::QueueSummary;

/// Utilization of the shared resources, as a share of the supply; `None` if not measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub(super) cores: Option<f64>,
    pub(super) disk: Option<f64>,
    pub(super) engines: Option<f64>,
    /// Cores' worth of work that may need the interpreter lock, if threads wait for it.
    pub(super) gil: Option<f64>,
}

/// Parts of the names of stages that decode. If several stages may use the GPU's decoders, one of these is
/// chosen.
const DECODING_NAMES: [&str; 2] = ["dec", "video"];

/// A pool of threads that calls of stages run on. Calls may have to wait for a thread.
#[derive(Debug, Clone)]
pub(super) struct Pool<'a> {
    pub(super) queue: &'a QueueSummary,
    pub(super) threads: u32,
    /// Mean number of threads in a call.
    pub(super) active: f64,
    pub(super) stages: Vec<usize>,
}

impl Pool<'_> {
    /// Share of the pool's threads that are in a call.
    pub(super) fn busy(&self) -> f64 {
        self.active / f64::from(self.threads)
    }
}

/// The measured facts, and the model derived from them.
#[derive(Debug, Clone)]
pub(super) struct Model<'a> {
    pub(super) facts: &'a PipelineFacts,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) uses: Uses,
    /// The stage that decodes on the GPU's engines, and the number of engines.
    pub(super) decoder: Option<(usize, u32)>,
    /// The stage that reads from the disk, if the disk is busy.
    pub(super) reader: Option<usize>,
    /// The stage that consists of torch's worker processes.
    pub(super) workers: Option<usize>,
    pub(super) pools: Vec<Pool<'a>>,
    pub(super) simulated: SimulatedPipeline,
    /// The loop's own part with free data.
    pub(super) free_ms: f64,
    pub(super) thresholds: &'a Thresholds,
}

impl<'a> Model<'a> {
    /// Returns `None` if there were no steps. Without stages, the model has only the resources and the
    /// loop.
    pub(super) fn of(facts: &'a PipelineFacts, thresholds: &'a Thresholds) -> Option<Self> {
        let (nodes, batch) = chain(facts, thresholds);
        if !(facts.step_ms.is_finite() && facts.step_ms > 0.0) {
            return None;
        }
        let uses = uses(facts, &nodes, thresholds);
        let decoder = decoder(facts, &nodes, thresholds);
        let decoding = decoder.map(|(stage, _)| stage);
        let reader = reader(facts, &nodes, uses, decoding, thresholds);
        let workers = workers(facts, &nodes);
        let pools = pools(facts, &nodes, thresholds);
        let compute = (facts.step_ms - facts.wait_ms).max(0.0);
        let free_ms = facts.floor_ms.map_or(compute, |floor| floor.value);
        let mut model = Self {
            simulated: SimulatedPipeline {
                stations: Vec::new(),
                pools: pools.iter().map(|pool| pool.threads).collect(),
                batch,
                loop_ms: compute,
                loop_times: facts.compute_cv.map_or_else(Times::constant, Times::around),
                loop_cores: 0.0,
                contention: 0.0,
                device_ms: None,
                inline: inline(facts, &nodes, thresholds),
                cores: facts
                    .resources
                    .cores_usable
                    .unwrap_or(f64::INFINITY)
                    .max(bounds::MIN_CORES),
                others: 0.0,
                engines: decoder.map_or(f64::INFINITY, |(_, engines)| f64::from(engines)),
            },
            facts,
            nodes,
            uses,
            decoder,
            reader,
            workers,
            pools,
            free_ms,
            thresholds,
        };
        model.simulated.others = model.others();
        let slowdown = model.slowdown();
        model.simulated.stations = (0..model.nodes.len())
            .map(|stage| model.station(stage, slowdown))
            .collect();
        model.set_loop();
        Some(model)
    }

    /// Whether the pipeline is small enough to be simulated.
    pub(super) fn simulable(&self) -> bool {
        let calls = self.nodes.iter().map(|node| node.calls).sum::<f64>();
        calls > 0.0 && calls < self.thresholds.max_simulated_calls
    }

    /// The factor by which work on a core takes longer because cores are short.
    fn slowdown(&self) -> f64 {
        let r = &self.facts.resources;
        let (Some(used), Some(cores)) = (self.uses.cores, r.cores_usable) else {
            return 1.0;
        };
        let others = r.others_cores.unwrap_or(0.0) / cores;
        if used + others < self.thresholds.uncontended_core_utilization {
            return 1.0;
        }
        // A call that only works on a core is the best indicator.
        let shown = self
            .nodes
            .iter()
            .filter_map(Node::cpu)
            .filter(|share| *share > self.thresholds.measurable_cpu)
            .map(f64::recip)
            .fold(f64::INFINITY, f64::min);
        let per_core = r
            .runnable_threads
            .map_or(f64::INFINITY, |threads| threads / cores);
        let most = shown.min(per_core.max(1.0));
        if most.is_finite() { most.max(1.0) } else { 1.0 }
    }

    /// Estimated runnable threads of other programs. The scheduler treats all threads alike, so each of them
    /// has a core for the same share of its runnable time as the loop's thread. Their number is the cores
    /// that they use divided by that share.
    fn others(&self) -> f64 {
        let r = &self.facts.resources;
        let used = r.others_cores.unwrap_or(0.0);
        if used < self.thresholds.min_other_programs {
            return 0.0;
        }
        let waits = r.consumer_run_queue_pct.unwrap_or(0.0) / 100.0 * self.facts.step_ms;
        let (own, compute) = (self.own_thread_ms(), self.simulated.loop_ms);
        let works = (own - waits).max(self.thresholds.min_loop_work * compute);
        used * (own / works).max(1.0)
    }

    /// Time per step that the loop's thread works or waits for a core.
    fn own_thread_ms(&self) -> f64 {
        if self.simulated.inline {
            self.facts.step_ms
        } else {
            self.simulated.loop_ms
        }
    }

    fn station(&self, stage: usize, slowdown: f64) -> Station {
        let node = &self.nodes[stage];
        let prefetch_factor = self.facts.loader.prefetch_factor;
        let ahead = (self.workers == Some(stage))
            .then(|| prefetch_factor.unwrap_or(counts::PREFETCH_FACTOR).max(1));
        Station {
            servers: whole(node.concurrency),
            parts: self.parts(stage, slowdown),
            times: Times::of(node.stage, self.thresholds.far_percentiles),
            takes: node.takes,
            gives: node.gives,
            room: node.room().max(1),
            ahead,
            pool: (self.pools.iter()).position(|pool| pool.stages.contains(&stage)),
        }
    }

    /// The time that a call needs of each supply, without contention.
    fn parts(&self, stage: usize, slowdown: f64) -> Vec<(Supply, f64)> {
        let node = &self.nodes[stage];
        let step = self.facts.step_ms;
        if let Some(engines) = self.engines_of(stage) {
            let per_engine = (node.active(step) / f64::from(engines)).max(1.0);
            return vec![(Supply::Engines, node.mean_ms / per_engine)];
        }
        let Some(cpu) = node.cpu() else {
            return vec![(Supply::Free, node.mean_ms)];
        };
        let work = cpu * node.mean_ms;
        if self.reader == Some(stage)
            && let Some(used) = self.uses.disk
        {
            let read = used * step / node.calls;
            let waits = if used < self.thresholds.saturated_utilization {
                node.mean_ms - work - read
            } else {
                0.0
            };
            return vec![
                (Supply::Free, waits.max(0.0)),
                (Supply::Disk, read),
                (Supply::Cores, work),
            ];
        }
        if self.holds_gil(stage) {
            let wait = self.gil_free(stage);
            return vec![(Supply::Free, wait), (Supply::Gil, work)];
        }
        let waits = node.mean_ms - work * slowdown;
        if waits < self.thresholds.negligible_rest * node.mean_ms {
            let all_ms = node.mean_ms.min(work.max(node.mean_ms / slowdown));
            return vec![(Supply::Cores, all_ms)];
        }
        vec![(Supply::Free, waits), (Supply::Cores, work)]
    }

    /// The number of video decoders, if the stage decodes on them.
    pub(super) fn engines_of(&self, stage: usize) -> Option<u32> {
        (self.decoder).and_then(|(decoder, engines)| (decoder == stage).then_some(engines))
    }

    /// Whether a stage consists of threads of this process, not of worker processes.
    pub(super) fn runs_here(&self, stage: usize) -> bool {
        self.workers != Some(stage) && self.nodes[stage].stage.processes <= 1
    }

    /// Whether the stages' threads together do as much work as one lock allows.
    fn gil_is_used_up(&self) -> bool {
        let full = self.thresholds.min_gil_work..=self.thresholds.max_gil_work;
        self.uses.gil.is_some_and(|work| full.contains(&work))
    }

    /// Whether the interpreter lock is the scarce resource of this process.
    pub(super) fn gil_binds(&self) -> bool {
        self.gil_is_used_up() && (0..self.nodes.len()).any(|stage| self.holds_gil(stage))
    }

    /// Whether a stage works under the interpreter lock while the lock is scarce.
    pub(super) fn holds_gil(&self, stage: usize) -> bool {
        let (node, t) = (&self.nodes[stage], self.thresholds);
        let holds = |cpu: f64| cpu > t.min_gil_holder_cpu && cpu < t.max_gil_waiter_cpu;
        self.gil_is_used_up() && node.stage.processes <= 1 && node.measured_cpu().is_some_and(holds)
    }

    /// Whether `workers`, the training thread and other programs need more cores than there are.
    pub(super) fn is_oversubscribed(&self, workers: u32) -> bool {
        f64::from(workers) + 1.0 + self.simulated.others > self.simulated.cores
    }

    /// Remaining wait of a call, after its work and its wait for the lock are subtracted.
    fn gil_free(&self, stage: usize) -> f64 {
        let slowdown = (0..self.nodes.len())
            .filter(|other| self.holds_gil(*other))
            .filter_map(|other| self.nodes[other].cpu())
            .fold(0.0, f64::max)
            .recip();
        if slowdown > self.thresholds.max_gil_slowdown {
            return 0.0;
        }
        let node = &self.nodes[stage];
        let wait = node.mean_ms * (1.0 - node.cpu().unwrap_or(1.0) * slowdown);
        if wait < self.thresholds.negligible_gil_rest * node.mean_ms {
            0.0
        } else {
            wait
        }
    }

    /// Sets the loop's own part: its time without contention, its slowdown, and its asynchronous device
    /// time.
    fn set_loop(&mut self) {
        let facts = self.facts;
        let (step, compute) = (facts.step_ms, self.simulated.loop_ms);
        let (r, t) = (&facts.resources, self.thresholds);
        let queued = r.consumer_run_queue_pct.unwrap_or(0.0) / 100.0 * step;
        let queued = queued * compute / self.own_thread_ms().max(1e-9);
        let staged: f64 = self
            .nodes
            .iter()
            .map(|node| node.busy_ms() * node.cpu().unwrap_or(0.0))
            .sum();
        let own = r
            .cores_used
            .map_or(0.0, |used| (used * step - staged) / compute.max(1e-9));
        // A loop that loads by itself keeps one core busy. It still needs that core if workers load.
        let beside = self.simulated.others / self.simulated.cores;
        let contended = |used: f64| used + beside > t.uncontended_core_utilization;
        let shared = self.simulated.inline || self.uses.cores.is_some_and(contended);
        if shared && own > t.min_loop_cores {
            self.simulated.loop_ms = (compute - queued).max(t.min_loop_work * compute);
            let cores = own * compute / self.simulated.loop_ms;
            self.simulated.loop_cores = cores.min(self.simulated.cores);
            return;
        }
        let Some(floor) = facts.floor_ms else { return };
        if floor.value > t.device_floor * compute {
            self.simulated.device_ms = Some(floor.value);
            return;
        }
        let slower = facts
            .contention_ms
            .unwrap_or(compute - floor.value)
            .max(0.0);
        let alone = (compute - slower).max(bounds::MIN_COMPUTE_ALONE * compute);
        let active: f64 = self.nodes.iter().map(|node| node.active(step)).sum();
        if slower > t.negligible_contention * compute && active > 0.0 {
            self.simulated.loop_ms = alone;
            self.simulated.contention = slower / alone / active;
        }
    }
}

fn uses(facts: &PipelineFacts, nodes: &[Node<'_>], thresholds: &Thresholds) -> Uses {
    let r = &facts.resources;
    let waits = at_least(r.gil_wait_ms, thresholds.long_gil_wait_ms);
    let of_one_process = nodes
        .iter()
        .filter(|node| node.stage.processes <= 1)
        .map(|node| node.active(facts.step_ms) * node.measured_cpu().unwrap_or(0.0))
        .sum::<f64>();
    let engines: f64 = (r.own_gpus())
        .filter_map(|gpu| gpu.nvdec_engines)
        .map(f64::from)
        .sum();
    let decoding = (r.own_gpus())
        .filter_map(|gpu| gpu.nvdec_busy)
        .reduce(|a, b| a + b);
    Uses {
        cores: r
            .cores_used
            .zip(r.cores_usable)
            .filter(|(_, usable)| *usable > 0.0)
            .map(|(used, usable)| used / usable),
        disk: r.disk_utilization_pct.map(|pct| (pct / 100.0).min(1.0)),
        engines: decoding
            .filter(|_| engines > 0.0)
            .map(|busy| (busy / engines).min(1.0)),
        gil: waits.then_some(of_one_process),
    }
}

/// The stage whose concurrent calls match the number of busy decoders, while no core works for them.
fn decoder(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    thresholds: &Thresholds,
) -> Option<(usize, u32)> {
    let gpus = || facts.resources.own_gpus();
    let engines: u32 = gpus().filter_map(|gpu| gpu.nvdec_engines).sum();
    let busy: f64 = gpus().filter_map(|gpu| gpu.nvdec_busy).sum();
    if engines == 0 || busy < thresholds.min_decoder_use {
        return None;
    }
    let explains = |node: &Node<'_>| {
        let active = node.active(facts.step_ms);
        active >= thresholds.min_decoding_calls * busy
            && node
                .cpu()
                .is_none_or(|cpu| cpu < thresholds.max_decoding_cpu)
    };
    let candidates = || nodes.iter().enumerate().filter(|(_, node)| explains(node));
    let named = candidates().find(|(_, node)| {
        let name = node.stage.name.to_lowercase();
        DECODING_NAMES.iter().any(|part| name.contains(part))
    });
    // If no stage has a matching name, the stage with the closest number of calls is used.
    let nearest = || {
        candidates().min_by(|(_, a), (_, b)| {
            let off = |node: &Node<'_>| (node.active(facts.step_ms) - busy).abs();
            off(a).total_cmp(&off(b))
        })
    };
    named.or_else(nearest).map(|(stage, _)| (stage, engines))
}

/// The stage with the longest wait for something other than a core, while the disk is busy.
fn reader(
    facts: &PipelineFacts,
    nodes: &[Node<'_>],
    uses: Uses,
    decoder: Option<usize>,
    thresholds: &Thresholds,
) -> Option<usize> {
    uses.disk.filter(|used| *used >= thresholds.min_disk_use)?;
    let waits = |node: &Node<'_>| node.active(facts.step_ms) * (1.0 - node.cpu().unwrap_or(1.0));
    nodes
        .iter()
        .enumerate()
        .filter(|(stage, node)| {
            decoder != Some(*stage) && waits(node) > thresholds.min_reading_calls
        })
        .max_by(|(_, a), (_, b)| waits(a).total_cmp(&waits(b)))
        .map(|(stage, _)| stage)
}

/// The stage that runs in as many processes as the loader has workers.
fn workers(facts: &PipelineFacts, nodes: &[Node<'_>]) -> Option<usize> {
    let workers = facts.loader.workers.filter(|workers| *workers > 0)?;
    nodes.iter().position(|node| {
        node.stage.processes == workers
            && (node.concurrency - f64::from(workers)).abs() < bounds::SAME_WHOLE_NUMBER
    })
}

/// The pools whose threads stages may have to wait for. Programs do not declare which stages run in a pool.
/// It is inferred: the concurrent calls of a stage must match the pool's busy threads, either those of one
/// stage alone, or those of all stages together that have no pool of their own.
fn pools<'a>(
    facts: &'a PipelineFacts,
    nodes: &[Node<'_>],
    thresholds: &Thresholds,
) -> Vec<Pool<'a>> {
    let active = |stage: &usize| nodes[*stage].active(facts.step_ms);
    let mut left: Vec<usize> = (0..nodes.len())
        .filter(|stage| nodes[*stage].stage.processes <= 1)
        .collect();
    let all: f64 = left.iter().map(active).sum();
    let mut found = Vec::new();
    let mut shared = Vec::new();
    for queue in &facts.queues {
        let (Some(threads), Some(at_work)) = (queue.concurrency, queue.active) else {
            continue;
        };
        let off = |calls: f64| (calls - at_work).abs();
        let same = |calls: f64| off(calls) <= thresholds.same_calls_error * at_work;
        let pool = |stages| Pool {
            queue,
            threads: threads.max(1),
            active: at_work,
            stages,
        };
        let alone = (0..left.len())
            .filter(|at| same(active(&left[*at])) && off(active(&left[*at])) <= off(all))
            .min_by(|a, b| off(active(&left[*a])).total_cmp(&off(active(&left[*b]))));
        match alone.map(|at| left.remove(at)) {
            Some(stage) if f64::from(threads) < nodes[stage].concurrency => {
                found.push(pool(vec![stage]));
            }
            Some(_) => {}
            None => shared.push(pool(Vec::new())),
        }
    }
    // If several pools are shared, the stages cannot be assigned to them.
    if let [pool] = &mut shared[..] {
        let together: f64 = left.iter().map(active).sum();
        if (together - pool.active).abs() <= thresholds.same_calls_error * pool.active
            && left.len() > 1
        {
            pool.stages = left;
            found.append(&mut shared);
        }
    }
    found
}

/// Whether the loop does the loader's work itself: the waits match the stages' times, and no queue holds
/// batches. If the loader is known to have no worker processes, queues belong to something else.
fn inline(facts: &PipelineFacts, nodes: &[Node<'_>], thresholds: &Thresholds) -> bool {
    let says_so = facts.loader.workers == Some(0);
    let least = if says_so {
        thresholds.min_explained_wait
    } else {
        thresholds.min_explained_wait_unknown
    };
    let load: f64 = nodes.iter().map(Node::busy_ms).sum();
    let explained =
        load >= least * facts.wait_ms && load <= thresholds.max_explained_wait * facts.wait_ms;
    let one_by_one = nodes.iter().all(|node| node.concurrency <= 1.0);
    explained && one_by_one && (says_so || facts.queues.is_empty()) && !nodes.is_empty()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped before the cast"
)]
pub(super) fn whole(count: f64) -> u32 {
    count.round().clamp(1.0, bounds::MAX_CONCURRENCY) as u32
}
