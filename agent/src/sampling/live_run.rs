//! Holds the state of a run in progress: its loops, its series, its costs, its last conclusions.
//!
//! The sampler shares it with the threads that register loops and request reports.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::MemoryWatch;
use super::loops::{LoopEntry, PipelineHints};
use crate::analysis::attribution::{Attribution, batches_held};
use crate::analysis::loop_facts::LoopFacts;
use crate::analysis::resources::{CoresInUse, RankCounts, RankNode, cores_in_use};
use crate::analysis::stacks::{StackTimes, stacks_record};
use crate::analysis::summary::{Conclusions, RunFacts, Summary, summarise};
use crate::analysis::what_if::proposed_calls;
use crate::lock::lock;
use crate::model::record::{
    BatchRecord, Dropped, EndRecord, GpuRecord, MemoryScope, ProbeRecord, RunState, StacksRecord,
    SummaryRecord,
};
use crate::model::stack::StackReading;
use crate::model::stage_series::StageTicks;
use crate::model::{Mode, Reading, ReadingSeries, StageSeries};
use crate::notice::log::NoticeLog;
use crate::sampling::RankGpu;
use crate::wording::probe::probe_record;
use crate::wording::summary::summary_record;

/// The state of a run in progress.
#[derive(Debug)]
pub struct LiveRun {
    /// Messages to the user.
    pub notice_log: NoticeLog,
    /// Counts of Python objects.
    pub memory: MemoryWatch,
    loops: Mutex<Vec<Arc<LoopEntry>>>,
    history: Mutex<ReadingSeries>,
    stages: Mutex<StageSeries>,
    stacks: Mutex<StackTimes>,
    pub(super) gpus: Arc<OnceLock<Vec<GpuRecord>>>,
    rank_gpu: RankGpu,
    ranks: RankCounts,
    shared_mib_ms: OnceLock<f64>,
    costs: Mutex<Costs>,
    cached_conclusions: Mutex<Option<CachedConclusions>>,
    ended_by: Mutex<Option<EndRecord>>,
    /// Seconds between the start of the process and the clock's origin.
    process_age_s: Option<f64>,
    /// Nanoseconds that recording one batch costs the training thread.
    pub(super) step_cost_ns: f64,
}

/// Conclusions are reused for this many seconds, and at least for this share of the steady state.
/// To compute them takes about 25 ms, so it uses at most a thousandth of the time.
const CONCLUSIONS_REUSE: (f64, f64) = (25.0, 0.5);

/// In a young run, they are reused for as long as its steady state has lasted, but at least for this many seconds. So a run
/// that is killed early has conclusions on much of it.
const YOUNG_CONCLUSIONS_REUSE_S: f64 = 8.0;

/// The last conclusions, and when they expire.
#[derive(Debug)]
struct CachedConclusions {
    conclusions: Conclusions,
    until_s: f64,
}

/// The cost of the agent up to the last tick.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    agent_cpu_s: f64,
    stack_sampling_cpu_s: Option<f64>,
    dropped_records: u64,
}

impl LiveRun {
    /// An empty run.
    pub fn new(
        notice_log: NoticeLog,
        gpus: Arc<OnceLock<Vec<GpuRecord>>>,
        rank_gpu: RankGpu,
        ranks: RankCounts,
        process_age_s: Option<f64>,
        step_cost_ns: f64,
    ) -> Self {
        Self {
            notice_log,
            memory: MemoryWatch::default(),
            loops: Mutex::default(),
            history: Mutex::default(),
            stages: Mutex::default(),
            stacks: Mutex::default(),
            gpus,
            rank_gpu,
            ranks,
            shared_mib_ms: OnceLock::new(),
            costs: Mutex::default(),
            cached_conclusions: Mutex::default(),
            ended_by: Mutex::default(),
            process_age_s,
            step_cost_ns,
        }
    }

    /// The GPUs that the process may use; `None` while they are not known.
    pub(super) fn gpus(&self) -> Option<&[GpuRecord]> {
        self.gpus.get().map(Vec::as_slice)
    }

