//! Tests the GPU sources on a driver that fails: at the start, during the run, or for some values.

#![allow(clippy::float_cmp, reason = "the script's numbers come back exactly")]

mod fake_nvml_build;
mod gpu;

use std::time::Duration;

use fake_nvml_build::FakeNvml;
use gpu::{Machine, gpu_readings, h100, h100s, refusal};
use headspace_agent::port::{CollectError, Collector};
use headspace_agent::sampling::RankGpu;
use serde_json::{Value, json};

fn failing(mut script: Value, faults: Value) -> Value {
    script["faults"] = faults;
    script
}

fn disabled_reason<T: std::fmt::Debug>(outcome: &Result<T, CollectError>) -> String {
    refusal(outcome).0
}

#[test]
fn a_driver_that_fails_to_start_gives_a_reason_and_a_remedy() {
    for (code, reason, remedy) in [
        (9, "not loaded", "modprobe"),
        (18, "different versions", "reboot"),
        (4, "may not talk", "/dev/nvidia"),
        (999, "did not start", ""),
    ] {
        let faults = json!([{"function": "nvmlInit_v2", "code": code}]);
        let machine = Machine::with_script(&failing(h100s(1), faults));

        for refused in [
            refusal(&machine.gpus.device),
            refusal(&machine.gpus.gpm),
            refusal(&machine.gpus.processes),
        ] {
            assert!(refused.0.contains(reason), "{code}: {refused:?}");
            assert!(refused.1.contains(remedy), "{code}: {refused:?}");
        }
    }
}

#[test]
fn a_driver_without_a_gpu_gives_its_own_reason() {
    let machine = Machine::with_script(&json!({"devices": []}));

    assert!(refusal(&machine.gpus.device).0.contains("no GPU"));
}

#[test]
fn an_old_driver_gives_the_readings_that_it_supports() {
    let mut machine = Machine::with(FakeNvml::start_old_driver(&h100s(1)), None);

    let readings = gpu_readings(&machine.device().unwrap(), 0);

    assert_eq!(readings["hw.gpu.utilization{hw.gpu.task=general}"], 0.9);
    assert_eq!(readings["hw.gpu.memory.usage"], 20e9);
    assert!(!readings.keys().any(|key| key.starts_with("hw.gpu.io")));
    assert!(!readings.contains_key("hw.gpu.utilization{hw.gpu.task=jpeg}"));
    let (reason, remedy) = refusal(&machine.gpus.gpm);
    assert!(reason.contains("too old"), "{reason}");
    assert!(remedy.contains("driver 525"), "{remedy}");
    assert!(refusal(&machine.gpus.processes).0.contains("too old"));
    drop(machine.gpus);
}

#[test]
fn a_gpu_before_hopper_has_all_sources_except_gpm() {
    let device = h100(json!({"name": "NVIDIA L4", "gpm": null, "profiles": null}));
    let machine = Machine::with_script(&json!({"devices": [device]}));

    let (reason, _) = refusal(&machine.gpus.gpm);

    assert!(
        reason.contains("NVIDIA L4") && reason.contains("Hopper"),
        "{reason}"
    );
    assert!(machine.gpus.device.is_ok() && machine.gpus.processes.is_ok());
    assert_eq!(machine.gpus.records[0].sm_source, None);
    assert_eq!(machine.gpus.records[0].nvdec_engines, Some(4));
}

#[test]
fn a_gpu_whose_first_gpm_sample_fails_has_no_gpm_source() {
    let faults = json!([{"function": "nvmlGpmSampleGet", "code": 3}]);
    let machine = Machine::with_script(&failing(h100s(1), faults));

    assert!(refusal(&machine.gpus.gpm).0.contains("no GPM"));
    assert_eq!(machine.fake.samples_alive(), 0);
}

#[test]
fn the_loss_of_the_only_gpu_disables_all_sources_with_a_reason() {
    let faults = json!([{"function": "*", "code": 15, "from_time": 5}]);
    let mut machine = Machine::with_script(&failing(h100s(1), faults));
    assert!(machine.device().is_ok() && machine.gpm().is_ok() && machine.processes().is_ok());
    assert!(machine.gpus.presence.is_empty());
    machine.advance(6.0);

    for reason in [
        disabled_reason(&machine.device()),
        disabled_reason(&machine.gpm()),
        disabled_reason(&machine.processes()),
    ] {
        assert!(
            reason.contains("`gpu:0` is lost") && reason.contains("xid"),
            "{reason}"
        );
    }
}

