//! Time series of the readings of a run, in bounded memory.
//!
//! A summary covers the steady state, whose start is known only at the end of the run. Until then, the
//! readings are kept in a [`BoundedSeries`]. When neighbouring ticks merge, each reading merges by the kind
//! of its metric.

use std::collections::HashMap;
use std::time::Duration;

use super::bounded_series::BoundedSeries;
use super::metric::{Metric, TimedValue};
use super::point_time::{PointTime, has_enough_live};
use super::reading::{Attributes, Reading, Scope};

/// Maximum number of series; later ones are ignored. No machine has so many, but a faulty source may.
const MAX_SERIES: usize = 2048;

/// Identifies a series of readings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The metric.
    pub metric: &'static Metric,
    /// What it was measured on.
    pub scope: Scope,
    /// Which of the metric's values.
    pub attributes: Attributes,
}

impl From<&Reading> for Key {
    fn from(reading: &Reading) -> Self {
        Self {
            metric: reading.metric,
            scope: reading.scope.clone(),
            attributes: reading.attributes,
        }
    }
}

/// One or several merged ticks, with the readings at their end.
#[derive(Debug, Clone, Default, PartialEq)]
struct Point {
    time: PointTime,
    /// Value of each series; NaN if it was not read. The list is shorter than the list of series if later
    /// series were unknown.
    values: Vec<f64>,
}

/// The readings of a run.
#[derive(Debug, Clone, Default)]
pub struct ReadingSeries {
    keys: Vec<Key>,
    places: HashMap<Key, usize>,
    /// With 200 series that is 400 KiB.
    points: BoundedSeries<Point>,
}

impl ReadingSeries {
    /// Adds the readings of a tick. `altered` says whether batches came from a cache since the previous
    /// tick, or a stage was changed.
    pub fn push(&mut self, at: Duration, interval: Duration, altered: bool, readings: &[Reading]) {
        let mut point = Point {
            time: PointTime::new(at, interval, altered),
            values: vec![f64::NAN; self.keys.len()],
        };
        for reading in readings.iter().filter(|reading| reading.value.is_finite()) {
            let Some(place) = self.place(reading) else {
                continue;
            };
            if point.values.len() <= place {
                point.values.resize(place + 1, f64::NAN);
            }
            point.values[place] = reading.value;
        }
        let keys = &self.keys;
        self.points
            .push(point, 1.0, |earlier, later| earlier.merge(&later, keys));
    }

    fn place(&mut self, reading: &Reading) -> Option<usize> {
        let key = Key::from(reading);
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        let place = self.keys.len();
        if place == MAX_SERIES {
            return None;
        }
        self.keys.push(key.clone());
        self.places.insert(key, place);
        Some(place)
    }

    /// All series, in the order of their first readings.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// The part between two times, in seconds since the run began. Points with cached batches are left out
    /// if the other points last a second or more.
    pub fn between(&self, from_s: f64, to_s: f64) -> Span<'_> {
        let points = self.points.buckets();
        let times = points.iter().map(|point| point.time);
        let is_inside = |time: PointTime| time.is_inside(from_s, to_s);
        let live_only = has_enough_live(times.clone().filter(|time| is_inside(*time)));
        let inside: Vec<bool> = times.clone().map(is_inside).collect();
        let used = times
            .map(|time| is_inside(time) && !(live_only && time.altered))
            .collect();
        Span {
            series: self,
            points,
            inside,
            used,
        }
    }

    /// The same with all points.
    pub fn all_between(&self, from_s: f64, to_s: f64) -> Span<'_> {
        let mut span = self.between(from_s, to_s);
        span.used.clone_from(&span.inside);
        span
    }
}

impl Point {
    fn merge(&mut self, later: &Self, keys: &[Key]) {
        let seconds = (self.time.interval_s, later.time.interval_s);
        if self.values.len() < later.values.len() {
            self.values.resize(later.values.len(), f64::NAN);
        }
        for ((value, later), key) in self.values.iter_mut().zip(&later.values).zip(keys) {
            let timed = |value: f64, seconds| TimedValue { value, seconds };
            if value.is_nan() {
                *value = *later;
            } else if !later.is_nan() {
                let (earlier, later) = (timed(*value, seconds.0), timed(*later, seconds.1));
                *value = key.metric.kind.merge(earlier, later).value;
            }
        }
        self.time.merge(later.time);
    }
}

/// A part of a run.
#[derive(Debug, Clone)]
pub struct Span<'a> {
    series: &'a ReadingSeries,
    points: &'a [Point],
    /// Which of the points lie between the two times.
    inside: Vec<bool>,
    /// Which of these points count.
    used: Vec<bool>,
}

