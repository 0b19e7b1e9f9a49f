//! Makes the records of a tick: reads every loop, stage and source, and passes the records to the queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::live_run::LiveRun;
use super::loops::LoopEntry;
use super::sources::Sources;
use super::stacks::StackSampling;
use super::stages::{PipelineDelta, StageReader};
use super::thinning::{ALL_TOTALS_EVERY, Thinning, Turns};
use crate::delivery::RecordQueue;
use crate::model::metric::{
    AGENT_CPU_TIME, AGENT_DROPPED_EXPORTS, AGENT_DROPPED_LINES, AGENT_DROPPED_LOG_RECORDS,
    AGENT_DROPPED_RECORDS, AGENT_DROPPED_SPANS, AGENT_DROPPED_STEPS, AGENT_STEP_COST,
    AGENT_TICK_LATENESS,
};
use crate::model::record::{
    EpochRecord, LoopTick, Phase, ProbeRecord, RecordBody, RunRecord, RunState, SCHEMA, TickRecord,
};
use crate::model::stage_series::StageTicks;
use crate::model::{Reading, Record, Scope, log_target};
use crate::notice::Notice;
use crate::port::Clock;
use crate::port::clock::thread_cpu_time;
use crate::wording::time_lost::time_lost_text;

/// Number of ticks between two records of stacks.
const STACKS_EVERY: u64 = 60;

/// CPU time of the agent, in percent of a core, above which it posts a notice.
const BUDGET_PCT: f64 = 1.0;

/// Seconds before the budget is checked: in a short run, start-up would dominate.
const BUDGET_AFTER_S: f64 = 30.0;

/// From this many seconds on, a message says that the run loses time. The verdict hardly changes after that, and the
/// user knows within a minute.
const TIME_LOST_AFTER_S: f64 = 40.0;

/// The process that writes the records. Constant over a run.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the run folder.
    pub run_id: String,
    /// Rank of this process.
    pub rank: u32,
    /// ID of this process.
    pub pid: u32,
}

/// What the sampler reads besides the loops.
pub struct Inputs {
    /// The sources of readings.
    pub sources: Sources,
    /// The stages and queues of all processes.
    pub stages: StageReader,
}

/// Makes the records. The sampler's thread owns it.
pub struct Sampler {
    live_run: Arc<LiveRun>,
    queue: Arc<RecordQueue>,
    clock: Arc<dyn Clock>,
    identity: Identity,
    run: RunRecord,
    /// Number of loops whose what-if has finished, at the last tick.
    finished_what_ifs: usize,
    /// Name of the main loop, according to the last summary.
    main_loop: Option<String>,
    /// The main loop, and whether the GPUs were known, when `run` was written last.
    written_with: Option<(Option<String>, bool)>,
    sources: Sources,
    stages: StageReader,
    stacks: Option<StackSampling>,
    /// Time of the last read of `stages`.
    stages_at: Duration,
    readings: Vec<Reading>,
    thinning: Thinning,
    turns: Turns,
    tick: u64,
    last_at: Duration,
}

impl Sampler {
    /// A sampler that has not ticked. `run` becomes the first record.
    pub fn new(
        live_run: Arc<LiveRun>,
        queue: Arc<RecordQueue>,
        clock: Arc<dyn Clock>,
        identity: Identity,
        run: RunRecord,
        inputs: Inputs,
    ) -> Self {
        let last_at = clock.now();
        let Inputs { sources, stages } = inputs;
        Self {
            live_run,
            queue,
            clock,
            identity,
            run,
            finished_what_ifs: 0,
            main_loop: None,
            written_with: None,
            sources,
            stages,
            stacks: None,
            stages_at: last_at,
            readings: Vec::new(),
            thinning: Thinning::default(),
            turns: Turns::default(),
            tick: 0,
            last_at,
        }
    }

