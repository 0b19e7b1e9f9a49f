//! Models the pipeline: the demand of each call on the shared resources, without contention.
//!
//! A call's measured time includes its waiting for cores, decoders, the disk or the interpreter lock. If
//! one of these is busy, that waiting is subtracted, because a remedy changes it.

use super::call_times::Times;
use super::facts::PipelineFacts;
use super::pools::{Pool, find_pools};
use super::resource_use::{Uses, cores_of_rank, resource_uses, share_of_cores};
use super::send_delay::{SendDelay, find_send_delay};
use super::shared_lock::{SharedLock, find_shared_lock};
use super::simulation::{SimulatedPipeline, Station, Supply, whole};
use super::stage_order::{Node, chain};
use super::stage_roles::{find_decoder, find_reader, find_workers, is_inline};
use crate::analysis::thresholds::{Thresholds, bounds, counts};

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
    pub(super) pools: Vec<Pool>,
    /// How serializing batches delays the workers, if it does.
    pub(super) send_delay: Option<SendDelay>,
    pub(super) simulated: SimulatedPipeline,
    /// Step with free data: the measured floor, or the longer of compute and the GPU's work.
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
        let uses = resource_uses(facts, &nodes, thresholds);
        let decoder = find_decoder(facts, &nodes, thresholds);
        let decoding = decoder.map(|(stage, _)| stage);
        let reader = find_reader(facts, &nodes, uses, decoding, thresholds);
        let workers = find_workers(facts, &nodes);
        let send_delay =
            workers.and_then(|stage| find_send_delay(facts, &nodes[stage], thresholds));
        let inline = is_inline(facts, &nodes, thresholds);
        let pools = find_pools(facts, &nodes, inline, thresholds);
        // The training thread is as busy while it receives a batch as during compute.
        let compute = facts.busy_ms();
        let device_ms = uses.device_ms(facts.step_ms);
        let free_ms =
            (facts.floor_ms).map_or(compute.max(device_ms.unwrap_or(0.0)), |floor| floor.value);
        let mut model = Self {
            simulated: SimulatedPipeline {
                stations: Vec::new(),
                pools: pools.iter().map(|pool| pool.threads).collect(),
                batch,
                loop_ms: compute,
                loop_times: facts.compute_cv.map_or_else(Times::constant, Times::around),
                loop_cores: 0.0,
                contention: 0.0,
                // A probe shows more exactly whether the device limits the step.
                device_ms: device_ms.filter(|_| facts.floor_ms.is_none()),
                inline,
                cores: cores_of_rank(&facts.resources)
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
            send_delay,
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

    /// Changes the loading of a stage's call, and how much serializing delays it then.
    pub(super) fn change_loading(
        &self,
        simulated: &mut SimulatedPipeline,
        stage: usize,
        change: impl FnOnce(&mut [(Supply, f64)]),
    ) {
        let station = &mut simulated.stations[stage];
        let total_ms = |parts: &[(Supply, f64)]| parts.iter().map(|(_, ms)| ms).sum::<f64>();
        let before_ms = total_ms(station.loading());
        change(station.loading());
        let share = total_ms(station.loading()) / before_ms.max(f64::MIN_POSITIVE);
        if let Some(delay) = self.send_delay {
            delay.change(station, share, 1.0);
        }
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

    /// Estimated runnable threads of other programs on this rank's cores. The scheduler treats all threads
    /// alike, so each of them has a core for the same share of its runnable time as the loop's thread. Their
    /// number is the cores that they use divided by that share.
    fn others(&self) -> f64 {
        let r = &self.facts.resources;
        let used = share_of_cores(r) * r.others_cores.unwrap_or(0.0);
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
        let sending = self.send_delay.filter(|_| self.workers == Some(stage));
        let sending = sending.map(SendDelay::part);
        Station {
            servers: whole(node.concurrency),
            parts: (self.parts(stage, slowdown).into_iter().chain(sending)).collect(),
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
        // If the interpreter lock is scarce, it limits the calls, also those that wait for another lock of the process.
        if let Some(lock) = self.shared_lock(stage).filter(|_| !self.holds_gil(stage)) {
            return parts_with_lock(lock, node.cpu().unwrap_or(0.0) * node.mean_ms);
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

    /// The lock for which the stage's calls in several processes or threads wait long, if they do.
    pub(super) fn shared_lock(&self, stage: usize) -> Option<SharedLock<'a>> {
        find_shared_lock(self.facts, &self.nodes, stage, self.thresholds)
    }

    /// The number of video decoders, if the stage decodes on them.
    pub(super) fn engines_of(&self, stage: usize) -> Option<u32> {
        (self.decoder).and_then(|(decoder, engines)| (decoder == stage).then_some(engines))
    }

    /// The stage with this name.
    pub(super) fn find_stage(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.stage.name == name)
    }

    /// Whether a stage consists of threads of the training process, not of another process.
    pub(super) fn runs_here(&self, stage: usize) -> bool {
        self.workers != Some(stage) && self.nodes[stage].stage.runs_in_training_process()
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
        self.gil_is_used_up() && self.runs_here(stage) && node.measured_cpu().is_some_and(holds)
    }

    /// Whether the calls of a stage run on threads that other stages use too. Then the stage has no number of calls of its
    /// own.
    pub(super) fn runs_on_shared_threads(&self, stage: usize) -> bool {
        let mut pools = self.pools.iter();
        pools.any(|pool| pool.sets_concurrency && pool.stages.contains(&stage))
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

    /// Part of compute in which the loop waits for another thread, process or machine: for other ranks, if there are
    /// some and no GPU. If the step becomes shorter on all ranks, so does this wait.
    fn wait_for_ranks_ms(&self) -> f64 {
        let facts = self.facts;
        let waits = self.has_other_ranks() && facts.resources.gpus.is_empty();
        facts.compute_blocked_ms.filter(|_| waits).unwrap_or(0.0)
    }

    /// Whether the run has other ranks on this machine.
    pub(super) fn has_other_ranks(&self) -> bool {
        self.facts.resources.other_ranks_cores.is_some()
    }

    /// Time per step that cores work in the calls of all stages, as far as it is known.
    pub(super) fn stage_work_ms(&self) -> f64 {
        let work = |node: &Node<'_>| node.busy_ms() * node.cpu().unwrap_or(0.0);
        self.nodes.iter().map(work).sum()
    }

    /// Sets compute: its time without contention, its slowdown, and its asynchronous device time.
    fn set_loop(&mut self) {
        let facts = self.facts;
        let (step, compute) = (facts.step_ms, self.simulated.loop_ms);
        let (r, t) = (&facts.resources, self.thresholds);
        let queued = r.consumer_run_queue_pct.unwrap_or(0.0) / 100.0 * step;
        let queued = queued * compute / self.own_thread_ms().max(1e-9);
        let staged = self.stage_work_ms();
        // The loop needs no core while it waits for other ranks.
        let waits_for_ranks = self.wait_for_ranks_ms();
        let least_ms = (t.min_loop_work * compute).max(1e-9);
        let own_compute_ms = (compute - waits_for_ranks).max(least_ms);
        let own_cores = r
            .cores_used
            .map_or(0.0, |used| (used * step - staged) / own_compute_ms);
        // A loop that loads by itself keeps one core busy. It still needs that core if workers load.
        let beside = self.simulated.others / self.simulated.cores;
        let contended = |used: f64| used + beside > t.uncontended_core_utilization;
        let shared = self.simulated.inline || self.uses.cores.is_some_and(contended);
        if shared && own_cores > t.min_loop_cores {
            let waits = queued + waits_for_ranks;
            self.simulated.loop_ms = (compute - waits).max(least_ms);
            let cores = own_cores * own_compute_ms / self.simulated.loop_ms;
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
            .unwrap_or(compute - facts.receive_ms - floor.value)
            .max(0.0);
        let alone = (compute - slower).max(bounds::MIN_COMPUTE_ALONE * compute);
        let active: f64 = self.nodes.iter().map(|node| node.active(step)).sum();
        if slower > t.negligible_contention * compute && active > 0.0 {
            self.simulated.loop_ms = alone;
            self.simulated.contention = slower / alone / active;
        }
    }
}

/// The parts of a call that holds a shared lock and works for `work` milliseconds. The samples do not show which part
/// holds the lock. Assumed: first the call's other waits, then its work.
fn parts_with_lock(lock: SharedLock<'_>, work: f64) -> Vec<(Supply, f64)> {
    let waits = (lock.own_ms - work).max(0.0);
    let work_with_lock = (lock.hold_ms - waits).max(0.0);
    vec![
        (Supply::Free, (waits - lock.hold_ms).max(0.0)),
        (Supply::Cores, (work - work_with_lock).max(0.0)),
        (Supply::SharedLock, lock.hold_ms),
    ]
}