impl Span<'_> {
    fn used(&self) -> impl Iterator<Item = &Point> {
        self.points
            .iter()
            .zip(&self.used)
            .filter_map(|(point, used)| used.then_some(point))
    }

    /// The series of the whole run, in the order of their first readings.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.series.keys()
    }

    /// Seconds in the part.
    pub fn seconds(&self) -> f64 {
        self.used().map(|point| point.time.interval_s).sum()
    }

    /// One series of the part.
    pub fn of(
        &self,
        metric: &'static Metric,
        scope: &Scope,
        attributes: Attributes,
    ) -> SpanSeries<'_> {
        let key = Key {
            metric,
            scope: scope.clone(),
            attributes,
        };
        SpanSeries {
            span: self,
            place: self.series.places.get(&key).copied(),
        }
    }

    /// The sum of the rates of all values of a counter in a scope.
    pub fn rate_of_all(&self, metric: &'static Metric, scope: &Scope) -> Option<f64> {
        self.series
            .keys
            .iter()
            .filter(|key| key.metric == metric && key.scope == *scope)
            .filter_map(|key| self.of(metric, scope, key.attributes).rate())
            .reduce(|a, b| a + b)
    }

    /// Rate of a counter in the scope `whole` minus its rate in the scope `included`, over the same points: those with
    /// readings of both. May be negative, because the two are not read at exactly the same time.
    pub fn rate_of_difference(
        &self,
        metric: &'static Metric,
        attributes: Attributes,
        whole: &Scope,
        included: &Scope,
    ) -> Option<f64> {
        let place = |scope| self.of(metric, scope, attributes).place;
        let ([whole, included], seconds) = self.growth_of([place(whole)?, place(included)?])?;
        Some((whole - included) / seconds)
    }

    /// Growth of counters, and the seconds in which they grew: see [`SpanSeries::growth`]. Only points with readings of
    /// all of them count. `places`: the index of each counter in [`Point::values`].
    fn growth_of<const N: usize>(&self, places: [usize; N]) -> Option<([f64; N], f64)> {
        [&self.used, &self.inside]
            .into_iter()
            .find_map(|counts| self.growth_over(places, counts))
    }

    /// The same between points that all count. `counts` says of each point whether it does.
    fn growth_over<const N: usize>(
        &self,
        places: [usize; N],
        counts: &[bool],
    ) -> Option<([f64; N], f64)> {
        let (mut growth, mut seconds) = ([0.0; N], 0.0);
        let mut previous: Option<(f64, [f64; N])> = None;
        let mut all_count = true;
        for (point, counts) in self.points.iter().zip(counts) {
            all_count &= counts;
            let values = places.map(|place| point.values.get(place).copied().unwrap_or(f64::NAN));
            if values.iter().any(|value| value.is_nan()) {
                continue;
            }
            if let Some((at_s, before)) = previous.filter(|_| all_count) {
                for (growth, (value, before)) in growth.iter_mut().zip(values.iter().zip(before)) {
                    *growth += (value - before).max(0.0);
                }
                seconds += point.time.at_s - at_s;
            }
            previous = Some((point.time.at_s, values));
            all_count = true;
        }
        (seconds > 0.0).then_some((growth, seconds))
    }
}

/// One series in a part of a run.
#[derive(Debug, Clone, Copy)]
pub struct SpanSeries<'a> {
    span: &'a Span<'a>,
    /// Place of its values in each point; `None` if it was never read.
    place: Option<usize>,
}

impl<'a> SpanSeries<'a> {
    /// The values, each with its point.
    fn values(self) -> impl Iterator<Item = (&'a Point, f64)> {
        self.span.used().filter_map(move |point| {
            let value = *point.values.get(self.place?)?;
            (!value.is_nan()).then_some((point, value))
        })
    }

