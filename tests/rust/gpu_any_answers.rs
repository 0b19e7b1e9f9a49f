//! Gives the GPU sources arbitrary answers of a driver: values, texts, error codes and lost devices. No answer may stop a
//! source with a panic, and no reading may be a number that its metric cannot have.
//!
//! `PROPTEST_CASES=20000 cargo test -p headspace-tests --test gpu_any_answers` runs more cases.

mod fake_nvml_build;
mod gpu;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use fake_nvml_build::FakeNvml;
use gpu::{Machine, h100, h100s};
use headspace_agent::analysis::resources::{Part, RankNode, resources};
use headspace_agent::model::metric::MetricKind;
use headspace_agent::model::{Reading, ReadingSeries, Scope};
use headspace_agent::port::CollectError;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

/// Keys of a device that are series.
const SERIES: &[&str] = &[
    "memory_used",
    "gpu_utilization",
    "memory_utilization",
    "decoder_utilization",
    "encoder_utilization",
    "jpg_utilization",
    "ofa_utilization",
    "pcie_tx",
    "pcie_rx",
    "pcie_generation",
    "pcie_width",
    "pcie_generation_max",
    "pcie_width_max",
    "power",
    "power_instant",
    "energy",
    "temperature",
    "clock_graphics",
    "clock_sm",
    "clock_memory",
    "clock_video",
    "throttle_reasons",
];

/// Keys of a device that are whole numbers, and their number of bits.
const NUMBERS: &[(&str, u32)] = &[
    ("architecture", 32),
    ("memory_total", 64),
    ("memory_reserved", 64),
    ("sampling_period_us", 32),
    ("pcie_wraps_at", 64),
];

/// Metrics of GPM that headspace reads, or that do not exist.
const GPM: &[&str] = &[
    "graphics_util",
    "sm_util",
    "sm_occupancy",
    "any_tensor_util",
    "dram_bw_util",
    "pcie_tx",
    "pcie_rx",
    "nvdec_0",
    "nvdec_7",
    "nvjpg_0",
    "nvofa_0",
    "999",
];

/// Series of a process.
const OF_PROCESS: &[&str] = &["memory", "sm", "mem", "enc", "dec", "jpg", "ofa"];

/// Whole numbers of a MIG profile, of 32 bits.
const OF_PROFILE: &[&str] = &[
    "slices",
    "sms",
    "copy_engines",
    "decoders",
    "encoders",
    "jpegs",
    "ofas",
];

/// Functions that may fail. A driver that cannot be initialised has its own test (`gpu_faults.rs`).
const FUNCTIONS: &[&str] = &[
    "*",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
];

/// Ticks, at intervals of these numbers of seconds, with the devices that the process may use.
#[derive(Debug)]
struct Run {
    visible: Option<String>,
    intervals_s: Vec<f64>,
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (0..=100_u32).prop_map(|number| json!(number)),
        // Of any order of magnitude.
        2 => (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| json!(number >> shift)),
        1 => proptest::num::f64::ANY.prop_map(|number| {
            if number.is_finite() { json!(number) } else { json!("nan") }
        }),
    ]
}

fn series() -> impl Strategy<Value = Value> {
    let steps = vec((0.0..20.0, option::weighted(0.8, number())), 1..4);
    prop_oneof![
        3 => number(),
        1 => steps.prop_map(|mut steps| {
            steps.sort_by(|(a, _), (b, _)| f64::total_cmp(a, b));
            json!(steps)
        }),
    ]
}

/// Some of these keys, each with a series.
fn some_series(keys: &'static [&'static str]) -> impl Strategy<Value = Map<String, Value>> {
    btree_map(
        select(keys).prop_map(str::to_owned),
        series(),
        0..keys.len(),
    )
    .prop_map(Map::from_iter)
}

/// A whole number of at most `bits` bits. Half of them have at most 4 bits.
fn whole(bits: u32) -> impl Strategy<Value = Value> {
    (any::<u64>(), select(vec![4, bits])).prop_map(|(number, bits)| json!(number >> (64 - bits)))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "(GPU|MIG)-[0-9a-f]{0,8}",
        ".{0,20}",
        "NVIDIA (H100|L4|A100)"
    ]
}