    /// Also samples stacks.
    #[must_use]
    pub fn with_stacks(mut self, stacks: StackSampling) -> Self {
        self.stacks = Some(stacks);
        self
    }

    /// Reads everything and passes the records to the queue. `late` is the delay of the tick. With `last`,
    /// the run ends here.
    pub fn tick(&mut self, late: Duration, last: bool) {
        let at = self.clock.now();
        let elapsed = at.saturating_sub(self.last_at);
        self.last_at = at;
        let _tick = tracing::debug_span!(
            target: log_target::TICK,
            "tick",
            number = self.tick,
            ?late,
            last
        )
        .entered();
        self.sources.request(at, last);
        let loops = self.live_run.loops();

        let (ticks, epochs) = fold_loops(&loops, last);
        let mut bodies: Vec<RecordBody> = epochs.into_iter().map(RecordBody::Epoch).collect();
        // Right after the loops, so that calls and batches cover the same time.
        let altered = ticks.iter().any(|entry| entry.phase.alters_loading());
        let delta = self.read_stages(&ticks, altered);
        self.take_stacks(altered);
        self.stages
            .report_lost_workers(at, last, &self.live_run.notice_log);
        self.sources
            .collect(at, last, &self.live_run.notice_log, &mut self.readings);
        self.read_own_costs(late, at, last);
        self.live_run.keep(at, elapsed, altered, &self.readings);
        let dropped = self.live_run.dropped(self.queue.dropped());
        if dropped.steps > 0 {
            self.live_run.notice_log.post(&Notice::StepsDropped);
        }
        let (stages, queues) = self.turns.choose(&delta, self.tick, last);
        bodies.push(RecordBody::Tick(TickRecord {
            tick: self.tick,
            at_s: at.as_secs_f64(),
            interval_s: elapsed.as_secs_f64(),
            merged: 1,
            loops: ticks,
            stages,
            queues,
            readings: self.take_readings(last),
            dropped,
        }));
        let probes = loops
            .iter()
            .filter_map(|e| e.take_probe(last, || self.live_run.cores_in_use(e, at)))
            .inspect(log_probe);
        bodies.extend(probes.map(RecordBody::Probe));
        let notices = self.live_run.notice_log.take_records();
        bodies.extend(notices.into_iter().map(RecordBody::Notice));
        bodies.extend(self.stacks_if_due(last));
        let what_if_ends = self.what_if_ends(&loops);
        let is_due = last || self.summary_is_due(&loops, what_if_ends);
        let summary = is_due.then(|| self.summary(at, last));
        let run = self.run_if_changed();
        self.tick += 1;
        // The run is the first record, and the summary the last one.
        let bodies = run.into_iter().chain(bodies).chain(summary);
        let records: Vec<_> = bodies.map(|body| self.record(body)).collect();
        let took = self.clock.now().saturating_sub(at);
        tracing::debug!(target: log_target::TICK, records = records.len(), ?took, "done");
        self.queue.push(records);
    }

    fn stacks_if_due(&self, last: bool) -> Option<RecordBody> {
        let is_due = last || self.tick.is_multiple_of(STACKS_EVERY);
        let stacks = is_due.then(|| self.live_run.stacks_record())??;
        Some(RecordBody::Stacks(Box::new(stacks)))
    }

    /// The summary of the run so far, or of the whole run. It selects the main loop.
    fn summary(&mut self, at: Duration, last: bool) -> RecordBody {
        let summary = if last {
            self.live_run.report(at, RunState::Finished).0
        } else {
            self.live_run.refresh(at)
        };
        let is_time = !last && at.as_secs_f64() >= TIME_LOST_AFTER_S;
        if is_time && let Some(text) = time_lost_text(&summary) {
            self.live_run.notice_log.post(&Notice::TimeLost { text });
        }
        tracing::debug!(
            target: log_target::SUMMARY,
            steps = summary.steps,
            step_ms = summary.steady_step_mean_ms,
            floor_ms = summary.floor_step_ms,
            bottleneck = summary.bottleneck.as_ref().map(|found| found.kind.as_str()),
            findings = summary.findings.len(),
            "refreshed"
        );
        self.main_loop.clone_from(&summary.loop_name);
        RecordBody::Summary(Box::new(summary))
    }