#[test]
fn the_loss_of_one_of_two_gpus_is_reported_and_the_other_is_still_read() {
    let faults = json!([{"function": "*", "device": 1, "code": 15, "from_time": 5}]);
    let mut machine = Machine::with_script(&failing(h100s(2), faults));
    let mut presence = std::mem::take(&mut machine.gpus.presence);
    machine.device().unwrap();
    machine.gpm().unwrap();
    let mut check_presence = |gpu: usize| presence[gpu].collect(Duration::ZERO, &mut Vec::new());
    assert!(check_presence(0).is_ok() && check_presence(1).is_ok());
    machine.advance(6.0);

    let (device, gpm) = (machine.device().unwrap(), machine.gpm().unwrap());

    assert!(gpu_readings(&device, 1).is_empty() && gpu_readings(&gpm, 1).is_empty());
    assert!(!gpu_readings(&device, 0).is_empty() && !gpu_readings(&gpm, 0).is_empty());
    assert!(disabled_reason(&check_presence(1)).contains("fell off the bus"));
    assert!(check_presence(0).is_ok());
    let calls = machine.fake.calls("nvmlDeviceGetTemperature");
    machine.advance(20.0);
    assert!(gpu_readings(&machine.device().unwrap(), 1).is_empty());
    assert_eq!(
        machine.fake.calls("nvmlDeviceGetTemperature"),
        calls + 1,
        "of the other alone"
    );
    assert_eq!(presence[1].name(), "gpu:1");
}

#[test]
fn a_gpu_that_does_not_answer_at_the_start_is_not_counted() {
    let faults = json!([{"function": "*", "device": 0, "code": 15}]);
    let machine = Machine::with_script(&failing(h100s(2), faults));

    assert_eq!(machine.gpus.records.len(), 1);
    assert_eq!(machine.gpus.records[0].ordinal, 0);
}

#[test]
fn a_temporary_fault_loses_one_value_once() {
    let faults =
        json!([{"function": "nvmlDeviceGetUtilizationRates", "code": 999, "until_time": 1}]);
    let mut machine = Machine::with_script(&failing(h100s(1), faults));
    let general = "hw.gpu.utilization{hw.gpu.task=general}";

    let first = gpu_readings(&machine.device().unwrap(), 0);
    machine.advance(1.0);
    let second = gpu_readings(&machine.device().unwrap(), 0);

    assert!(!first.contains_key(general) && first.contains_key("hw.power"));
    assert_eq!(second[general], 0.9);
}

#[test]
fn a_missing_permission_for_one_value_loses_only_that_value() {
    let faults = json!([{"function": "nvmlDeviceGetTotalEnergyConsumption", "code": 4}]);
    let mut machine = Machine::with_script(&failing(h100s(1), faults));

    let readings = gpu_readings(&machine.device().unwrap(), 0);

    assert!(!readings.contains_key("hw.energy") && readings.contains_key("hw.power"));
}

#[test]
fn a_counter_that_restarts_gives_no_reading() {
    let device = h100(json!({"pcie_rx": 1e9, "pcie_tx": 1e9, "pcie_wraps_at": 4_294_967_296_u64}));
    let mut machine = Machine::with_script(&json!({"devices": [device]}));
    let mut rates = Vec::new();
    for _ in 0..60 {
        machine.advance(1.0);
        let readings = gpu_readings(&machine.device().unwrap(), 0);
        rates.extend(
            readings
                .get("hw.gpu.io{network.io.direction=receive}")
                .copied(),
        );
    }

    assert!(rates.is_sorted(), "{rates:?}");
    assert!(rates.len() < 5, "{rates:?}");
}

#[test]
fn gpm_that_stops_answering_is_disabled_and_the_other_sources_continue() {
    let faults = json!([{"function": "nvmlGpmSampleGet", "code": 3, "from_time": 5}]);
    let mut machine = Machine::with_script(&failing(h100s(1), faults));
    machine.gpm().unwrap();
    machine.advance(20.0);

    let reason = disabled_reason(&machine.gpm());

    assert!(reason.contains("GPM"), "{reason}");
    assert!(!machine.device().unwrap().is_empty());
    assert_eq!(machine.fake.samples_alive(), 0);
}

#[test]
fn a_forbidden_process_list_disables_only_that_source() {
    let faults = json!([{"function": "nvmlDeviceGetComputeRunningProcesses_v3", "code": 4}]);
    let machine = Machine::with_script(&failing(h100s(1), faults));

    assert!(refusal(&machine.gpus.processes).1.contains("--pid=host"));
    assert!(machine.gpus.device.is_ok() && machine.gpus.gpm.is_ok());
}

/// Runs `work` in a forked child. Returns whether `work` returned true.
fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `work`, which calls only into this program and the fake library. No
    // other thread holds a lock of either. The child ends without unwinding or destructors.
    match unsafe { libc::fork() } {
        0 => {
            let code = i32::from(!work());
            // SAFETY: `_exit` ends the child at once and runs no code of this process.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = -1;
            // SAFETY: only this call waits for `child`, and `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status == 0
        }
    }
}

#[test]
fn a_forked_child_makes_no_call_to_the_driver() {
    let mut machine = Machine::with_script(&h100s(2));
    machine.gpm().unwrap();
    let alive = machine.fake.samples_alive();
    assert!(alive > 0);
    let Machine { fake, gpus, .. } = machine;
    let mut gpus = Some(gpus);

    let untouched = in_a_child(|| {
        drop(gpus.take());
        let path = fake.path();
        let again = headspace_collectors::gpu::Gpus::open(Some(&path), None, &RankGpu::default());
        fake.samples_alive() == alive
            && fake.inits_alive() == 1
            && again
                .device
                .is_err_and(|error| error.to_string().contains("forked"))
    });

    assert!(untouched);
    drop(gpus);
    assert_eq!(fake.samples_alive(), 0, "in the owner they are freed");
}
