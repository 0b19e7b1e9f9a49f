//! Measures how fast a large run is read: one rank, and several ranks with their series of ticks.
//!
//! `HEADSPACE_BENCH_MIB` sets the size of the run in MiB (default 128; the target is for 1024). The last line
//! of the output is the peak memory of the process, which has a target, too.

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::BytesCount;
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::{ReadEvent, Run, rank_path};
use tempfile::TempDir;

mod synthetic;

/// Number of ranks of the run with several ranks.
const RANKS: u32 = 8;

static FOLDERS: [OnceLock<TempDir>; 2] = [const { OnceLock::new() }; 2];

fn main() {
    divan::main();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find(|l| l.starts_with("VmHWM")) {
        println!(
            "most memory held: {}",
            peak.trim_start_matches("VmHWM:").trim()
        );
    }
    for folder in FOLDERS.iter().filter_map(OnceLock::get) {
        let _ = fs::remove_dir_all(folder.path());
    }
}

/// A run folder of the requested size. It repeats a block of 2,000 different ticks.
fn folder(ranks: u32) -> &'static Path {
    let folder = FOLDERS[usize::from(ranks > 1)].get_or_init(|| {
        let mib: usize = std::env::var("HEADSPACE_BENCH_MIB")
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(128);
        let folder = tempfile::tempdir().unwrap();
        let mut block = Vec::new();
        for number in 0..2000 {
            encode(&synthetic::tick(number), &mut block).unwrap();
        }
        for rank in 0..ranks {
            let mut file = fs::File::create(rank_path(folder.path(), rank)).unwrap();
            for _ in 0..=(mib << 20) / block.len() / ranks as usize {
                file.write_all(&block).unwrap();
            }
        }
        folder
    });
    folder.path()
}

fn bytes(folder: &Path) -> BytesCount {
    let files = fs::read_dir(folder).unwrap();
    BytesCount::new(
        files
            .map(|f| f.unwrap().metadata().unwrap().len())
            .sum::<u64>(),
    )
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_a_run(bencher: Bencher<'_, '_>) {
    let folder = folder(1);
    bencher
        .counter(bytes(folder))
        .bench_local(|| Run::read(folder).unwrap());
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_a_run_of_several_ranks(bencher: Bencher<'_, '_>) {
    let folder = folder(RANKS);
    bencher.counter(bytes(folder)).bench_local(|| {
        let mut series = TickSeries::default();
        Run::read_with(folder, &mut |seen| match seen {
            ReadEvent::Tick(tick) => series.add_read(tick),
            ReadEvent::Rank(_) => series = TickSeries::default(),
        })
        .unwrap()
    });
}
