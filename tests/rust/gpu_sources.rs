//! Tests the readings of the GPU sources on a driver without faults.

#![allow(clippy::float_cmp, reason = "the script's numbers come back exactly")]

mod fake_nvml_build;
mod gpu;

use gpu::{Machine, gpu_readings, h100, h100s, refusal};
use headspace_agent::port::{Collector, Pace};
use serde_json::json;

const ENGINE: &str = "headspace.gpu.engine.utilization";

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn a_healthy_gpu_is_described() {
    let machine = Machine::with_script(&h100s(1));

    let record = &machine.gpus.records[0];

    assert_eq!(record.ordinal, 0);
    assert_eq!(record.name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert!(record.uuid.as_deref().unwrap().starts_with("GPU-"));
    assert_eq!(record.mig, None);
    assert_eq!(record.driver.as_deref(), Some("580.95.05"));
    assert!(record.memory_bytes.unwrap() > 80_000_000_000);
    let link = (record.pcie_generation_max, record.pcie_width_max);
    assert_eq!(link, (Some(5), Some(16)));
    assert_eq!(record.nvdec_engines, Some(7));
    assert_eq!(record.nvdec_engines_from.as_deref(), Some("mig_profile"));
    assert_eq!(record.sm_source.as_deref(), Some("gpm"));
}

#[test]
fn every_value_of_the_driver_becomes_a_reading_in_its_unit() {
    // If GPM works, the PCIe bytes come from GPM.
    let device = h100(json!({"gpm": null}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.advance(2.0);

    let readings = gpu_readings(&machine.device().unwrap(), 0);

    let expected = [
        ("hw.gpu.utilization{hw.gpu.task=general}", 0.9),
        ("hw.gpu.utilization{hw.gpu.task=decoder}", 0.3),
        ("hw.gpu.utilization{hw.gpu.task=encoder}", 0.0),
        ("hw.gpu.utilization{hw.gpu.task=jpeg}", 0.0),
        ("hw.gpu.utilization{hw.gpu.task=ofa}", 0.0),
        ("headspace.gpu.sampling.period{hw.gpu.task=decoder}", 0.167),
        ("hw.gpu.memory.usage", 20e9),
        ("hw.gpu.io{network.io.direction=receive}", 4e9),
        ("hw.gpu.io{network.io.direction=transmit}", 0.2e9),
        ("headspace.gpu.pcie.generation", 5.0),
        ("headspace.gpu.pcie.width", 16.0),
        ("hw.power", 400.0),
        ("hw.energy", 800.0),
        ("hw.temperature", 55.0),
        ("headspace.gpu.clock{domain=sm}", 1.98e9),
        ("headspace.gpu.clock{domain=memory}", 2.619e9),
        ("headspace.gpu.clock{domain=video}", 1.545e9),
        ("headspace.gpu.throttled{reason=power}", 0.0),
        ("headspace.gpu.throttled{reason=thermal}", 0.0),
        ("headspace.gpu.throttled{reason=hardware}", 0.0),
        ("headspace.gpu.ecc.errors{severity=corrected}", 0.0),
        ("headspace.gpu.ecc.errors{severity=uncorrected}", 0.0),
    ];
    for (key, value) in expected {
        assert_eq!(readings.get(key), Some(&value), "{key}");
    }
    assert!(readings["hw.gpu.memory.limit"] > 80e9);
}

#[test]
fn an_unsupported_value_is_absent_and_not_read_again() {
    let device = h100(json!({"power": null, "clock_video": null, "pcie_tx": null, "gpm": null}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));

    let first = gpu_readings(&machine.device().unwrap(), 0);
    for _ in 0..30 {
        machine.advance(1.0);
        machine.device().unwrap();
    }

    assert!(!first.contains_key("hw.power"));
    assert!(!first.contains_key("headspace.gpu.clock{domain=video}"));
    assert!(first.contains_key("headspace.gpu.clock{domain=sm}"));
    assert!(!first.contains_key("hw.gpu.io{network.io.direction=transmit}"));
    assert!(first.contains_key("hw.gpu.io{network.io.direction=receive}"));
    assert_eq!(machine.fake.calls("nvmlDeviceGetPowerUsage"), 1);
    assert!(machine.fake.calls("nvmlDeviceGetUtilizationRates") > 5);
}

#[test]
fn slow_values_are_read_rarely_and_none_more_often_than_the_driver_refreshes_it() {
    let device = h100(json!({"sampling_period_us": 4_000_000, "gpm": null}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.device().unwrap();
    for _ in 0..120 {
        machine.advance(1.0);
        machine.device().unwrap();
    }

    let calls = |name| machine.fake.calls(name);
    assert_eq!(calls("nvmlDeviceGetUtilizationRates"), 121);
    let decoder = calls("nvmlDeviceGetDecoderUtilization");
    assert!((28..=32).contains(&decoder), "{decoder}: every 4 s");
    let temperature = calls("nvmlDeviceGetTemperature");
    assert!(
        (10..=16).contains(&temperature),
        "{temperature}: about every 10 s"
    );
    let ecc = calls("nvmlDeviceGetTotalEccErrors");
    assert!(ecc <= 16, "{ecc}: of two kinds, about every minute");
    for never in [
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceSetPersistenceMode",
        "nvmlShutdown",
    ] {
        assert_eq!(calls(never), 0, "{never}");
    }
}

#[test]
fn every_source_has_its_own_thread() {
    let machine = Machine::with_script(&h100s(1));

    let gpus = &machine.gpus;
    for pace in [
        gpus.device.as_ref().unwrap().pace(),
        gpus.gpm.as_ref().unwrap().pace(),
        gpus.processes.as_ref().unwrap().pace(),
    ] {
        assert!(matches!(pace, Pace::Background(_)), "{pace:?}");
    }
}

#[test]
fn engine_and_sm_utilisation_are_means_between_two_ticks() {
    let device = h100(json!({"gpm": {
        "sm_util": [[0, 100], [0.5, 20]],
        "nvdec_0": [[0, 80], [1, 40]],
        "nvdec_1": 12.345_67,
    }}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));

    machine.gpm().unwrap();
    machine.advance(1.0);
    let first = gpu_readings(&machine.gpm().unwrap(), 0);
    machine.advance(2.0);
    let second = gpu_readings(&machine.gpm().unwrap(), 0);

    assert_eq!(first["headspace.gpu.sm.utilization{source=gpm}"], 0.6);
    assert_eq!(second["headspace.gpu.sm.utilization{source=gpm}"], 0.2);
    assert_eq!(first["headspace.gpu.sm.occupancy"], 0.4);
    assert_eq!(first["headspace.gpu.tensor.utilization"], 0.45);
    assert_eq!(first["headspace.gpu.dram.utilization"], 0.35);
    assert_eq!(first[&format!("{ENGINE}{{engine=nvdec0}}")], 0.8);
    assert_eq!(second[&format!("{ENGINE}{{engine=nvdec0}}")], 0.4);
    assert_eq!(first[&format!("{ENGINE}{{engine=nvdec1}}")], 0.1235);
    assert_eq!(first[&format!("{ENGINE}{{engine=nvdec6}}")], 0.0);
    assert_eq!(first[&format!("{ENGINE}{{engine=nvjpg6}}")], 0.0);
    assert_eq!(first[&format!("{ENGINE}{{engine=ofa0}}")], 0.0);
    assert!(
        !first.contains_key(&format!("{ENGINE}{{engine=nvdec7}}")),
        "there is none"
    );
}

#[test]
fn samples_too_close_together_are_not_compared() {
    let mut machine = Machine::with_script(&h100s(1));
    machine.advance(0.05);

    let early = machine.gpm().unwrap();

    assert!(early.is_empty(), "{early:?}");
    assert_eq!(machine.fake.calls("nvmlGpmMetricsGet"), 0);
    machine.advance(0.95);
    assert!(!machine.gpm().unwrap().is_empty());
}

#[test]
fn every_gpm_sample_is_freed() {
    let mut machine = Machine::with_script(&h100s(2));
    for _ in 0..40 {
        machine.advance(1.0);
        machine.gpm().unwrap();
    }

    let alive = machine.fake.samples_alive();
    assert!(
        alive <= 2 * 4,
        "{alive}: one for each window of each device"
    );
    drop(machine.gpus);
    assert_eq!(machine.fake.samples_alive(), 0);
    assert_eq!(machine.fake.inits_alive(), 1, "the library itself stays");
}

#[test]
fn traffic_by_gpm_is_a_total_and_replaces_the_counters_of_the_driver() {
    let device = h100(json!({"gpm": {"pcie_rx": 1000, "pcie_tx": 10}}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    let mut read = |seconds| {
        machine.advance(seconds);
        let readings = gpu_readings(&machine.gpm().unwrap(), 0);
        ["receive", "transmit"].map(|way| {
            readings
                .get(&format!("hw.gpu.io{{network.io.direction={way}}}"))
                .copied()
        })
    };

    assert_eq!(read(1.0), [None; 2], "the first sample only begins");
    assert_eq!(read(1.0), [Some(1000.0 * MIB), Some(10.0 * MIB)]);
    assert_eq!(read(2.0), [Some(3000.0 * MIB), Some(30.0 * MIB)]);
    let by_device = gpu_readings(&machine.device().unwrap(), 0);
    assert!(!by_device.keys().any(|key| key.starts_with("hw.gpu.io")));
}

#[test]
fn a_metric_that_is_nan_gives_no_reading() {
    let device = h100(json!({"gpm": {"sm_util": "nan"}}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.advance(1.0);

    assert!(
        machine
            .gpm()
            .unwrap()
            .iter()
            .all(|reading| reading.value.is_finite())
    );
}

#[test]
fn memory_and_time_are_split_by_owner() {
    let device = h100(json!({"processes": [
        {"pid": "self", "memory": 15e9, "sm": 60},
        {"pid": 4_000_000_001_u32, "memory": 4e9, "sm": 25},
        {"pid": 4_000_000_002_u32, "memory": 1e9, "kind": "graphics"},
    ]}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.advance(1.0);

    let readings = gpu_readings(&machine.processes().unwrap(), 0);

    assert_eq!(readings["headspace.gpu.memory.owned{owner=own}"], 15e9);
    assert_eq!(readings["headspace.gpu.memory.owned{owner=others}"], 5e9);
    assert_eq!(
        readings["headspace.gpu.process.utilization{owner=own}"],
        0.6
    );
    assert_eq!(
        readings["headspace.gpu.process.utilization{owner=others}"],
        0.25
    );
}

#[test]
fn in_a_container_without_a_known_pid_no_owner_is_reported() {
    let device = h100(json!({"processes": [{"pid": 4_000_000_001_u32, "memory": 4e9, "sm": 25}]}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.advance(1.0);

    assert_eq!(machine.processes().unwrap(), []);
}

#[test]
fn once_own_pids_are_known_all_processes_may_belong_to_others() {
    let device = h100(json!({"processes": [
        {"pid": "self", "memory": 1e9, "until": 2},
        {"pid": 4_000_000_001_u32, "memory": 4e9},
    ]}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    machine.processes().unwrap();
    machine.advance(11.0);

    let readings = gpu_readings(&machine.processes().unwrap(), 0);

    assert_eq!(readings["headspace.gpu.memory.owned{owner=own}"], 0.0);
    assert_eq!(readings["headspace.gpu.memory.owned{owner=others}"], 4e9);
}

#[test]
fn a_child_process_counts_as_own() {
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let device = h100(json!({"processes": [{"pid": child.id(), "memory": 2e9}]}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));

    let readings = gpu_readings(&machine.processes().unwrap(), 0);

    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(readings["headspace.gpu.memory.owned{owner=own}"], 2e9);
    assert_eq!(readings["headspace.gpu.memory.owned{owner=others}"], 0.0);
}

#[test]
fn the_process_numbers_its_devices_as_cuda_does() {
    let model = |name: &str| h100(json!({"name": name}));
    let script = json!({"devices": [model("NVIDIA L4"), model("NVIDIA A10"), model("Tesla T4")]});

    let machine = Machine::with_visible(&script, "2,0");

    let names: Vec<_> = machine
        .gpus
        .records
        .iter()
        .map(|r| r.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["Tesla T4", "NVIDIA L4"]);
    let ordinals: Vec<_> = machine
        .gpus
        .records
        .iter()
        .map(|record| record.ordinal)
        .collect();
    assert_eq!(ordinals, [0, 1]);
}

#[test]
fn an_empty_list_of_devices_disables_the_sources() {
    let machine = Machine::with_visible(&h100s(2), "");

    let (reason, remedy) = refusal(&machine.gpus.device);

    assert!(reason.contains("CUDA_VISIBLE_DEVICES="), "{reason}");
    assert!(remedy.contains("nvidia-smi -L"), "{remedy}");
    assert!(machine.gpus.records.is_empty());
}

#[test]
fn the_number_of_decoders_names_its_source() {
    let from = |changes| {
        let machine = Machine::with_script(&json!({"devices": [h100(changes)]}));
        let record = &machine.gpus.records[0];
        (record.nvdec_engines, record.nvdec_engines_from.clone())
    };

    let table = json!({"profiles": null, "name": "NVIDIA L40S", "gpm": null});
    assert_eq!(from(table), (Some(3), Some("table".to_owned())));
    let gpm =
        json!({"profiles": null, "name": "NVIDIA X1", "gpm": {"nvdec_5": null, "nvdec_6": null}});
    assert_eq!(
        from(gpm).0,
        None,
        "the two samples are at one moment of the scripted clock"
    );
    let unknown = json!({"profiles": null, "name": "NVIDIA X1", "gpm": null});
    assert_eq!(from(unknown), (None, None));
}

#[test]
fn the_number_of_decoders_of_an_unknown_gpu_model_is_absent() {
    // GPM answers for every decoder that has a metric id.
    let device = h100(json!({"profiles": null, "name": "NVIDIA X1"}));

    let machine = Machine::with_script(&json!({"devices": [device]}));

    let record = &machine.gpus.records[0];
    assert_eq!(record.nvdec_engines, None);
    assert_eq!(record.nvdec_engines_from, None);
}
