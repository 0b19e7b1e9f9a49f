//! Reads a stream of records as a file, a pipe or a socket delivers it: in pieces of any size. Each record that was read
//! must be the same after it was written and read again.
#![no_main]

use std::io::{self, Read};

use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::Record;
use headspace_exporters::encode::json_lines::{decode, encode};
use headspace_exporters::encode::merge_ticks::Compactor;
use headspace_exporters::encode::reader::Records;
use headspace_fuzz::seeds;
use libfuzzer_sys::fuzz_target;

/// A stream that returns at most `.1` bytes at once.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.1);
        self.0.read(&mut buffer[..length])
    }
}

fuzz_target!(init: { seeds::write("records", seeds::runs()); }, |input: &[u8]| {
    let Some((&size, bytes)) = input.split_first() else {
        return;
    };
    let piece = usize::from(size).pow(2) + 1;
    let mut records = Records::new(Pieces(bytes, piece));
    let all: Vec<Record> = records.by_ref().filter_map(Result::ok).collect();
    assert_eq!(records.tally().bytes, bytes.len() as u64);
    assert_eq!(records.tally().records, all.len() as u64);
    for record in &all {
        assert_eq!(written_and_read(record).as_ref(), Some(record));
    }
    read_ticks(bytes);
    merge(all);
});

fn written_and_read(record: &Record) -> Option<Record> {
    let mut line = Vec::new();
    encode(record, &mut line).ok()?;
    decode(&line).ok()
}

/// The reader of ticks that skips most fields.
fn read_ticks(bytes: &[u8]) {
    let (mut records, mut series) = (Records::new(bytes), TickSeries::default());
    while records
        .next_after(&mut |tick| series.add_read(tick))
        .is_some()
    {}
}

/// Merging returns each record, except ticks, stacks and summaries, of which fewer remain.
fn merge(records: Vec<Record>) {
    let (before, mut merged) = (records.len(), Compactor::new(2));
    let mut kept: Vec<Record> = records
        .into_iter()
        .filter_map(|record| merged.add_record(record))
        .collect();
    kept.extend(merged.finish());
    assert!(kept.len() <= before);
    assert!(kept.iter().all(|record| written_and_read(record).is_some()));
}
