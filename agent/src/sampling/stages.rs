//! Reads the counters of stages and queues in all processes, and returns their increase since the last read.
//!
//! Slots hold totals. Only slots and buckets in use are read, and only two counters of an idle stage. The
//! slot of a crashed process may hold any values: a slot with impossible values is never read again.

mod difference;
mod lost_workers_notice;

use std::collections::HashSet;
use std::time::Duration;

use self::difference::RegionSnapshot;
use self::lost_workers_notice::LostWorkers;
use super::stacks::{StackTarget, Trainer};
use crate::model::{QueueSample, StageSample};
use crate::notice::{Notice, NoticeLog};
use crate::port::catch_panics::contain;
use crate::recording::stage::{Region, Worker, WorkerState, Workers};

/// Activity of stages and queues since the last read.
#[derive(Debug, Default)]
pub struct PipelineDelta {
    /// One entry for each stage and process: all stages that were ever called in a live process, idle ones
    /// included.
    pub stages: Vec<StageSample>,
    /// One entry for each queue and process, in the same way.
    pub queues: Vec<QueueSample>,
}

/// Reads the slots of this process and of its workers.
pub struct StageReader {
    own: Option<(&'static Region, RegionSnapshot)>,
    finder: Option<Box<dyn Workers>>,
    workers: Vec<WorkerSnapshot>,
    lost: LostWorkers,
}

/// A worker and its counters at the last read.
struct WorkerSnapshot {
    pid: u32,
    is_descendant: bool,
    region: &'static Region,
    snapshot: RegionSnapshot,
}

impl WorkerSnapshot {
    fn is(&self, worker: &Worker) -> bool {
        self.pid == worker.pid && std::ptr::eq(self.region, worker.region)
    }
}

impl StageReader {
    /// A reader that ignores what this process has counted before now, in any session. All counts of a worker
    /// count: the workers found belong to this run.
    pub fn new(own: Option<&'static Region>, workers: Option<Box<dyn Workers>>) -> Self {
        let own = own.map(|region| {
            RegionSnapshot::reset_within(region);
            let mut snapshot = RegionSnapshot::default();
            snapshot.append_delta(region, None, &mut PipelineDelta::default());
            (region, snapshot)
        });
        Self {
            own,
            finder: workers,
            workers: Vec::new(),
            lost: LostWorkers::default(),
        }
    }

    /// The activity since the last read. `at` is the time since the run began.
    pub fn read(&mut self, at: Duration, notice_log: &NoticeLog) -> PipelineDelta {
        let mut delta = PipelineDelta::default();
        if let Some((region, snapshot)) = &mut self.own {
            snapshot.append_delta(region, None, &mut delta);
        }
        let found = self.find_workers(notice_log);
        // A worker and its replacement have the same label.
        let mut labels = HashSet::new();
        for worker in &found {
            let place = self.place(worker);
            let mut own = PipelineDelta::default();
            let snapshot = &mut self.workers[place].snapshot;
            snapshot.append_delta(worker.region, Some(&worker.label), &mut own);
            if labels.insert(worker.label.as_str()) {
                delta.stages.append(&mut own.stages);
                delta.queues.append(&mut own.queues);
            } else {
                delta.merge(own);
            }
            if worker.state == WorkerState::Lost {
                self.lost.add(&worker.label, worker.pid, at);
            }
        }
        self.workers.retain(|known| {
            found
                .iter()
                .any(|worker| known.is(worker) && worker.state == WorkerState::Running)
        });
        delta
    }

    /// Posts one notice for all workers that exited unexpectedly. `ends` says whether the run ends.
    pub fn report_lost_workers(&mut self, at: Duration, ends: bool, notice_log: &NoticeLog) {
        if let Some(notice) = self.lost.notice(at, ends) {
            notice_log.post(&notice);
        }
    }

    /// The processes whose stacks can be read: this one, with its ID, and the workers of the last read that descend from
    /// it.
    pub(super) fn targets(&self, own_pid: u32, trainer: Trainer) -> Vec<StackTarget> {
        let own = StackTarget {
            pid: own_pid,
            region: self.own.as_ref().map(|(region, _)| *region),
            trainer: Some(trainer),
        };
        let descendants = self.workers.iter().filter(|worker| worker.is_descendant);
        let workers = descendants.map(|worker| StackTarget {
            pid: worker.pid,
            region: Some(worker.region),
            trainer: None,
        });
        std::iter::once(own).chain(workers).collect()
    }

    fn find_workers(&mut self, notice_log: &NoticeLog) -> Vec<Worker> {
        let Some(workers) = &mut self.finder else {
            return Vec::new();
        };
        match contain(|| workers.find()) {
            Ok(workers) => workers,
            Err(reason) => {
                notice_log.post(&Notice::SourceOff {
                    source: "workers",
                    reason,
                });
                if let Some(workers) = self.finder.take() {
                    // It may panic again when it is dropped.
                    let _ = contain(|| drop(workers));
                }
                Vec::new()
            }
        }
    }

    fn place(&mut self, worker: &Worker) -> usize {
        if let Some(place) = self.workers.iter().position(|known| known.is(worker)) {
            return place;
        }
        self.workers.push(WorkerSnapshot {
            pid: worker.pid,
            is_descendant: worker.is_descendant,
            region: worker.region,
            snapshot: RegionSnapshot::default(),
        });
        self.workers.len() - 1
    }
}

impl PipelineDelta {
    /// Adds the activity of another process with the same label.
    fn merge(&mut self, other: Self) {
        for sample in other.stages {
            let same = |s: &&mut StageSample| s.worker == sample.worker && s.name == sample.name;
            match self.stages.iter_mut().find(same) {
                Some(merged) => merged.merge(&sample),
                None => self.stages.push(sample),
            }
        }
        for sample in other.queues {
            let same = |q: &&mut QueueSample| q.worker == sample.worker && q.name == sample.name;
            match self.queues.iter_mut().find(same) {
                Some(merged) => merged.merge(&sample),
                None => self.queues.push(sample),
            }
        }
    }
}

#[cfg(test)]
mod tests;