fn process() -> impl Strategy<Value = Value> {
    let pid = prop_oneof![Just(json!("self")), whole(32)];
    let times = (option::of(0.0..20.0), option::of(0.0..20.0));
    (pid, some_series(OF_PROCESS), times).prop_map(|(pid, mut process, (from, until))| {
        process.insert("pid".to_owned(), pid);
        process.insert("from".to_owned(), json!(from));
        process.insert("until".to_owned(), json!(until));
        Value::Object(process)
    })
}

fn profile() -> impl Strategy<Value = Value> {
    let numbers = vec(whole(32), OF_PROFILE.len());
    (whole(32), numbers, whole(64)).prop_map(|(number, numbers, memory)| {
        let numbers = OF_PROFILE.iter().map(|key| (*key).to_owned()).zip(numbers);
        let mut profile: Map<String, Value> = numbers.collect();
        profile.insert("profile".to_owned(), number);
        profile.insert("memory_mb".to_owned(), memory);
        Value::Object(profile)
    })
}

fn mig_device() -> impl Strategy<Value = Value> {
    let numbers = (whole(32), whole(32), whole(32), whole(64));
    (text(), numbers, series(), option::of(some_series(GPM))).prop_map(
        |(uuid, (gpu_instance, compute_instance, profile, memory_total), memory_used, gpm)| {
            json!({
                "uuid": uuid, "gpu_instance": gpu_instance, "compute_instance": compute_instance,
                "profile": profile, "memory_total": memory_total, "memory_used": memory_used, "gpm": gpm,
            })
        },
    )
}

/// A device: arbitrary, or a healthy one of which some values are arbitrary.
fn device() -> impl Strategy<Value = Value> {
    let numbers = btree_map(select(NUMBERS), whole(64), 0..NUMBERS.len());
    let parts = (
        any::<bool>(),
        some_series(SERIES),
        numbers,
        (text(), option::of(text())),
        option::of(some_series(GPM)),
        vec(process(), 0..3),
        vec(profile(), 0..3),
        option::of((any::<bool>(), whole(32), vec(mig_device(), 0..3))),
    );
    parts.prop_map(
        |(healthy, mut changes, numbers, (name, uuid), gpm, processes, profiles, mig)| {
            for ((key, bits), number) in numbers {
                let number = number.as_u64().unwrap_or_default() >> (64 - bits);
                changes.insert(key.to_owned(), json!(number));
            }
            changes.insert("name".to_owned(), json!(name));
            if let Some(uuid) = uuid {
                changes.insert("uuid".to_owned(), json!(uuid));
            }
            if let Some(gpm) = gpm {
                changes.insert("gpm".to_owned(), Value::Object(gpm));
            }
            if !processes.is_empty() {
                changes.insert("processes".to_owned(), json!(processes));
            }
            if !profiles.is_empty() {
                changes.insert("profiles".to_owned(), json!(profiles));
            }
            if let Some((enabled, max, devices)) = mig {
                let mig = json!({"enabled": enabled, "max": max, "devices": devices});
                changes.insert("mig".to_owned(), mig);
            }
            if healthy {
                h100(Value::Object(changes))
            } else {
                Value::Object(changes)
            }
        },
    )
}

fn fault() -> impl Strategy<Value = Value> {
    let code = prop_oneof![4 => 1..30_u32, 1 => Just(999), 1 => 1..u32::MAX];
    let from_time = option::of(0.0..20.0);
    let from_call = option::of(1..20_u64);
    (
        select(FUNCTIONS),
        code,
        option::of(0..3_u32),
        from_time,
        from_call,
    )
        .prop_map(|(function, code, device, from_time, from_call)| {
            json!({
                "function": function, "code": code, "device": device, "from_time": from_time,
                "from_call": from_call,
            })
        })
}

fn script() -> impl Strategy<Value = Value> {
    let devices = prop_oneof![1 => Just(Vec::new()), 15 => vec(device(), 1..4)];
    let versions = (text(), text(), any::<i32>());
    let faults = prop_oneof![Just(Vec::new()), vec(fault(), 0..3)];
    (devices, faults, versions).prop_map(|(devices, faults, (driver, nvml, cuda))| {
        json!({"devices": devices, "faults": faults, "driver": driver, "nvml": nvml, "cuda": cuda})
    })
}