    /// The record of the run, with the loader and the mode of the main loop. It is the first record. It is
    /// repeated when the GPUs become known, and when a summary selects another main loop: a reader that keeps
    /// the last one agrees with the last summary.
    fn run_if_changed(&mut self) -> Option<RecordBody> {
        let gpus = self.live_run.gpus();
        let known = Some((self.main_loop.clone(), gpus.is_some()));
        if self.written_with == known {
            return None;
        }
        let mut run = self.run.clone();
        run.gpus = gpus.unwrap_or_default().to_vec();
        let is_main = |entry: &&Arc<LoopEntry>| Some(&entry.loader.name) == self.main_loop.as_ref();
        // The summary may have selected a loop that began during this tick.
        if let Some(main) = self.live_run.loops().iter().find(is_main) {
            run.loader = Some(main.loader.clone());
            run.mode = main.mode;
        }
        self.written_with = known;
        Some(RecordBody::Run(run))
    }

    /// Reads the activity of stages and queues since the last read.
    fn read_stages(&mut self, loops: &[LoopTick], altered: bool) -> PipelineDelta {
        let delta = self.stages.read(self.last_at, &self.live_run.notice_log);
        let at = self.clock.now();
        let from_source = loops.iter().filter(|entry| entry.phase != Phase::Replay);
        let batches: Vec<(String, u64)> = from_source
            .map(|entry| (entry.name.clone(), entry.steps))
            .collect();
        self.live_run.keep_stages(StageTicks {
            at,
            interval: at.saturating_sub(self.stages_at),
            altered,
            changed: loops.iter().any(|entry| entry.phase == Phase::Changed),
            batches: &batches,
            stages: &delta.stages,
            queues: &delta.queues,
        });
        self.stages_at = at;
        delta
    }

    /// Keeps the stacks that were sampled since the last tick, unless the loader did other work than in live training meanwhile.
    fn take_stacks(&self, altered: bool) {
        let Some(stacks) = &self.stacks else { return };
        let trainer = stacks.trainer(self.live_run.loops());
        let readings = stacks.exchange(self.stages.targets(self.identity.pid, trainer));
        if !altered {
            self.live_run.keep_stacks(readings);
        }
    }

    /// Discards the activity of stages and queues while the agent was paused.
    pub fn forget(&mut self) {
        self.stages
            .read(self.clock.now(), &self.live_run.notice_log);
        self.stages_at = self.clock.now();
    }

    /// Whether a what-if has finished since the last tick.
    fn what_if_ends(&mut self, loops: &[Arc<LoopEntry>]) -> bool {
        let is_finished = |entry: &&Arc<LoopEntry>| entry.what_if_status().finished;
        let finished = loops.iter().filter(is_finished).count();
        std::mem::replace(&mut self.finished_what_ifs, finished) < finished
    }

    /// Whether this tick has a summary: every tick at first, then fewer, the tick of the first loop, and the tick in which
    /// a what-if has finished. A killed run loses at most a tenth of its time.
    fn summary_is_due(&self, loops: &[Arc<LoopEntry>], what_if_ends: bool) -> bool {
        let selects_first_loop = self.main_loop.is_none() && !loops.is_empty();
        selects_first_loop
            || what_if_ends
            || self.tick < 10
            || self.tick.is_multiple_of((self.tick / 10).clamp(1, 60))
    }

    fn record(&self, body: RecordBody) -> Record {
        Record {
            schema: SCHEMA.to_owned(),
            time_unix_nano: self.clock.unix_nanos(),
            run_id: self.identity.run_id.clone(),
            rank: self.identity.rank,
            pid: self.identity.pid,
            body,
        }
    }

