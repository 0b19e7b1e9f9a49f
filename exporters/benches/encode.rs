//! Measures the cost of writing a tick to disk, and the cost of merging old ticks.

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use headspace_agent::port::Exporter;
use headspace_exporters::encode::json_lines::{decode, encode};
use headspace_exporters::encode::merge_ticks::Compactor;
use headspace_exporters::transport::file::{FileExporter, FileLimits};

mod synthetic;

fn main() {
    divan::main();
}

#[divan::bench]
fn encode_a_tick(bencher: Bencher<'_, '_>) {
    let tick = synthetic::tick(7);
    let mut line = Vec::new();
    encode(&tick, &mut line).unwrap();
    bencher
        .counter(BytesCount::new(line.len()))
        .bench_local(|| {
            line.clear();
            encode(divan::black_box(&tick), &mut line).unwrap();
        });
}

#[divan::bench]
fn decode_a_tick(bencher: Bencher<'_, '_>) {
    let mut line = Vec::new();
    encode(&synthetic::tick(7), &mut line).unwrap();
    bencher
        .counter(BytesCount::new(line.len()))
        .bench_local(|| decode(divan::black_box(&line)));
}

#[divan::bench]
fn merge_ten_ticks(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(10u32))
        .with_inputs(|| (0..10).map(synthetic::tick).collect::<Vec<_>>())
        .bench_local_values(|ticks| {
            let mut compactor = Compactor::new(10);
            ticks
                .into_iter()
                .filter_map(|t| compactor.add_record(t))
                .last()
        });
}

/// Includes the rotation of files, and the merging of old ticks in slices.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn export_forty_thousand_ticks(bencher: Bencher<'_, '_>) {
    let ticks: Vec<_> = (0..1000).map(synthetic::tick).collect();
    bencher
        .counter(ItemsCount::new(40_000u32))
        .with_inputs(|| tempfile::tempdir().unwrap())
        .bench_local_refs(|folder| {
            let mut exporter =
                FileExporter::create(folder.path(), 0, FileLimits::default()).unwrap();
            for _ in 0..40 {
                for tick in &ticks {
                    exporter.export(std::slice::from_ref(tick)).unwrap();
                }
            }
        });
}
