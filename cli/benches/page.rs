//! The page of a run of 8 ranks and an hour, beside reading its records alone. `HEADSPACE_BENCH_S`
//! sets the seconds of the run (3600).

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use divan::Bencher;
use headspace::page::Watched;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::{Follower, rank_path};
use tempfile::TempDir;

mod hour;

/// Ranks of the run.
const RANKS: u32 = 8;

static FOLDER: OnceLock<TempDir> = OnceLock::new();

fn main() {
    let watched = Watched::read(folder()).unwrap();
    let page = watched.page();
    let bytes = serde_json::to_string(&page).unwrap().len();
    println!(
        "page of {RANKS} ranks: {} KiB of data, {} KiB as one file",
        bytes / 1024,
        page.file().len() / 1024
    );
    divan::main();
    if let Some(folder) = FOLDER.get() {
        let _ = fs::remove_dir_all(folder.path());
    }
}

fn folder() -> &'static Path {
    let folder = FOLDER.get_or_init(|| {
        let seconds = std::env::var("HEADSPACE_BENCH_S").ok();
        let seconds = seconds.and_then(|s| s.parse().ok()).unwrap_or(3600);
        let folder = tempfile::tempdir().unwrap();
        for rank in 0..RANKS {
            let mut bytes = Vec::new();
            for record in hour::records(rank, seconds) {
                encode(&record, &mut bytes).unwrap();
            }
            fs::write(rank_path(folder.path(), rank), bytes).unwrap();
        }
        folder
    });
    folder.path()
}

/// What everybody pays who looks at all records.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_the_records_alone(bencher: Bencher<'_, '_>) {
    let folder = folder();
    bencher.bench_local(|| {
        let mut follower = Follower::open(folder).unwrap();
        let mut count = 0;
        loop {
            let polled = follower.poll().unwrap();
            count += polled.records.len();
            if !polled.more {
                return count;
            }
        }
    });
}

/// `report --html`, but for writing the file.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_and_render_one_file(bencher: Bencher<'_, '_>) {
    let folder = folder();
    bencher.bench_local(|| Watched::read(folder).unwrap().page().file());
}

/// What a look of `serve` costs while somebody watches.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn render_the_data_again(bencher: Bencher<'_, '_>) {
    let watched = Watched::read(folder()).unwrap();
    bencher.bench_local(|| serde_json::to_string(&watched.page()).unwrap());
}
