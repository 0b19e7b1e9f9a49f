//! What the stages and queues of all processes did since the last look.
//!
//! Slots hold totals; a tick is told the differences. Only slots in use and buckets in use are read,
//! and of a stage at rest only two counters. A slot of a process that crashed may hold anything: what
//! cannot be true is not told, and such a slot is never read again.

mod difference;
mod lost;

use std::collections::HashSet;
use std::time::Duration;

use self::difference::RegionSnapshot;
use self::lost::LostWorkers;
use crate::model::{QueueSample, StageSample};
use crate::notice::Notice;
use crate::notice::log::NoticeLog;
use crate::port::contain::contain;
use crate::record::stage::{Region, Worker, WorkerState, Workers};

/// What was done since the last look.
#[derive(Debug, Default)]
pub struct PipelineDelta {
    /// One entry a stage and process: every stage that was ever called in a process that lives,
    /// also one without calls now.
    pub stages: Vec<StageSample>,
    /// One entry a queue and process, likewise.
    pub queues: Vec<QueueSample>,
}

/// Reads the slots of this process and of its workers.
pub struct StageReader {
    own: Option<(&'static Region, RegionSnapshot)>,
    finder: Option<Box<dyn Workers>>,
    workers: Vec<WorkerSnapshot>,
    lost: LostWorkers,
}

/// A worker and what was read of it last.
struct WorkerSnapshot {
    pid: u32,
    region: &'static Region,
    snapshot: RegionSnapshot,
}

impl WorkerSnapshot {
    fn is(&self, worker: &Worker) -> bool {
        self.pid == worker.pid && std::ptr::eq(self.region, worker.region)
    }
}

impl std::fmt::Debug for StageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageReader")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

impl StageReader {
    /// What was counted in this process before now, by whichever session, is not told. What a worker
    /// counted is: those that are found are of this run.
    #[must_use]
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

    /// What was done since the last look, at that time of the run.
    pub fn read(&mut self, at: Duration, notice_log: &NoticeLog) -> PipelineDelta {
        let mut delta = PipelineDelta::default();
        if let Some((region, snapshot)) = &mut self.own {
            snapshot.append_delta(region, None, &mut delta);
        }
        let found = self.find_workers(notice_log);
        // Several processes have one label where a worker was replaced by another.
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

    /// Reports workers that exited unexpectedly, as one notice for many; `ends` is the end of the run.
    pub fn report_lost_workers(&mut self, at: Duration, ends: bool, notice_log: &NoticeLog) {
        if let Some(notice) = self.lost.notice(at, ends) {
            notice_log.post(&notice);
        }
    }

    fn find_workers(&mut self, notice_log: &NoticeLog) -> Vec<Worker> {
        let Some(workers) = &mut self.finder else {
            return Vec::new();
        };
        match contain(|| workers.look()) {
            Ok(workers) => workers,
            Err(reason) => {
                notice_log.post(&Notice::SourceOff {
                    source: "workers",
                    reason,
                });
                if let Some(workers) = self.finder.take() {
                    // What panicked may panic again when it is dropped.
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
            region: worker.region,
            snapshot: RegionSnapshot::default(),
        });
        self.workers.len() - 1
    }
}

impl PipelineDelta {
    /// Adds what another process of the same label did.
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
