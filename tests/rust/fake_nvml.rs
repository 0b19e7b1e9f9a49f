//! Tests the fake NVML through nvml-wrapper. The tests of the GPU sources rely on it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where it fails"
)]

use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Nvml, enums::device::SampleValue};
use serde_json::json;

#[path = "fake_nvml_build.rs"]
mod fake_nvml_build;
use fake_nvml_build::FakeNvml;

fn init(fake: &FakeNvml) -> Nvml {
    try_init(fake).unwrap()
}

fn try_init(fake: &FakeNvml) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(fake.path().as_os_str()).init()
}

/// The values of these fields. `None` for a field that NVML refuses.
fn fields(device: &nvml_wrapper::Device, ids: &[u32]) -> Vec<Option<u64>> {
    let ids: Vec<_> = ids.iter().copied().map(FieldId).collect();
    device
        .field_values_for(&ids)
        .unwrap()
        .into_iter()
        .map(|sample| match sample.unwrap().value.ok()? {
            SampleValue::U64(value) => Some(value),
            SampleValue::U32(value) => Some(value.into()),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn an_empty_script_describes_one_healthy_h100() {
    let fake = FakeNvml::start(&json!({}));
    let nvml = init(&fake);

    assert_eq!(nvml.device_count().unwrap(), 1);
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(device.utilization_rates().unwrap().gpu, 90);
    assert_eq!(device.memory_info().unwrap().used, 20_000_000_000);
    assert_eq!(
        device.decoder_utilization().unwrap().sampling_period,
        167_000
    );
    assert_eq!(device.power_usage().unwrap(), 400_000);
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 55);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 1980);
    assert!(device.current_throttle_reasons().unwrap().is_empty());
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    assert_eq!(errors.unwrap(), 0);
    assert_eq!(device.profile_info(4).unwrap().decoder_count, 7);
    assert!(device.gpm_support().unwrap());
    let process = device.running_compute_processes().unwrap().remove(0);
    assert_eq!(process.pid, std::process::id());
    assert_eq!(process.used_gpu_memory, UsedGpuMemory::Used(15_000_000_000));
}

#[test]
fn a_series_changes_only_with_the_virtual_clock() {
    let fake =
        FakeNvml::start(&json!({"devices": [{"gpu_utilization": [[0, 10], [2, 70], [3, null]]}]}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    assert_eq!(device.utilization_rates().unwrap().gpu, 10);
    assert_eq!(device.utilization_rates().unwrap().gpu, 10);
    fake.advance(2.0);
    assert_eq!(device.utilization_rates().unwrap().gpu, 70);
    fake.advance(1.0);
    assert!(matches!(
        device.utilization_rates(),
        Err(NvmlError::NotSupported)
    ));
}

#[test]
fn two_fakes_in_one_process_share_no_clock() {
    let script = json!({"devices": [{"temperature": [[0, 40], [1, 50]]}]});
    let (early, late) = (FakeNvml::start(&script), FakeNvml::start(&script));
    late.advance(1.0);
    let (one, two) = (init(&early), init(&late));

    let celsius = [&one, &two].map(|nvml| {
        let device = nvml.device_by_index(0).unwrap();
        device.temperature(TemperatureSensor::Gpu).unwrap()
    });

    assert_eq!(celsius, [40, 50]);
}

#[test]
fn a_value_missing_from_the_script_is_not_supported_and_never_0() {
    let fake = FakeNvml::start(&json!({"devices": [{}]}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    for answer in [
        device.utilization_rates().map(drop),
        device.decoder_utilization().map(drop),
        device.encoder_utilization().map(drop),
        device.memory_info().map(drop),
        device.power_usage().map(drop),
        device.total_energy_consumption().map(drop),
        device.temperature(TemperatureSensor::Gpu).map(drop),
        device.clock_info(Clock::Graphics).map(drop),
        device.current_throttle_reasons().map(drop),
        device.profile_info(4).map(drop),
        device.mig_mode().map(drop),
        device.gpm_sample().map(drop),
    ] {
        assert!(matches!(answer, Err(NvmlError::NotSupported)), "{answer:?}");
    }
    assert!(!device.gpm_support().unwrap());
    assert_eq!(fields(&device, &[197, 198, 186, 138]), [None; 4]);
    assert_eq!(device.running_compute_processes().unwrap(), []);
}

#[test]
fn cumulative_fields_integrate_their_rate_and_wrap_at_the_scripted_limit() {
    let fake = FakeNvml::start(&json!({"devices": [{
        "pcie_tx": [[0, 100], [2, 1000]],
        "pcie_rx": 1e9,
        "pcie_wraps_at": 4_294_967_296_u64,
        "energy": [[0, 300], [1, 500]],
        "power_instant": 123.4,
    }]}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    fake.advance(5.0);

    assert_eq!(
        fields(&device, &[197, 198, 186]),
        [200 + 3000, 5_000_000_000 % 4_294_967_296, 123_400].map(Some)
    );
    assert_eq!(device.total_energy_consumption().unwrap(), 2_300_000);
}

#[test]
fn gpm_answers_the_mean_between_the_two_samples() {
    let fake = FakeNvml::start(&json!({"devices": [{"gpm": {
        "sm_util": [[0, 90], [2, 10]], "nvdec_3": 55, "pcie_rx": 1200
    }}]}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();
    fake.advance(1.0);
    let first = device.gpm_sample().unwrap();
    fake.advance(4.0);
    let second = device.gpm_sample().unwrap();

    let metrics = [
        GpmMetricId::SmUtil,
        GpmMetricId::Nvdec3Util,
        GpmMetricId::PcieRxPerSec,
        GpmMetricId::Nvdec4Util,
    ];
    let answers = gpm_metrics_get(&nvml, &first, &second, &metrics).unwrap();
    let values: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().ok().map(|metric| metric.value))
        .collect();

    assert_eq!(values, [Some(30.0), Some(55.0), Some(1200.0), None]);
    let units = [0, 2].map(|i| answers[i].as_ref().unwrap().metric_info.unit.as_str());
    assert_eq!(units, ["%", "MiB/s"]);
}

#[test]
fn gpm_samples_too_close_or_of_two_devices_are_refused() {
    let gpu = json!({"gpm": {"sm_util": 50}});
    let fake = FakeNvml::start(&json!({"devices": [gpu, gpu]}));
    let nvml = init(&fake);
    let [one, two] = [0, 1].map(|index| nvml.device_by_index(index).unwrap());
    let first = one.gpm_sample().unwrap();
    fake.advance(0.09);
    let early = one.gpm_sample().unwrap();
    fake.advance(0.01);
    let good = one.gpm_sample().unwrap();
    let other = two.gpm_sample().unwrap();

    let between = |second| gpm_metrics_get(&nvml, &first, second, &[GpmMetricId::SmUtil]).is_ok();

    assert_eq!([&early, &good, &other].map(between), [false, true, false]);
}

#[test]
fn samples_alive_counts_leaked_samples() {
    let fake = FakeNvml::start(&json!({}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    let kept = device.gpm_sample().unwrap();
    drop(device.gpm_sample().unwrap());
    assert_eq!(fake.samples_alive(), 1);
    let leaked = kept.into_handle();
    assert_eq!(fake.samples_alive(), 1);

    // SAFETY: the handle comes from this library, and nothing else frees it.
    unsafe { nvml_wrapper::gpm::GpmSample::from_handle(&nvml, leaked) }
        .free()
        .unwrap();
    assert_eq!(fake.samples_alive(), 0);
}

#[test]
fn inits_and_calls_are_counted_including_refused_ones() {
    let fake = FakeNvml::start(&json!({"devices": [{}]}));

    let nvml = init(&fake);
    assert_eq!(fake.inits_alive(), 1);
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.power_usage().is_err());
    assert!(device.power_usage().is_err());
    assert_eq!(fake.calls("nvmlDeviceGetPowerUsage"), 2);
    assert_eq!(fake.calls("nvmlDeviceGetName"), 0);
    drop(nvml);

    assert_eq!(fake.inits_alive(), 0);
    assert_eq!(fake.calls("nvmlShutdown"), 1);
}

#[test]
fn a_gpu_is_lost_at_its_scripted_time_and_the_other_still_answers() {
    let gpu = json!({"power": 100, "gpm": {"sm_util": 50}});
    let fake = FakeNvml::start(&json!({
        "devices": [gpu, gpu],
        "faults": [{"function": "*", "device": 0, "code": 15, "from_time": 5}],
    }));
    let nvml = init(&fake);
    let [lost, kept] = [0, 1].map(|index| nvml.device_by_index(index).unwrap());
    let first = lost.gpm_sample().unwrap();
    fake.advance(1.0);
    let second = lost.gpm_sample().unwrap();
    assert_eq!(lost.power_usage().unwrap(), 100_000);

    fake.advance(4.0);

    assert!(matches!(lost.power_usage(), Err(NvmlError::GpuLost)));
    assert!(matches!(lost.gpm_sample(), Err(NvmlError::GpuLost)));
    let metrics = gpm_metrics_get(&nvml, &first, &second, &[GpmMetricId::SmUtil]);
    assert!(matches!(metrics, Err(NvmlError::GpuLost)));
    assert_eq!(kept.power_usage().unwrap(), 100_000);
}

#[test]
fn a_fault_applies_only_to_the_calls_that_it_names() {
    let fake = FakeNvml::start(&json!({
        "devices": [{"power": 100}],
        "faults": [{"function": "nvmlDeviceGetPowerUsage", "code": 4, "from_call": 2, "until_call": 3}],
    }));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    let answers = [(); 3].map(|()| device.power_usage());

    assert!(matches!(
        answers,
        [Ok(100_000), Err(NvmlError::NoPermission), Ok(100_000)]
    ));
}

#[test]
fn init_fails_as_the_script_says() {
    let fake = FakeNvml::start(&json!({"faults": [{"function": "nvmlInit_v2", "code": 9}]}));

    assert!(matches!(try_init(&fake), Err(NvmlError::DriverNotLoaded)));
    assert_eq!(fake.inits_alive(), 0);
}

#[test]
fn a_slow_call_delays_no_other_thread() {
    let fake = FakeNvml::start(&json!({
        "faults": [{"function": "nvmlDeviceGetName", "delay_ms": 300}],
    }));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    std::thread::scope(|threads| {
        let began = Instant::now();
        let slow = threads.spawn(|| device.name().unwrap());
        while fake.calls("nvmlDeviceGetName") == 0 {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "the call never began"
            );
            std::thread::yield_now();
        }
        assert_eq!(
            nvml.device_by_index(0)
                .unwrap()
                .utilization_rates()
                .unwrap()
                .gpu,
            90
        );
        slow.join().unwrap();
        assert!(began.elapsed() >= Duration::from_millis(300));
    });
}

#[test]
fn process_samples_are_returned_once_per_timestamp() {
    let fake = FakeNvml::start(&json!({"devices": [{"processes": [
        {"pid": 10, "sm": 60, "dec": 20, "until": 2},
        {"pid": 11, "sm": 30, "from": 1},
        {"pid": 12, "memory": 5},
    ]}]}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();
    let samples_since = |since: u64| {
        let samples = device.process_utilization_stats(since).ok()?;
        Some(
            samples
                .iter()
                .map(|s| (s.pid, s.sm_util))
                .collect::<Vec<_>>(),
        )
    };

    assert_eq!(samples_since(0), Some(vec![(10, 60)]));
    assert_eq!(samples_since(1_000_000), None);
    fake.advance(1.0);
    assert_eq!(samples_since(1_000_000), Some(vec![(10, 60), (11, 30)]));
    fake.advance(1.0);
    assert_eq!(samples_since(0), Some(vec![(11, 30)]));
    let pids: Vec<_> = device
        .running_compute_processes()
        .unwrap()
        .iter()
        .map(|process| process.pid)
        .collect();
    assert_eq!(pids, [11, 12]);
}

#[test]
fn a_mig_gpu_answers_only_through_its_mig_devices_and_gpm() {
    let fake = FakeNvml::start(&json!({"devices": [{
        "gpu_utilization": 90, "decoder_utilization": 50, "memory_used": 1,
        "processes": [{"pid": 7, "mig": 1, "memory": 9, "sm": 10}],
        "mig": {"enabled": true, "max": 7, "devices": [
            {"uuid": "MIG-a", "gpu_instance": 3, "gpm": {"sm_util": 20}},
            {"uuid": "MIG-b", "gpu_instance": 5, "memory_total": 100, "memory_used": 40,
             "gpm": {"sm_util": 80, "nvdec_0": 10}},
        ]},
    }]}));
    let nvml = init(&fake);
    let gpu = nvml.device_by_index(0).unwrap();

    assert_eq!(gpu.mig_mode().unwrap().current, 1);
    assert!(matches!(
        gpu.utilization_rates(),
        Err(NvmlError::NotSupported)
    ));
    assert!(matches!(
        gpu.decoder_utilization(),
        Err(NvmlError::NotSupported)
    ));
    assert!(gpu.process_utilization_stats(None).is_err());
    assert!(matches!(
        gpu.mig_device_by_index(2),
        Err(NvmlError::NotFound)
    ));

    let part = nvml.device_by_uuid("MIG-b").unwrap();
    assert_eq!(
        part.uuid().unwrap(),
        gpu.mig_device_by_index(1).unwrap().uuid().unwrap()
    );
    assert_eq!(part.memory_info().unwrap().used, 40);
    assert_eq!(part.running_compute_processes().unwrap()[0].pid, 7);
    assert_eq!(
        part.mig_parent_device().unwrap().uuid().unwrap(),
        gpu.uuid().unwrap()
    );
    assert!(part.utilization_rates().is_err());

    assert!(gpu.gpm_support().unwrap());
    assert!(matches!(gpu.gpm_mig_sample(4), Err(NvmlError::NotFound)));
    let first = gpu.gpm_mig_sample(5).unwrap();
    fake.advance(1.0);
    let second = gpu.gpm_mig_sample(5).unwrap();
    let metrics = gpm_metrics_get(&nvml, &first, &second, &[GpmMetricId::SmUtil]).unwrap();
    assert!((metrics[0].as_ref().unwrap().value - 80.0).abs() < 1e-9);
}

#[test]
fn an_old_driver_initialises_and_lacks_newer_functions() {
    let fake = FakeNvml::start_old_driver(&json!({}));
    let nvml = init(&fake);
    let device = nvml.device_by_index(0).unwrap();

    assert_eq!(device.utilization_rates().unwrap().gpu, 90);
    assert_eq!(device.power_usage().unwrap(), 400_000);
    for answer in [
        device.gpm_support().map(drop),
        device.gpm_sample().map(drop),
        device.memory_info().map(drop),
        device.running_compute_processes().map(drop),
        device.field_values_for(&[FieldId(197)]).map(drop),
        device.mig_mode().map(drop),
        device.profile_info(4).map(drop),
    ] {
        assert!(
            matches!(answer, Err(NvmlError::FailedToLoadSymbol(_))),
            "{answer:?}"
        );
    }
    assert!(nvml.lib().nvmlDeviceGetMemoryInfo.is_ok());
}
