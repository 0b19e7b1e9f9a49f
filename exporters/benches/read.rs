//! How fast a large run is read. `HEADSPACE_BENCH_MIB` sets its size (128; 1024 is the target's).
//!
//! The last line tells the most memory that the process held, which the target bounds as well.

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::fs;
use std::io::Write;
use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::BytesCount;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::{Run, rank_path};
use tempfile::TempDir;

mod synthetic;

static FOLDER: OnceLock<TempDir> = OnceLock::new();

fn main() {
    divan::main();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find(|l| l.starts_with("VmHWM")) {
        println!(
            "most memory held: {}",
            peak.trim_start_matches("VmHWM:").trim()
        );
    }
    if let Some(folder) = FOLDER.get() {
        let _ = fs::remove_dir_all(folder.path());
    }
}

/// A run folder of the size asked for, of ticks that differ.
fn folder() -> &'static TempDir {
    FOLDER.get_or_init(|| {
        let mib: usize = std::env::var("HEADSPACE_BENCH_MIB")
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(128);
        let folder = tempfile::tempdir().unwrap();
        let mut file = fs::File::create(rank_path(folder.path(), 0)).unwrap();
        let mut block = Vec::new();
        for number in 0..2000 {
            encode(&synthetic::tick(number), &mut block).unwrap();
        }
        for _ in 0..=(mib << 20) / block.len() {
            file.write_all(&block).unwrap();
        }
        folder
    })
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_a_run(bencher: Bencher<'_, '_>) {
    let folder = folder().path();
    let bytes = fs::metadata(rank_path(folder, 0)).unwrap().len();
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| Run::read(folder).unwrap());
}