    /// The mean of a level over time; `None` if it was never read.
    pub fn mean(self) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (point, value) in self.values() {
            sum += value * point.time.interval_s;
            weight += point.time.interval_s;
        }
        (weight > 0.0).then_some(sum / weight)
    }

    /// The highest value.
    pub fn max(self) -> Option<f64> {
        self.values().map(|(_, value)| value).reduce(f64::max)
    }

    /// The last value.
    pub fn last(self) -> Option<f64> {
        Some(self.values().last()?.1)
    }

    /// Time and value, in order.
    pub fn points(self) -> impl Iterator<Item = (f64, f64)> {
        self.values().map(|(point, value)| (point.time.at_s, value))
    }

    /// Time, value, and value of another series of the same part, at the points that have both.
    pub fn points_with(self, other: Self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.values().filter_map(move |(point, value)| {
            let other = *point.values.get(other.place?)?;
            (!other.is_nan()).then_some((point.time.at_s, value, other))
        })
    }

    /// Growth of a counter, and the seconds in which it grew: over the pairs of neighbouring readings
    /// between which every point counts. If there is no such pair, all points between the two times count.
    /// An example is a source that is read once a second, with a few seconds between replays.
    pub fn growth(self) -> Option<(f64, f64)> {
        let ([grown], seconds) = self.span.growth_of([self.place?])?;
        Some((grown, seconds))
    }

    /// Growth of a counter per second.
    pub fn rate(self) -> Option<f64> {
        let (grown, seconds) = self.growth()?;
        Some(grown / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounded_series::DEFAULT_CAPACITY;
    use super::*;
    use crate::model::metric::{
        GC_PAUSE_LONGEST, HOST_CPU_UTILIZATION, PROCESS_MEMORY_USAGE, PROCESS_PAGING_FAULTS,
    };

    const SECOND: Duration = Duration::from_secs(1);
    const MINOR: Attributes = &[("system.paging.fault.type", "minor")];

    fn readings(i: u32) -> Vec<Reading> {
        vec![
            Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, f64::from(i % 2)),
            Reading::with(
                &PROCESS_PAGING_FAULTS,
                Scope::Process,
                MINOR,
                f64::from(10 * i),
            ),
            Reading::new(&GC_PAUSE_LONGEST, Scope::Process, f64::from(i)),
        ]
    }

    fn of(ticks: u32) -> ReadingSeries {
        let mut history = ReadingSeries::default();
        for i in 1..=ticks {
            history.push(SECOND * i, SECOND, false, &readings(i));
        }
        history
    }

    #[test]
    fn a_long_run_keeps_its_means_rates_and_maxima_in_bounded_memory() {
        let history = of(10_000);
        let span = history.between(0.0, 10_000.0);

        assert!(history.points.buckets().len() <= DEFAULT_CAPACITY);
        assert!((span.seconds() - 10_000.0).abs() < 1e-6);
        let mean = span
            .of(&HOST_CPU_UTILIZATION, &Scope::Host, &[])
            .mean()
            .unwrap();
        assert!((mean - 0.5).abs() < 1e-9);
        let rate = span
            .of(&PROCESS_PAGING_FAULTS, &Scope::Process, MINOR)
            .rate();
        assert!((rate.unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(
            span.of(&GC_PAUSE_LONGEST, &Scope::Process, &[]).max(),
            Some(10_000.0)
        );
    }

    #[test]
    fn readings_outside_the_part_do_not_count() {
        let history = of(20);
        let span = history.between(10.0, 12.0);

        assert!((span.seconds() - 2.0).abs() < 1e-9);
        assert_eq!(
            span.of(&GC_PAUSE_LONGEST, &Scope::Process, &[]).last(),
            Some(12.0)
        );
    }

    #[test]
    fn ticks_with_replayed_batches_are_left_out_where_there_are_others() {
        let mut history = of(4);
        let busy = [Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 1.0)];
        history.push(SECOND * 5, SECOND, true, &busy);

        let mean = |from| {
            history
                .between(from, 5.0)
                .of(&HOST_CPU_UTILIZATION, &Scope::Host, &[])
                .mean()
        };

        assert_eq!(mean(0.0), Some(0.5));
        assert_eq!(mean(4.0), Some(1.0));
    }

    #[test]
    fn a_counter_that_was_not_read_in_every_tick_has_the_rate_between_its_readings() {
        let mut history = ReadingSeries::default();
        for i in 1..=9_u32 {
            let readings = if i % 3 == 0 { readings(i) } else { vec![] };
            history.push(SECOND * i, SECOND, i == 5, &readings);
        }
        let span = history.between(0.0, 9.0);

        // From 6 to 9 s: the fifth second, which does not count, lies between 3 and 6 s.
        let growth = span
            .of(&PROCESS_PAGING_FAULTS, &Scope::Process, MINOR)
            .growth();
        assert_eq!(growth, Some((30.0, 3.0)));
    }

    #[test]
    fn a_counter_has_a_rate_even_where_it_was_read_once_between_two_replays() {
        let mut history = ReadingSeries::default();
        for i in 1..=4_u32 {
            let readings = if i == 4 { vec![] } else { readings(i) };
            history.push(SECOND * i, SECOND, i < 4, &readings);
        }

        let growth = |span: &Span<'_>| {
            span.of(&PROCESS_PAGING_FAULTS, &Scope::Process, MINOR)
                .growth()
        };
        assert_eq!(growth(&history.between(0.0, 4.0)), Some((20.0, 2.0)));
        assert_eq!(growth(&history.between(3.0, 4.0)), None);
    }

    #[test]
    fn all_points_between_two_times_count_where_that_is_asked_for() {
        let mut history = of(4);
        let busy = [Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 1.0)];
        history.push(SECOND * 5, SECOND, true, &busy);

        let mean = |span: &Span<'_>| span.of(&HOST_CPU_UTILIZATION, &Scope::Host, &[]).mean();
        assert_eq!(mean(&history.between(0.0, 5.0)), Some(0.5));
        assert_eq!(mean(&history.all_between(0.0, 5.0)), Some(0.6));
    }

    #[test]
    fn what_was_never_read_is_unknown() {
        let history = of(3);
        let span = history.between(0.0, 3.0);

        assert_eq!(
            span.of(&PROCESS_MEMORY_USAGE, &Scope::Process, &[]).mean(),
            None
        );
        assert_eq!(span.rate_of_all(&PROCESS_PAGING_FAULTS, &Scope::Tree), None);
    }
}