    /// Adds a loop, which is read from now on. Returns whether it is the first.
    pub fn add(&self, entry: Arc<LoopEntry>) -> bool {
        let mut loops = lock(&self.loops);
        loops.push(entry);
        loops.len() == 1
    }

    /// Stores the contents of a batch for each loop of that name. Returns whether it is the first batch of
    /// one.
    pub fn set_batch(&self, name: &str, batch: BatchRecord) -> bool {
        let loops = self.loops();
        let named = loops.iter().filter(|entry| entry.loader.name == name);
        // `count` visits every loop; `any` would stop at the first.
        named.filter(|entry| entry.set_batch(batch)).count() > 0
    }

    /// Stores the CPU time, in milliseconds, that it takes to pass a mebibyte of shared memory on this
    /// machine. Only the first measurement counts.
    pub fn set_shared_mib_ms(&self, ms: f64) {
        self.shared_mib_ms.get_or_init(|| ms);
    }

    pub(crate) fn loops(&self) -> Vec<Arc<LoopEntry>> {
        lock(&self.loops).clone()
    }

    /// Reads all rings, which frees their memory for new events.
    pub fn drain(&self) {
        for entry in self.loops() {
            entry.recorder.fold(|_| ());
        }
    }

    pub(super) fn dropped(&self, records: u64) -> Dropped {
        let steps = self
            .loops()
            .iter()
            .map(|entry| entry.recorder.dropped())
            .sum();
        Dropped { steps, records }
    }

    /// Keeps the readings of a tick for the summary.
    pub(super) fn keep(
        &self,
        at: Duration,
        elapsed: Duration,
        altered: bool,
        readings: &[Reading],
    ) {
        lock(&self.history).push(at, elapsed, altered, readings);
    }

    /// Keeps the activity of stages and queues in a tick for the summary.
    pub(super) fn keep_stages(&self, tick: StageTicks<'_>) {
        lock(&self.stages).push(tick);
    }

    /// Keeps readings of stacks for the summary.
    pub(super) fn keep_stacks(&self, readings: Vec<StackReading>) {
        let mut stacks = lock(&self.stacks);
        for reading in readings {
            stacks.add(reading);
        }
    }

    /// The record of the stacks so far. `None` without any.
    pub(super) fn stacks_record(&self) -> Option<StacksRecord> {
        stacks_record(&lock(&self.stacks))
    }

    /// Stores the cost of the agent so far.
    pub(super) fn set_costs(
        &self,
        agent_cpu: Option<Duration>,
        stack_sampling: Option<Duration>,
        dropped_records: u64,
    ) {
        let mut costs = lock(&self.costs);
        costs.dropped_records = dropped_records;
        costs.stack_sampling_cpu_s = stack_sampling.map(|cpu| cpu.as_secs_f64());
        if let Some(cpu) = agent_cpu {
            costs.agent_cpu_s = cpu.as_secs_f64();
        }
    }

    /// Stores the exception or signal that ends the program.
    pub(crate) fn set_ended_by(&self, end: EndRecord) {
        *lock(&self.ended_by) = Some(end);
    }

    /// Mean cores in use since a loop began. Includes the time in which batches were repeated.
    pub(super) fn cores_in_use(&self, entry: &LoopEntry, at: Duration) -> Option<CoresInUse> {
        let began_s = entry.recorder.fold(|fold| fold.first_begin_s())?;
        cores_in_use(&lock(&self.history).all_between(began_s, at.as_secs_f64()))
    }

    /// The summary of the run so far. Conclusions are computed only if the cached ones have expired.
    pub(super) fn refresh(&self, at: Duration) -> SummaryRecord {
        let concluded = lock(&self.cached_conclusions)
            .as_ref()
            .filter(|concluded| at.as_secs_f64() < concluded.until_s)
            .map(|concluded| concluded.conclusions.clone());
        summary_record(self.summarise(at, RunState::Running, concluded.as_ref()).0)
    }

    /// The summary of the run so far, with new conclusions, and the records of its probes.
    pub fn report(&self, at: Duration, state: RunState) -> (SummaryRecord, Vec<ProbeRecord>) {
        let (summary, facts) = self.summarise(at, state, None);
        let probes = facts.iter().filter_map(|facts| {
            let probe = facts.probe.as_ref().filter(|_| facts.mode == Mode::Probe)?;
            let replayed_steps = facts.totals.replayed_steps;
            Some(probe_record(&facts.loader, probe, replayed_steps))
        });
        (summary_record(summary), probes.collect())
    }

