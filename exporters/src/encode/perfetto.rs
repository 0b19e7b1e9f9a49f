//! Converts a run to a trace for Perfetto's viewer (`ui.perfetto.dev`). Each rank is a process, with
//! slices for its loops, counters for its readings, its notices, and its sampled stacks.
//!
//! Records are added one by one and return bytes, so a long run needs no more memory than the counts of
//! its ticks. Ranks come one after the other. The records of a rank come in the order of their
//! creation.

mod clock;
mod loops;
mod resources;
pub mod schema;
mod stacks;
mod tracks;

use std::collections::{BTreeMap, HashSet};

use headspace_agent::model::record::{
    LoopTick, NoticeRecord, RunRecord, StacksRecord, SummaryRecord, TickRecord,
};
use headspace_agent::model::{Record, RecordBody};

use self::clock::Times;
use self::loops::Loop;
use self::resources::Resources;
use self::schema::{ProcessDescriptor, Value};
use self::tracks::{Notes, Track, Writer};

/// Added to process ids that occur on several machines. It exceeds every process id of Linux.
const MADE_UP_PID: i32 = 1 << 22;

/// Maximum number of records kept before a process's first tick, which determines their times.
const MAX_EARLY: usize = 1024;

/// A trace under construction.
#[derive(Debug, Default)]
pub struct PerfettoTrace {
    writer: Writer,
    /// The process whose records are being added.
    process: Option<Process>,
    pids: HashSet<i32>,
}

/// One process of the run.
#[derive(Debug, Default)]
struct Process {
    track: Track,
    rank: u32,
    pid: u32,
    run_id: String,
    times: Option<Times>,
    early: Vec<Record>,
    loops: BTreeMap<String, Loop>,
    resources: Resources,
    summary: Option<Box<SummaryRecord>>,
    stacks: Option<Box<StacksRecord>>,
    /// Time of the latest record, in nanoseconds of the trace's clock.
    until: u64,
}

impl PerfettoTrace {
    /// Adds the next record. Returns the bytes that it adds to the trace.
    pub fn add_record(&mut self, record: &Record) -> Vec<u8> {
        let begins = matches!(record.body, RecordBody::Run(_));
        let goes_on = self
            .process
            .as_ref()
            .is_some_and(|p| (p.rank, p.pid) == (record.rank, record.pid) && !begins);
        if !goes_on {
            self.leave();
            self.enter(record);
        }
        if let Some(process) = &mut self.process {
            process.add_record(record, &mut self.writer);
        }
        self.writer.drain()
    }

    /// Ends the trace. Returns its last bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.leave();
        self.writer.drain()
    }

    fn leave(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.finish(&mut self.writer);
        }
    }

    fn enter(&mut self, record: &Record) {
        let mut pid = i32::try_from(record.pid).unwrap_or(MADE_UP_PID);
        while !self.pids.insert(pid) {
            pid = pid.saturating_add(1).max(MADE_UP_PID);
        }
        let run = match &record.body {
            RecordBody::Run(run) => run,
            _ => &RunRecord::default(),
        };
        let track = self.writer.process(ProcessDescriptor {
            pid,
            cmdline: run.argv.clone(),
            process_name: format!("rank {}", record.rank),
            process_labels: vec![format!("pid {}", record.pid)],
        });
        self.process = Some(Process {
            track,
            rank: record.rank,
            pid: record.pid,
            run_id: record.run_id.clone(),
            ..Process::default()
        });
    }
}

impl Process {
    fn add_record(&mut self, record: &Record, to: &mut Writer) {
        if self.times.is_none() {
            match &record.body {
                RecordBody::Tick(tick) => {
                    self.times = Some(Times::new(record.time_unix_nano, tick.at_s));
                }
                _ if self.early.len() < MAX_EARLY => {
                    self.early.push(record.clone());
                    return;
                }
                _ => self.times = Some(self.without_ticks(record)),
            }
            self.add_early_records(to);
        }
        let Some(mut times) = self.times else { return };
        let at = times.trace_time(record.time_unix_nano);
        self.until = self.until.max(at);
        match &record.body {
            RecordBody::Tick(tick) => {
                let span = times.tick(record.time_unix_nano, tick.at_s, tick.interval_s);
                self.times = Some(times);
                self.until = self.until.max(span.1);
                self.tick(tick, span, to);
            }
            RecordBody::Epoch(epoch) => {
                let entry = self.loop_of(&epoch.loop_name, to);
                entry.epoch(epoch, at, times.at, to);
            }
            RecordBody::Probe(probe) => self.loop_of(&probe.loop_name, to).probe(probe, to),
            RecordBody::Notice(notice) => self.notice(notice, at, to),
            RecordBody::Summary(summary) => self.summary = Some(summary.clone()),
            RecordBody::Stacks(stacks) => self.stacks = Some(stacks.clone()),
            RecordBody::Run(_) => {}
        }
    }

