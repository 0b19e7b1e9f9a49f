//! The totals of stages and queues in a part of a run.

use super::{Point, QueueRun, QueueTotals, StageRun, StageSeries, StageTotals};

/// A part of a run.
#[derive(Debug, Clone)]
pub struct StageSpan<'a> {
    pub(super) series: &'a StageSeries,
    pub(super) points: Vec<&'a Point>,
    /// Points without cached batches, or all points if there is none.
    pub(super) live: Vec<&'a Point>,
}

impl<'a> StageSpan<'a> {
    /// The part without the time in which one of the `others` took batches, such as an evaluation between
    /// epochs that uses the same stages. The whole part if the loop `name` took less than the share
    /// `min_alone` of its batches in the rest, for example because the loops alternate.
    #[must_use]
    pub fn without(mut self, others: &[&str], name: &str, min_alone: f64) -> Self {
        let place = |name: &str| self.series.loops.iter().position(|known| known == name);
        let Some(own) = place(name) else { return self };
        let others: Vec<usize> = others.iter().filter_map(|name| place(name)).collect();
        let taken = |point: &Point, by: usize| point.batches.get(by).copied().unwrap_or(0);
        let alone = |point: &&Point| others.iter().all(|other| taken(point, *other) == 0);
        let all: u64 = self.points.iter().map(|point| taken(point, own)).sum();
        let rest = self.points.iter().copied().filter(alone);
        let rest: u64 = rest.map(|point| taken(point, own)).sum();
        if rest > 0 && rest as f64 >= min_alone * all as f64 {
            self.points.retain(alone);
            self.live.retain(alone);
        }
        if self.live.is_empty() {
            self.live.clone_from(&self.points);
        }
        self
    }

    /// Seconds of the part without cached batches.
    pub fn seconds(&self) -> f64 {
        self.live.iter().map(|point| point.time.interval_s).sum()
    }

    /// The activity of each stage in the part, in the order of their first calls. Time with cached batches
    /// is left out if the rest lasts a second or more.
    pub fn stages(&self) -> impl Iterator<Item = (&'a StageRun, StageTotals)> {
        let of = |place| self.merged(|point| point.stages.get(place), StageTotals::merge);
        let stages = self.series.stages.iter().enumerate();
        stages.map(move |(place, stage)| (stage, of(place)))
    }

    /// The depth of each queue in the part, in the same way.
    pub fn queues(&self) -> impl Iterator<Item = (&'a QueueRun, QueueTotals)> {
        let of = |place| self.merged(|point| point.queues.get(place), QueueTotals::merge);
        let queues = self.series.queues.iter().enumerate();
        queues.map(move |(place, queue)| (queue, of(place)))
    }

    /// The totals of a stage or queue over the live points.
    fn merged<T: Default + 'a>(
        &self,
        totals: impl Fn(&'a Point) -> Option<&'a T>,
        merge: fn(&mut T, &T),
    ) -> T {
        let mut merged = T::default();
        let each = self.live.iter().copied().filter_map(totals);
        each.for_each(|totals| merge(&mut merged, totals));
        merged
    }

    /// Number of calls of a stage, and of batches that a loop took from its source meanwhile. `None` if it
    /// took none.
    ///
    /// It includes time with cached batches: the loader prefetches batches then, which the loop takes later. Time in which a
    /// stage was changed is left out, if there is other time: calls that return an earlier result are not counted.
    pub fn calls_and_batches(&self, stage: &str, of_loop: &str) -> Option<(u64, u64)> {
        let place = *self.series.stage_places.get(stage)?;
        let of_loop = self.series.loops.iter().position(|name| name == of_loop)?;
        let (mut calls, mut batches) = (0, 0);
        let has_unchanged = self.points.iter().any(|point| !point.changed);
        for point in self
            .points
            .iter()
            .filter(|point| !(point.changed && has_unchanged))
        {
            calls += point.stages.get(place).map_or(0, |totals| totals.calls);
            batches += point.batches.get(of_loop).copied().unwrap_or(0);
        }
        (batches > 0).then_some((calls, batches))
    }
}