    fn facts_of(&self, entry: &LoopEntry, at: Duration, state: RunState) -> LoopFacts {
        let totals = entry.recorder.fold(|fold| fold.totals());
        let begin_and_age = totals.first_begin_s.zip(self.process_age_s);
        LoopFacts {
            totals,
            mode: entry.mode,
            init_s: begin_and_age.map(|(begin, age)| begin + age),
            loader: entry.described(),
            shared_mib_ms: self.shared_mib_ms.get().copied(),
            what_if: entry.what_if_answers(),
            what_if_status: entry.what_if_status(),
            probe: entry.probe_result(state == RunState::Finished, || self.cores_in_use(entry, at)),
        }
    }

    fn summarise(
        &self,
        at: Duration,
        state: RunState,
        concluded: Option<&Conclusions>,
    ) -> (Summary, Vec<LoopFacts>) {
        let loops = self.loops();
        let facts: Vec<LoopFacts> = loops
            .iter()
            .map(|entry| self.facts_of(entry, at, state))
            .collect();
        let costs = *lock(&self.costs);
        let batches: u64 = facts.iter().map(|facts| facts.totals.steps).sum();
        let recording_s = batches as f64 * self.step_cost_ns / 1e9;
        let dropped = self.dropped(costs.dropped_records);
        // Only the sampler writes the series, once a tick: a summary delays no other thread.
        let (history, stages) = (lock(&self.history), lock(&self.stages));
        let stacks = lock(&self.stacks);
        let examinations = self.memory.examinations();
        let (_, censuses_s, examining_s) = self.memory.costs();
        let counting_s = censuses_s + examining_s;
        let run = RunFacts {
            state,
            ended_by: lock(&self.ended_by).clone(),
            elapsed_s: at.as_secs_f64(),
            history: Some(&history),
            stages: Some(&stages),
            stacks: Some(&stacks),
            examinations: Some(&examinations),
            concluded,
            node: RankNode {
                gpus: self.gpus().unwrap_or_default(),
                compute_gpu: self.rank_gpu.get(),
                ranks: self.ranks,
            },
            agent_cpu_s: Some(costs.agent_cpu_s + recording_s + counting_s),
            // The thread that samples also runs if it cannot read any stack.
            stack_sampling_cpu_s: (costs.stack_sampling_cpu_s)
                .filter(|_| stacks.stacks().next().is_some()),
            dropped,
        };
        let summary = summarise(&run, &facts);
        drop((history, stages, stacks));
        let resources = &summary.record.resources;
        self.memory
            .set_grows(resources.memory_growth_of == Some(MemoryScope::Process));
        let is_main =
            |entry: &&Arc<LoopEntry>| Some(&entry.loader.name) == summary.record.loop_name.as_ref();
        if let Some(main) = loops
            .iter()
            .find(is_main)
            .filter(|main| main.mode == Mode::WhatIf)
        {
            let remedies = &summary.conclusions.attribution.remedies;
            main.set_hints(PipelineHints {
                proposed_calls: proposed_calls(remedies),
                batches_held: batches_held(&summary.record, &main.loader),
            });
        }
        if concluded.is_none() {
            self.cache_conclusions(&summary, at.as_secs_f64());
        }
        (summary, facts)
    }

    /// Keeps the conclusions for the next summaries.
    fn cache_conclusions(&self, summary: &Summary, elapsed_s: f64) {
        let (least_s, share) = CONCLUSIONS_REUSE;
        let nothing = summary.conclusions.attribution == Attribution::default();
        let steady_s = summary.record.steady_s;
        let least_s = if nothing {
            0.0
        } else {
            least_s.min(steady_s.max(YOUNG_CONCLUSIONS_REUSE_S))
        };
        *lock(&self.cached_conclusions) = Some(CachedConclusions {
            conclusions: summary.conclusions.clone(),
            until_s: elapsed_s + least_s.max(share * steady_s),
        });
    }
}