    /// Adds the records from before the first tick, just after the beginning.
    fn add_early_records(&mut self, to: &mut Writer) {
        for record in std::mem::take(&mut self.early) {
            self.add_record(&record, to);
        }
    }

    fn tick(&mut self, tick: &TickRecord, (from, until): (u64, u64), to: &mut Writer) {
        let mut by_loop: BTreeMap<&str, Vec<&LoopTick>> = BTreeMap::new();
        for entry in &tick.loops {
            by_loop.entry(&entry.name).or_default().push(entry);
        }
        for (name, entries) in by_loop {
            self.loop_of(name, to).tick(&entries, from, until, to);
        }
        self.resources.tick(tick, self.track, (from, until), to);
    }

    fn notice(&self, notice: &NoticeRecord, at: u64, to: &mut Writer) {
        let track = to.below(self.track, "notices");
        let notes = vec![
            ("text", Value::Text(notice.text.clone())),
            ("severity", Value::Text(notice.severity.as_str().to_owned())),
        ];
        to.instant(track, at, &notice.code, notes);
    }

    fn loop_of(&mut self, name: &str, to: &mut Writer) -> &mut Loop {
        let began = self.times.map_or(0, |times| times.began);
        self.loops
            .entry(name.to_owned())
            .or_insert_with(|| Loop::new(self.track, name, began, to))
    }

    /// The times of a process without any tick: its first record is its beginning.
    fn without_ticks(&self, record: &Record) -> Times {
        let first = self.early.first().unwrap_or(record);
        Times::new(first.time_unix_nano, 0.0)
    }

    fn finish(&mut self, to: &mut Writer) {
        if self.times.is_none() {
            let Some(first) = self.early.first() else {
                return;
            };
            self.times = Some(self.without_ticks(first));
            self.add_early_records(to);
        }
        let Some(times) = self.times else { return };
        for entry in self.loops.values_mut() {
            entry.finish(times.at, to);
        }
        if let Some(stacks) = &self.stacks {
            let summary = self.summary.as_ref();
            let lines = summary.map_or(&[][..], |summary| &summary.lines);
            stacks::draw(stacks, lines, self.track, times.began, to);
        }
        let until = self.until.max(times.began);
        let track = to.below(self.track, "run");
        let notes = self.summary.as_deref().map(concluded).unwrap_or_default();
        to.slice(track, times.began, until, &self.run_id, notes);
    }
}

/// The results of the run.
fn concluded(summary: &SummaryRecord) -> Notes {
    let numbers = [
        ("steady step ms", summary.steady_step_mean_ms),
        ("wait ms", summary.wait_ms),
        ("compute ms", summary.compute_ms),
        ("floor ms", summary.floor_step_ms),
        ("headspace %", summary.headspace_pct),
        (
            "less waiting saves at most %",
            summary.headspace_upper_bound_pct,
        ),
        ("samples per s", summary.throughput_samples_per_s),
        ("data readiness %", summary.data_readiness_pct),
    ];
    let mut notes: Notes = numbers
        .into_iter()
        .filter_map(|(name, value)| Some((name, Value::Number(value?))))
        .collect();
    notes.push(("steps", Value::Count(summary.steps)));
    let stage = summary.bottleneck_stage.clone();
    notes.extend(stage.map(|stage| ("bottleneck stage", Value::Text(stage))));
    let remedies = summary.remedies.iter();
    notes.extend(remedies.map(|remedy| ("remedy", Value::Text(remedy.what.clone()))));
    notes
}

#[cfg(test)]
mod tests;
