//! Tests the GPU sources on a slice of a GPU (MIG).

#![allow(clippy::float_cmp, reason = "the script's numbers come back exactly")]

mod fake_nvml_build;
mod gpu;

use gpu::{Machine, gpu_readings, h100};
use serde_json::{Value, json};

/// A GPU that is split into two slices.
fn cut() -> Value {
    h100(
        json!({"uuid": "GPU-aaaa", "mig": {"enabled": true, "max": 7, "devices": [
            {"uuid": "MIG-1111", "gpu_instance": 1, "compute_instance": 0, "profile": 0,
             "memory_total": 10_000_000_000_u64, "memory_used": 3e9, "gpm": {"sm_util": 70, "nvdec_0": 40}},
            {"uuid": "MIG-2222", "gpu_instance": 2, "compute_instance": 0, "profile": 0,
             "memory_total": 20_000_000_000_u64, "memory_used": 9e9, "gpm": {"sm_util": 10}},
        ]}}),
    )
}

#[test]
fn without_visible_devices_the_process_has_only_the_first_slice() {
    let machine = Machine::with_script(&json!({"devices": [h100(json!({})), cut()]}));

    let [record] = &machine.gpus.records[..] else {
        panic!("{:?}", machine.gpus.records)
    };
    assert_eq!(record.uuid.as_deref(), Some("GPU-aaaa"));
    assert_eq!(record.mig.as_deref(), Some("MIG-1111"));
    assert_eq!(record.memory_bytes, Some(10_000_000_000));
    assert_eq!(record.sm_source.as_deref(), Some("gpm_mig"));
    assert_ne!(record.nvdec_engines, Some(7), "those are the whole GPU's");
}

#[test]
fn a_slice_is_found_by_its_id_and_by_its_index() {
    for visible in ["MIG-2222", "MIG-2", "MIG-GPU-aaaa/2/0"] {
        let machine = Machine::with_visible(&json!({"devices": [cut()]}), visible);

        assert_eq!(
            machine.gpus.records[0].mig.as_deref(),
            Some("MIG-2222"),
            "{visible}"
        );
    }
}

#[test]
fn a_slice_has_its_own_memory_and_the_chips_temperature_but_not_its_power() {
    let mut machine = Machine::with_visible(&json!({"devices": [cut()]}), "MIG-2222");

    let readings = gpu_readings(&machine.device().unwrap(), 0);

    assert_eq!(readings["hw.gpu.memory.usage"], 9e9);
    assert_eq!(readings["hw.gpu.memory.limit"], 20e9);
    assert_eq!(readings["hw.temperature"], 55.0);
    assert_eq!(readings["headspace.gpu.clock{domain=sm}"], 1.98e9);
    for of_the_whole in [
        "hw.power",
        "hw.energy",
        "hw.gpu.utilization{hw.gpu.task=general}",
    ] {
        assert!(!readings.contains_key(of_the_whole), "{of_the_whole}");
    }
    assert!(!readings.keys().any(|key| key.starts_with("hw.gpu.io")));
}

#[test]
fn a_slices_sms_and_decoders_come_from_its_own_sample() {
    let mut machine = Machine::with_visible(&json!({"devices": [cut()]}), "MIG-1111");
    machine.gpm().unwrap();
    machine.advance(1.0);

    let readings = gpu_readings(&machine.gpm().unwrap(), 0);

    assert_eq!(
        readings["headspace.gpu.sm.utilization{source=gpm_mig}"],
        0.7
    );
    assert_eq!(
        readings["headspace.gpu.engine.utilization{engine=nvdec0}"],
        0.4
    );
    assert_eq!(machine.fake.calls("nvmlGpmSampleGet"), 0);
}

#[test]
fn processes_of_another_slice_do_not_count() {
    let mut device = cut();
    device["processes"] = json!([
        {"pid": "self", "memory": 2e9, "mig": 0},
        {"pid": 4_000_000_001_u32, "memory": 7e9, "mig": 1},
    ]);
    let mut machine = Machine::with_visible(&json!({"devices": [device]}), "MIG-1111");

    let readings = gpu_readings(&machine.processes().unwrap(), 0);

    assert_eq!(readings["headspace.gpu.memory.owned{owner=own}"], 2e9);
    assert_eq!(readings["headspace.gpu.memory.owned{owner=others}"], 0.0);
}