fn run() -> impl Strategy<Value = Run> {
    let visible = option::weighted(0.2, prop_oneof!["[-0-3,]{0,6}", text()]);
    let intervals_s = vec(prop_oneof![0.001..2.0, Just(61.0)], 1..12);
    (visible, intervals_s).prop_map(|(visible, intervals_s)| Run {
        visible,
        intervals_s,
    })
}

/// The readings of a source, and whether it is still enabled. A source may skip a tick.
fn collected(source: Option<Result<Vec<Reading>, CollectError>>) -> (Vec<Reading>, bool) {
    match source {
        Some(Ok(readings)) => (readings, true),
        Some(Err(CollectError::Transient(_))) => (Vec::new(), true),
        Some(Err(CollectError::Unsupported { reason, .. })) => {
            assert!(!reason.is_empty());
            (Vec::new(), false)
        }
        None => (Vec::new(), false),
    }
}

fn check_reading(reading: &Reading) {
    assert!(matches!(reading.scope, Scope::Gpu(_)), "{reading:?}");
    assert!(
        reading.value.is_finite() && reading.value >= 0.0,
        "{reading:?}"
    );
    let is_share = reading.metric.unit == "1" && reading.metric.kind == MetricKind::Gauge;
    assert!(!is_share || reading.value <= 1.0, "{reading:?}");
}

/// Runs the sources on a driver with this script. Returns the driver, and the number of readings.
fn read_all(fake: FakeNvml, script: &Value, run: &Run) -> (FakeNvml, usize) {
    fake.script_after_init(script);
    let mut machine = Machine::with(fake, run.visible.as_deref());
    let mut history = ReadingSeries::default();
    let mut count = 0;
    let mut on = [
        machine.gpus.device.is_ok(),
        machine.gpus.gpm.is_ok(),
        machine.gpus.processes.is_ok(),
    ];
    for seconds in &run.intervals_s {
        machine.advance(*seconds);
        let mut tick = Vec::new();
        let sources = [
            on[0].then(|| machine.device()),
            on[1].then(|| machine.gpm()),
            on[2].then(|| machine.processes()),
        ];
        for (on, source) in on.iter_mut().zip(sources) {
            let (readings, is_enabled) = collected(source);
            tick.extend(readings);
            *on = is_enabled;
        }
        tick.iter().for_each(check_reading);
        count += tick.len();
        history.push(machine.at, Duration::from_secs_f64(*seconds), false, &tick);
    }
    let part = Part {
        from_s: 0.0,
        to_s: machine.at.as_secs_f64(),
        steps_per_s: None,
    };
    let node = RankNode {
        gpus: &machine.gpus.records,
        ..RankNode::default()
    };
    check_percents(&json!(resources(&history, part, node)));
    (machine.fake, count)
}

/// Each share of a record, at any depth, is between 0 and 100 percent.
fn check_percents(record: &Value) {
    match record {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Some(pct) = value.as_f64().filter(|_| key.ends_with("_pct")) {
                    assert!((0.0..=100.0).contains(&pct), "{key}: {pct}");
                }
                check_percents(value);
            }
        }
        Value::Array(values) => values.iter().for_each(check_percents),
        _ => (),
    }
}

/// A driver that headspace has initialised. All cases use it. A case that fails drops it, and the next one starts another.
fn initialised_driver() -> FakeNvml {
    let machine = Machine::with_script(&h100s(1));
    assert!(machine.gpus.device.is_ok());
    machine.fake
}

#[test]
fn no_answer_of_a_driver_causes_a_panic_or_an_impossible_reading() {
    let fake = RefCell::new(None);
    let readings = Cell::new(0);
    let mut runner = TestRunner::default();
    let outcome = runner.run(&(script(), run()), |(script, run)| {
        let driver = fake.take().unwrap_or_else(initialised_driver);
        let (driver, count) = read_all(driver, &script, &run);
        fake.replace(Some(driver));
        readings.set(readings.get() + count);
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    // The sources work with many of these drivers.
    let cases = runner.config().cases as usize;
    assert!(readings.get() > 10 * cases, "{} readings", readings.get());
}
