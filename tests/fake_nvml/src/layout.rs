//! The struct layouts and constants that this library takes from nvml-wrapper.
//!
//! `tests/python/test_fake_nvml.py` compares them with NVIDIA's header.

use std::ffi::{CStr, CString};
use std::mem::offset_of;
use std::sync::LazyLock;

use nvml_wrapper_sys::bindings::{self as sys, field_id};
use serde_json::{Map, Value, json};

/// Size and field offsets of the given structs:
/// `{"nvmlMemory_t": {"size": 24, "fields": {"total": 0, ..}}, ..}`.
macro_rules! structs {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {{
        let mut all = Map::new();
        $(
            let mut fields = Map::new();
            $(fields.insert(stringify!($field).to_owned(), json!(offset_of!(sys::$name, $field)));)+
            all.insert(
                stringify!($name).to_owned(),
                json!({"size": size_of::<sys::$name>(), "fields": fields}),
            );
        )+
        Value::Object(all)
    }};
}

static JSON: LazyLock<CString> = LazyLock::new(|| {
    let all = json!({"structs": layouts(), "numbers": numbers()});
    CString::new(all.to_string()).unwrap_or_default()
});

/// All layouts and constants, as JSON.
pub(crate) fn json() -> &'static CStr {
    &JSON
}

fn layouts() -> Value {
    structs! {
        nvmlUtilization_t { gpu, memory }
        nvmlMemory_t { total, free, used }
        nvmlMemory_v2_t { version, total, reserved, free, used }
        nvmlProcessInfo_v2_t { pid, usedGpuMemory, gpuInstanceId, computeInstanceId }
        nvmlProcessUtilizationSample_t { pid, timeStamp, smUtil, memUtil, encUtil, decUtil }
        nvmlProcessUtilizationInfo_v1_t {
            timeStamp, pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil
        }
        nvmlProcessesUtilizationInfo_v1_t {
            version, processSamplesCount, lastSeenTimeStamp, procUtilArray
        }
        nvmlValue_t { dVal, siVal, uiVal, ulVal, ullVal, sllVal, usVal }
        nvmlFieldValue_t {
            fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
        }
        nvmlTemperature_v1_t { version, sensorType, temperature }
        nvmlDeviceAttributes_t {
            multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
            sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount,
            memorySizeMB
        }
        nvmlGpuInstancePlacement_t { start, size }
        nvmlGpuInstanceInfo_t { device, id, profileId, placement }
        nvmlGpuInstanceProfileInfo_t {
            id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
            decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB
        }
        nvmlGpuInstanceProfileInfo_v2_t {
            version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount,
            copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB, name
        }
        nvmlGpuInstanceProfileInfo_v3_t {
            version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
            decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB, name, capabilities
        }
        nvmlGpmSupport_t { version, isSupportedDevice }
        nvmlGpmMetric_t { metricId, nvmlReturn, value, metricInfo }
        nvmlGpmMetricsGet_t { version, numMetrics, sample1, sample2, metrics }
    }
}

const NUMBERS: &[(&str, u32)] = &[
    ("NVML_ERROR_UNINITIALIZED", crate::code::UNINITIALIZED.0),
    (
        "NVML_ERROR_INVALID_ARGUMENT",
        crate::code::INVALID_ARGUMENT.0,
    ),
    ("NVML_ERROR_NOT_SUPPORTED", crate::code::NOT_SUPPORTED.0),
    (
        "NVML_ERROR_NO_PERMISSION",
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
    ),
    ("NVML_ERROR_NOT_FOUND", crate::code::NOT_FOUND.0),
    (
        "NVML_ERROR_INSUFFICIENT_SIZE",
        crate::code::INSUFFICIENT_SIZE.0,
    ),
    (
        "NVML_ERROR_GPU_IS_LOST",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
    ),
    (
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        crate::code::VERSION_MISMATCH.0,
    ),
    ("NVML_ERROR_UNKNOWN", crate::code::UNKNOWN.0),
    ("NVML_DEVICE_ARCH_AMPERE", sys::NVML_DEVICE_ARCH_AMPERE),
    ("NVML_DEVICE_ARCH_ADA", sys::NVML_DEVICE_ARCH_ADA),
    ("NVML_DEVICE_ARCH_HOPPER", sys::NVML_DEVICE_ARCH_HOPPER),
    (
        "NVML_DEVICE_ARCH_BLACKWELL",
        sys::NVML_DEVICE_ARCH_BLACKWELL,
    ),
    (
        "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    ),
    (
        "NVML_FI_DEV_POWER_AVERAGE",
        field_id::NVML_FI_DEV_POWER_AVERAGE,
    ),
    (
        "NVML_FI_DEV_POWER_INSTANT",
        field_id::NVML_FI_DEV_POWER_INSTANT,
    ),
    (
        "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
        field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    ),
    (
        "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
        field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    ),
    ("NVML_CLOCK_SM", sys::nvmlClockType_enum_NVML_CLOCK_SM),
    ("NVML_CLOCK_MEM", sys::nvmlClockType_enum_NVML_CLOCK_MEM),
    ("NVML_CLOCK_VIDEO", sys::nvmlClockType_enum_NVML_CLOCK_VIDEO),
    (
        "NVML_GPM_METRICS_GET_VERSION",
        sys::NVML_GPM_METRICS_GET_VERSION,
    ),
    ("NVML_GPM_SUPPORT_VERSION", sys::NVML_GPM_SUPPORT_VERSION),
];

/// The constants, under their names in the header.
fn numbers() -> Value {
    let gpm = |name: &str| crate::gpm_metrics::id_of(name);
    let mut all = Map::new();
    let mut add = |name: String, value: Option<u32>| all.insert(name, json!(value));
    for (name, value) in NUMBERS {
        add((*name).to_owned(), Some(*value));
    }
    for (header, name) in [
        ("GRAPHICS_UTIL", "graphics_util"),
        ("SM_UTIL", "sm_util"),
        ("SM_OCCUPANCY", "sm_occupancy"),
        ("INTEGER_UTIL", "integer_util"),
        ("ANY_TENSOR_UTIL", "any_tensor_util"),
        ("DRAM_BW_UTIL", "dram_bw_util"),
        ("PCIE_TX_PER_SEC", "pcie_tx"),
        ("PCIE_RX_PER_SEC", "pcie_rx"),
        ("NVLINK_TOTAL_RX_PER_SEC", "nvlink_total_rx"),
        ("NVLINK_TOTAL_TX_PER_SEC", "nvlink_total_tx"),
    ] {
        add(format!("NVML_GPM_METRIC_{header}"), gpm(name));
    }
    for engine in 0..8 {
        for kind in ["NVDEC", "NVJPG", "NVOFA"] {
            let id = gpm(&format!("{}_{engine}", kind.to_lowercase()));
            if id.is_some() {
                add(format!("NVML_GPM_METRIC_{kind}_{engine}_UTIL"), id);
            }
        }
    }
    Value::Object(all)
}