    fn read_own_costs(&mut self, late: Duration, at: Duration, last: bool) {
        let dropped = self.live_run.dropped(self.queue.dropped());
        let sampling = self.stacks.as_ref().map(StackSampling::cpu_time);
        let stacks = sampling.unwrap_or_default();
        let others = self.queue.cpu_time() + self.sources.cpu_time();
        let cpu = thread_cpu_time().map(|cpu| cpu + others + stacks);
        self.live_run.set_costs(cpu, sampling, dropped.records);
        let mut own = |metric, value| {
            self.readings
                .push(Reading::new(metric, Scope::Agent, value));
        };
        if let Some(cpu) = cpu {
            own(&AGENT_CPU_TIME, cpu.as_secs_f64());
            // The pace of the stacks keeps to a budget of its own.
            let percent = 100.0 * cpu.saturating_sub(stacks).as_secs_f64() / at.as_secs_f64();
            if at.as_secs_f64() > BUDGET_AFTER_S && percent > BUDGET_PCT {
                self.live_run
                    .notice_log
                    .post(&Notice::OverBudget { percent });
            }
        }
        // Repeated for readers that begin in the middle of a file.
        if last || self.tick.is_multiple_of(ALL_TOTALS_EVERY) {
            own(&AGENT_STEP_COST, self.live_run.step_cost_ns / 1e9);
        }
        own(&AGENT_TICK_LATENESS, late.as_secs_f64());
        own(&AGENT_DROPPED_STEPS, dropped.steps as f64);
        own(&AGENT_DROPPED_RECORDS, dropped.records as f64);
        let by_destinations = self.queue.lost();
        for (metric, count) in [
            (&AGENT_DROPPED_EXPORTS, by_destinations.exports),
            (&AGENT_DROPPED_LINES, by_destinations.lines),
            (&AGENT_DROPPED_SPANS, by_destinations.spans),
            (&AGENT_DROPPED_LOG_RECORDS, by_destinations.log_records),
        ] {
            if count > 0 {
                own(metric, count as f64);
            }
        }
    }

    fn take_readings(&mut self, last: bool) -> BTreeMap<String, BTreeMap<String, f64>> {
        let mut scopes = BTreeMap::<String, BTreeMap<String, f64>>::new();
        let finite = (self.readings.drain(..)).filter(|reading| reading.value.is_finite());
        for reading in self.thinning.choose(finite, self.tick, last) {
            scopes
                .entry(reading.scope.to_string())
                .or_default()
                .insert(reading.key(), reading.value);
        }
        scopes
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(stacks) = &self.stacks {
            stacks.close();
        }
    }
}

/// The steps of the loops since the last tick, and the epochs that ended. With `last`, all epochs end.
fn fold_loops(loops: &[Arc<LoopEntry>], last: bool) -> (Vec<LoopTick>, Vec<EpochRecord>) {
    let (mut ticks, mut epochs) = (Vec::new(), Vec::new());
    for entry in loops {
        entry.recorder.fold(|fold| {
            if last {
                fold.end();
            }
            ticks.append(&mut fold.take_tick());
            epochs.append(&mut fold.take_epochs());
        });
    }
    (ticks, epochs)
}

/// Logs a finished probe and each of its windows.
fn log_probe(probe: &ProbeRecord) {
    for window in &probe.windows {
        tracing::debug!(
            target: log_target::PROBE,
            cycle = window.cycle,
            phase = window.phase.name(),
            steps = window.steps,
            discarded = window.discarded,
            wait_ms = window.wait_ms,
            compute_ms = window.compute_ms,
            "window"
        );
    }
    tracing::info!(
        target: log_target::PROBE,
        of = probe.loop_name,
        windows = probe.windows.len(),
        headspace_pct = probe.floor.map(|floor| floor.headspace_pct.value),
        reason = probe.reason,
        "over"
    );
}

#[cfg(test)]
mod tests;
