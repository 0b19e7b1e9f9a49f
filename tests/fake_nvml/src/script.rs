//! The script: the values and faults that the library returns. README.md describes its format.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::gpm_metrics;
use crate::series::Series;

/// GPM metrics by NVML's id.
pub(crate) type Gpm = BTreeMap<u32, Series>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Script {
    pub(crate) clock: ClockKind,
    pub(crate) driver: String,
    pub(crate) nvml: String,
    /// 13000 for CUDA 13.0.
    pub(crate) cuda: i32,
    pub(crate) devices: Vec<Gpu>,
    pub(crate) faults: Vec<Fault>,
}

impl Default for Script {
    fn default() -> Self {
        let healthy = serde_json::from_str(include_str!("healthy_h100.json"));
        Self {
            clock: ClockKind::Virtual,
            driver: "580.95.05".to_owned(),
            nvml: "13.580.95.05".to_owned(),
            cuda: 13_000,
            devices: healthy.into_iter().collect(),
            faults: Vec::new(),
        }
    }
}

/// What moves the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockKind {
    /// Only `fake_nvml_advance`.
    Virtual,
    /// The time of the machine, plus the time added by `fake_nvml_advance`.
    Real,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    /// If absent, the library derives it from the index.
    pub(crate) uuid: Option<String>,
    #[serde(deserialize_with = "architecture")]
    pub(crate) architecture: c_uint,
    /// Bytes.
    pub(crate) memory_total: u64,
    /// Bytes.
    pub(crate) memory_reserved: u64,
    /// Bytes.
    pub(crate) memory_used: Option<Series>,
    // Percent.
    #[serde(rename = "gpu_utilization")]
    pub(crate) utilization: Option<Series>,
    pub(crate) memory_utilization: Option<Series>,
    pub(crate) decoder_utilization: Option<Series>,
    pub(crate) encoder_utilization: Option<Series>,
    pub(crate) jpg_utilization: Option<Series>,
    pub(crate) ofa_utilization: Option<Series>,
    /// Microseconds.
    pub(crate) sampling_period_us: c_uint,
    // Bytes per second.
    pub(crate) pcie_tx: Option<Series>,
    pub(crate) pcie_rx: Option<Series>,
    /// Bytes.
    pub(crate) pcie_wraps_at: Option<u64>,
    pub(crate) pcie_generation: Option<Series>,
    /// Lanes.
    pub(crate) pcie_width: Option<Series>,
    pub(crate) pcie_generation_max: Option<Series>,
    /// Lanes.
    pub(crate) pcie_width_max: Option<Series>,
    // Watts.
    pub(crate) power: Option<Series>,
    pub(crate) power_instant: Option<Series>,
    pub(crate) energy: Option<Series>,
    /// Degrees Celsius.
    pub(crate) temperature: Option<Series>,
    // MHz.
    pub(crate) clock_graphics: Option<Series>,
    pub(crate) clock_sm: Option<Series>,
    pub(crate) clock_memory: Option<Series>,
    pub(crate) clock_video: Option<Series>,
    /// NVML's bit mask.
    pub(crate) throttle_reasons: Option<Series>,
    pub(crate) ecc: Ecc,
    #[serde(deserialize_with = "gpm")]
    pub(crate) gpm: Option<Gpm>,
    pub(crate) processes: Vec<Process>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) mig: Option<Mig>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            uuid: None,
            architecture: sys::NVML_DEVICE_ARCH_HOPPER,
            memory_total: 80 << 30,
            memory_reserved: 0,
            memory_used: None,
            utilization: None,
            memory_utilization: None,
            decoder_utilization: None,
            encoder_utilization: None,
            jpg_utilization: None,
            ofa_utilization: None,
            sampling_period_us: 167_000,
            pcie_tx: None,
            pcie_rx: None,
            pcie_wraps_at: None,
            pcie_generation: None,
            pcie_width: None,
            pcie_generation_max: None,
            pcie_width_max: None,
            power: None,
            power_instant: None,
            energy: None,
            temperature: None,
            clock_graphics: None,
            clock_sm: None,
            clock_memory: None,
            clock_video: None,
            throttle_reasons: None,
            ecc: Ecc::default(),
            gpm: None,
            processes: Vec::new(),
            profiles: Vec::new(),
            mig: None,
        }
    }
}

