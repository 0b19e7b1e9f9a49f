//! Reads the fields of a tick's JSON line that a [`TickSeries`] needs.
//!
//! It makes one pass over the bytes instead of two and skips most fields. Histogram buckets, which are most
//! of what remains, are read by a loop for whole numbers only. `headspace report` and `headspace compare` read
//! every tick of a run in this way. One hour of 8 ranks (89 MiB, the records of `cli/benches/hour.rs`) takes 0.38 s.
//! Decoding whole tick records takes 0.65 s.
//!
//! [`TickSeries`]: headspace_agent::analysis::tick_series::TickSeries

use std::borrow::Cow;

use headspace_agent::analysis::tick_series::{SeriesLoop, SeriesStage, SeriesTick};
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::Phase;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json_lines::{Envelope, Fields, Kind};

#[derive(Deserialize)]
struct Tick<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    time_unix_nano: u64,
    #[serde(borrow)]
    run_id: Cow<'a, str>,
    rank: u32,
    pid: u32,
    #[serde(borrow, default)]
    loops: Vec<Loop<'a>>,
    #[serde(borrow, default)]
    stages: Vec<Stage<'a>>,
    at_s: f64,
    #[serde(default)]
    readings: Readings,
}

/// The readings that the series needs. Their names come from the agent's declarations; a test compares
/// them.
#[derive(Default, Deserialize)]
struct Readings {
    #[serde(default, rename = "thread:consumer")]
    consumer: Consumer,
}

#[derive(Default, Deserialize)]
struct Consumer {
    #[serde(rename = "headspace.thread.run_queue.time")]
    waited_for_core_s: Option<f64>,
}

#[derive(Deserialize)]
struct Loop<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    phase: Phase,
    steps: u64,
    #[serde(default)]
    samples: Option<u64>,
    #[serde(borrow)]
    wait: Durations<'a>,
    #[serde(borrow)]
    compute: Durations<'a>,
    #[serde(borrow)]
    step: Durations<'a>,
}

#[derive(Deserialize)]
struct Durations<'a> {
    count: u64,
    sum_ms: f64,
    min_ms: f64,
    max_ms: f64,
    #[serde(borrow)]
    buckets: &'a RawValue,
}

#[derive(Deserialize)]
struct Stage<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    time: Sum,
}

#[derive(Deserialize)]
struct Sum {
    count: u64,
    sum_ms: f64,
}

/// Returns `None` if [`Envelope::parse`] must classify the line.
pub(super) fn series_tick(line: &[u8]) -> Option<(Envelope<'_>, SeriesTick<'_>)> {
    let text = std::str::from_utf8(line).ok()?;
    let tick: Tick<'_> = serde_json::from_str(text).ok()?;
    let fields = Fields {
        schema: tick.schema,
        kind: tick.kind,
        time_unix_nano: tick.time_unix_nano,
        run_id: tick.run_id,
        rank: tick.rank,
        pid: tick.pid,
    };
    let envelope = fields.into_envelope(text).ok()?;
    let loops = tick.loops.into_iter().map(Loop::series);
    let stages = tick.stages.into_iter().map(|stage| SeriesStage {
        name: stage.name,
        calls: stage.time.count,
        ms: stage.time.sum_ms,
    });
    let tick = SeriesTick {
        at_s: tick.at_s,
        waited_for_core_s: tick.readings.consumer.waited_for_core_s,
        loops: loops.collect::<Option<_>>()?,
        stages: stages.collect(),
    };
    (envelope.kind == Kind::Tick).then_some((envelope, tick))
}

impl<'a> Loop<'a> {
    fn series(self) -> Option<SeriesLoop<'a>> {
        Some(SeriesLoop {
            name: self.name,
            phase: self.phase,
            steps: self.steps,
            samples: self.samples,
            wait: self.wait.distribution()?,
            compute: self.compute.distribution()?,
            step: self.step.distribution()?,
        })
    }
}

impl Durations<'_> {
    fn distribution(&self) -> Option<Cow<'static, DistributionRecord>> {
        Some(Cow::Owned(DistributionRecord {
            count: self.count,
            sum_ms: self.sum_ms,
            min_ms: self.min_ms,
            max_ms: self.max_ms,
            buckets: whole_numbers(self.buckets.get())?,
        }))
    }
}

/// Parses a list of whole numbers, which is known to be valid JSON.
fn whole_numbers(list: &str) -> Option<Vec<i64>> {
    let list = list.strip_prefix('[')?.strip_suffix(']')?;
    let mut numbers = Vec::with_capacity(list.len() / 2 + 1);
    let mut rest = list.trim_ascii().as_bytes();
    while let [first, ..] = rest {
        let is_negative = *first == b'-';
        let digits = rest.get(usize::from(is_negative)..)?;
        let mut number: i64 = 0;
        let mut at = 0;
        while let Some(digit @ b'0'..=b'9') = digits.get(at) {
            number = number
                .wrapping_mul(10)
                .wrapping_add(i64::from(digit - b'0'));
            at += 1;
        }
        // Numbers with up to 18 digits always fit into an `i64`.
        if !(1..=18).contains(&at) {
            return None;
        }
        numbers.push(if is_negative { -number } else { number });
        rest = match digits.get(at..)?.trim_ascii_start() {
            [b',', rest @ ..] => rest.trim_ascii_start(),
            [] => &[],
            _ => return None,
        };
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::metric::THREAD_RUN_QUEUE_TIME;
    use headspace_agent::model::{RecordBody, Scope, attributes};
    use proptest::prelude::*;

    use super::super::test_records;
    use super::*;

    #[test]
    fn a_tick_line_reads_the_same_values_as_its_record() {
        let mut tick = test_records::tick(3);
        let consumer = Scope::Thread(attributes::CONSUMER.into()).to_string();
        let waited = (THREAD_RUN_QUEUE_TIME.name.to_owned(), 1.25);
        tick.readings.insert(consumer, [waited].into());
        let line = test_records::line(&test_records::record(9, RecordBody::Tick(tick.clone())));

        let (envelope, read) = series_tick(line.trim_end().as_bytes()).unwrap();

        assert_eq!(envelope.fields.time_unix_nano, 9);
        assert_eq!(read, SeriesTick::from(&tick));
        assert_eq!(read.waited_for_core_s, Some(1.25));
    }

    #[test]
    fn anything_but_a_list_of_whole_numbers_is_none() {
        for list in [
            "[1.5]",
            "[1,null]",
            "[\"1\"]",
            "[1e3]",
            "{}",
            "[99999999999999999999]",
        ] {
            assert_eq!(whole_numbers(list), None, "{list}");
        }
        assert_eq!(whole_numbers("[ ]"), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn whole_numbers_can_be_read_back_unchanged(
            numbers in prop::collection::vec(-(1_i64 << 53)..1 << 53, 0..20),
        ) {
            let text = serde_json::to_string(&numbers).unwrap();
            prop_assert_eq!(whole_numbers(&text), Some(numbers));
        }
    }
}
