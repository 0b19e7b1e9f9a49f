//! Measures the page of a run of 8 ranks and one hour, both as one file and as `serve` sends it. The
//! reference is to read the records alone.
//!
//! `HEADSPACE_BENCH_S` sets the length of the run in seconds (default 3600).

#![expect(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, LineWriter, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use divan::Bencher;
use headspace::Context;
use headspace::page::PageState;
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::{Follower, rank_path};
use tempfile::TempDir;

mod hour;

/// Number of ranks in the run.
const RANKS: u32 = 8;

static FOLDER: OnceLock<TempDir> = OnceLock::new();

fn main() {
    let page = PageState::read(folder()).unwrap();
    let page = page.page();
    let data = serde_json::to_string(&page).unwrap().len();
    let records: u64 = (0..RANKS)
        .map(|rank| fs::metadata(rank_path(folder(), rank)).unwrap().len())
        .sum();
    println!(
        "page of {RANKS} ranks: {} MiB of records, {} KiB of data, {} KiB as one file",
        records >> 20,
        data >> 10,
        page.file().len() >> 10
    );
    drop(page);
    println!("served whole {:.1} s after its start", whole(data));
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

/// The cost of reading all records. Every command that reads a run has this cost.
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

/// The cost of `report --html` without writing the file.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn read_and_render_one_file(bencher: Bencher<'_, '_>) {
    let folder = folder();
    bencher.bench_local(|| PageState::read(folder).unwrap().page().file());
}

/// The cost of the response to one poll of an open page.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn render_the_data_again(bencher: Bencher<'_, '_>) {
    let page = PageState::read(folder()).unwrap();
    bencher.bench_local(|| serde_json::to_string(&page.page()).unwrap());
}

/// The time to open the page.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn first_byte_of_the_served_page(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        let mut first = [0];
        request("/").read_exact(&mut first).unwrap();
        first
    });
}

/// The time until the charts of the page are complete.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn served_page_and_its_data(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| answer("/").len() + answer("/api/page").len());
}

/// Seconds until `serve` has read all records. All records are read when the response has at least `data` bytes.
fn whole(data: usize) -> f64 {
    let begun = Instant::now();
    while answer("/api/page").len() < data {
        std::thread::sleep(Duration::from_millis(250));
    }
    begun.elapsed().as_secs_f64()
}

fn request(path: &str) -> TcpStream {
    let at = served();
    let mut stream = TcpStream::connect(at).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn answer(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    request(path).read_to_end(&mut bytes).unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{path} is not answered");
    bytes
}

/// The address at which `serve` serves the run. The first call starts the command in a thread, which runs until
/// the benchmark ends.
fn served() -> SocketAddr {
    static AT: OnceLock<SocketAddr> = OnceLock::new();
    *AT.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let command = ["headspace", "serve", "--port", "0"].map(OsString::from);
            headspace::run(
                command.into_iter().chain([folder().into()]),
                &mut Context {
                    out: &mut LineWriter::new(AddressWriter(sender)),
                    err: &mut io::stderr(),
                    runs: folder().into(),
                    settings: headspace::source_settings(),
                    inject: None,
                    more_sources: &mut Vec::new,
                },
            )
        });
        let line = receiver.recv().unwrap();
        let (_, address) = line.split_once("http://").unwrap();
        address.split('/').next().unwrap().parse().unwrap()
    })
}

/// Sends each line to a channel.
struct AddressWriter(mpsc::Sender<String>);

impl Write for AddressWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