/// Numbers of memory errors.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ecc {
    pub(crate) corrected_volatile: Option<Series>,
    pub(crate) uncorrected_volatile: Option<Series>,
    pub(crate) corrected_aggregate: Option<Series>,
    pub(crate) uncorrected_aggregate: Option<Series>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// Bytes.
    #[serde(default)]
    pub(crate) memory: Option<Series>,
    #[serde(default)]
    pub(crate) kind: ProcessKind,
    // Percent.
    pub(crate) sm: Option<Series>,
    pub(crate) mem: Option<Series>,
    pub(crate) enc: Option<Series>,
    pub(crate) dec: Option<Series>,
    pub(crate) jpg: Option<Series>,
    pub(crate) ofa: Option<Series>,
    // Seconds.
    pub(crate) from: Option<f64>,
    pub(crate) until: Option<f64>,
    /// Index of the MIG device it runs on.
    pub(crate) mig: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Pid {
    Number(u32),
    Named(PidName),
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) enum PidName {
    /// The process that loaded the library.
    #[serde(rename = "self")]
    Loader,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessKind {
    #[default]
    Compute,
    Graphics,
    Mps,
}

/// A MIG profile: how much of each GPU resource it has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// NVML's number of the profile.
    #[serde(rename = "profile")]
    pub(crate) number: c_uint,
    #[serde(default)]
    pub(crate) slices: c_uint,
    #[serde(default)]
    pub(crate) sms: c_uint,
    #[serde(default)]
    pub(crate) copy_engines: c_uint,
    #[serde(default)]
    pub(crate) decoders: c_uint,
    #[serde(default)]
    pub(crate) encoders: c_uint,
    #[serde(default)]
    pub(crate) jpegs: c_uint,
    #[serde(default)]
    pub(crate) ofas: c_uint,
    #[serde(default)]
    pub(crate) memory_mb: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mig {
    pub(crate) enabled: bool,
    #[serde(default = "seven")]
    pub(crate) max: c_uint,
    #[serde(default)]
    pub(crate) devices: Vec<MigDevice>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigDevice {
    pub(crate) uuid: String,
    pub(crate) gpu_instance: c_uint,
    #[serde(default)]
    pub(crate) compute_instance: c_uint,
    /// NVML's number of the profile.
    #[serde(default)]
    pub(crate) profile: c_uint,
    /// Bytes.
    #[serde(default)]
    pub(crate) memory_total: u64,
    pub(crate) memory_used: Option<Series>,
    #[serde(default, deserialize_with = "gpm")]
    pub(crate) gpm: Option<Gpm>,
}

/// An error or a delay that the script injects into calls.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// NVML's name, or `*`.
    pub(crate) function: String,
    pub(crate) code: Option<c_uint>,
    /// Real milliseconds.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    pub(crate) device: Option<usize>,
    // Seconds.
    pub(crate) from_time: Option<f64>,
    pub(crate) until_time: Option<f64>,
    // Numbers of calls. The first call is 1.
    pub(crate) from_call: Option<u64>,
    pub(crate) until_call: Option<u64>,
}

fn seven() -> c_uint {
    7
}

fn architecture<'de, D: Deserializer<'de>>(from: D) -> Result<c_uint, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(c_uint),
        Name(String),
    }
    let name = match Written::deserialize(from)? {
        Written::Number(number) => return Ok(number),
        Written::Name(name) => name,
    };
    match name.as_str() {
        "kepler" => Ok(sys::NVML_DEVICE_ARCH_KEPLER),
        "maxwell" => Ok(sys::NVML_DEVICE_ARCH_MAXWELL),
        "pascal" => Ok(sys::NVML_DEVICE_ARCH_PASCAL),
        "volta" => Ok(sys::NVML_DEVICE_ARCH_VOLTA),
        "turing" => Ok(sys::NVML_DEVICE_ARCH_TURING),
        "ampere" => Ok(sys::NVML_DEVICE_ARCH_AMPERE),
        "ada" => Ok(sys::NVML_DEVICE_ARCH_ADA),
        "hopper" => Ok(sys::NVML_DEVICE_ARCH_HOPPER),
        "blackwell" => Ok(sys::NVML_DEVICE_ARCH_BLACKWELL),
        other => Err(D::Error::custom(format!(
            "no architecture is called `{other}`"
        ))),
    }
}

fn gpm<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Gpm>, D::Error> {
    let written = Option::<BTreeMap<String, Series>>::deserialize(from)?;
    let Some(written) = written else {
        return Ok(None);
    };
    written
        .into_iter()
        .map(|(key, series)| {
            let id = gpm_metrics::id_of(&key)
                .ok_or_else(|| D::Error::custom(format!("no GPM metric is called `{key}`")))?;
            Ok((id, series))
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_script_describes_one_healthy_h100() {
        let script: Script = serde_json::from_str("{}").unwrap();

        assert_eq!(script.devices.len(), 1);
        assert_eq!(
            script.devices[0].gpm.as_ref().map(Gpm::len),
            Some(8 + 7 + 7 + 1)
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_name() {
        for (json, named) in [
            (
                r#"{"devices": [{"gpu_utilisation": 1}]}"#,
                "gpu_utilisation",
            ),
            (r#"{"devices": [{"gpm": {"sm": 1}}]}"#, "`sm`"),
            (r#"{"devices": [{"architecture": "tesla"}]}"#, "`tesla`"),
            (r#"{"faults": [{"function": "*", "kode": 1}]}"#, "kode"),
        ] {
            let error = serde_json::from_str::<Script>(json).unwrap_err();

            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
