//! Prints the cost of the GPU sources: bytes in the records, and time. Checks only the bytes.
//!
//! `cargo test -p headspace-tests --release --test gpu_size -- --nocapture`

mod fake_nvml_build;
mod gpu;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu::{Machine, gpu_readings, h100};
use headspace_agent::model::Reading;
use serde_json::json;

const GPUS: u32 = 8;
const SECONDS: u32 = 600;

/// The bytes that these readings take in the record of a tick.
fn bytes(readings: &[Reading]) -> usize {
    let scopes: BTreeMap<String, _> = (0..GPUS)
        .map(|ordinal| (format!("gpu:{ordinal}"), gpu_readings(readings, ordinal)))
        .filter(|(_, readings)| !readings.is_empty())
        .collect();
    json!(scopes).to_string().len()
}

/// Eight busy H100s with seven decoders each. The values have as many digits as real ones.
fn busy() -> Machine {
    let mut engines = BTreeMap::new();
    for engine in 0..7 {
        engines.insert(format!("nvdec_{engine}"), 51.237);
        engines.insert(format!("nvjpg_{engine}"), 0.0);
    }
    engines.insert("sm_util".to_owned(), 73.456);
    let device = h100(json!({
        "memory_used": 61_234_567_168_u64, "power": 612.345, "energy": 612.345,
        "pcie_rx": 2_123_456_789_u64, "pcie_tx": 123_456_789, "gpm": engines,
        "processes": [{"pid": "self", "memory": 61_134_567_168_u64, "sm": 87}],
    }));
    Machine::with_script(&json!({"devices": vec![device; GPUS as usize]}))
}

#[test]
fn reading_eight_gpus_takes_less_than_a_tick() {
    let mut machine = busy();
    let (mut total, mut most, mut times) = (0, 0, [Duration::ZERO; 3]);
    for _ in 0..SECONDS {
        machine.advance(1.0);
        let mut readings = Vec::new();
        for (source, time) in times.iter_mut().enumerate() {
            let begin = Instant::now();
            let some = match source {
                0 => machine.device(),
                1 => machine.gpm(),
                _ => machine.processes(),
            };
            *time += begin.elapsed();
            readings.extend(some.unwrap());
        }
        let bytes = bytes(&readings);
        total += bytes;
        most = most.max(bytes);
    }
    let mean = total / SECONDS as usize;
    let [device, gpm, processes] = times.map(|time| time.as_micros() / u128::from(SECONDS));
    println!(
        "{GPUS} H100s, {SECONDS} ticks of 1 s: {mean} bytes a tick ({} a GPU), at most {most}",
        mean / GPUS as usize
    );
    println!(
        "µs a tick, the driver's own time aside: gpu {device}, gpu_gpm {gpm}, gpu_processes {processes}"
    );

    // The limit for a record is 4 KiB. The rest is for the loop, its stages and the process.
    assert!(mean <= 2_048, "{mean} bytes");
}
