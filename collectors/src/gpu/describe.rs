//! Describes the devices for the `run` record, with the number of decoders of each.
//!
//! No driver call returns the number of decoders (NVDEC) of a GPU. If the GPU supports MIG, the profile
//! of the largest slice contains it, and a slice reports its own number. Otherwise a table of common
//! models is used. For other models GPM provides the number. That takes two samples, and so a tenth of
//! a second, once.

use std::sync::Arc;

use headspace_agent::model::record::{GpuRecord, SmSource};

use super::device::Device;
use super::gpm::{Gpm, MIN_GAP, Sample, decoders};
use super::values::memory_of;

/// `NVML_GPU_INSTANCE_PROFILE_7_SLICE` and `_4_SLICE`: the largest slice of most GPUs that support
/// slices, and of the A30.
const LARGEST_PROFILES: [u32; 2] = [4, 3];

/// Decoders by a word of the product name.
///
/// H100, H200, A100 and A30 are in NVIDIA's documents (MIG user guide, Video Codec SDK support
/// matrix); the others are from the support matrix alone.
const TABLE: [(&str, u32); 8] = [
    ("H100", 7),
    ("H200", 7),
    ("A100", 5),
    ("A30", 4),
    ("L4", 4),
    ("L40S", 3),
    ("T4", 2),
    ("A10", 2),
];

/// The devices as the `run` record describes them.
pub(super) fn describe(devices: &[Arc<Device>], gpm: Option<&Gpm>) -> Vec<GpuRecord> {
    let mut counts: Vec<_> = devices
        .iter()
        .map(|device| known_decoders(device))
        .collect();
    count_by_gpm(devices, gpm, &mut counts);
    let records = devices.iter().zip(counts).map(|(device, count)| {
        let in_use = device.used();
        GpuRecord {
            ordinal: device.ordinal,
            name: device.chip.name().ok(),
            uuid: Some(device.uuid.clone()),
            mig: device.slice.as_ref().map(|slice| slice.uuid.clone()),
            driver: in_use.nvml().sys_driver_version().ok(),
            memory_bytes: memory_of(in_use).ok().map(|(_, total)| total),
            nvdec_engines: count.map(|(engines, _)| engines),
            nvdec_engines_from: count.map(|(_, from)| from.to_owned()),
            sm_source: gpm.filter(|gpm| gpm.watches(device.ordinal)).map(|_| {
                let source = if device.slice.is_some() {
                    SmSource::GpmMig
                } else {
                    SmSource::Gpm
                };
                source.as_str().to_owned()
            }),
        }
    });
    records.collect()
}

/// A number of decoders, and its source.
type Count = (u32, &'static str);

/// The number of decoders from a slice profile or from the table.
fn known_decoders(device: &Device) -> Option<Count> {
    if let Some(slice) = &device.slice {
        let attributes = slice.handle.attributes().ok()?;
        return Some((attributes.shared_decoder_count, "mig_profile"));
    }
    let of_profile = |profile: &u32| device.chip.profile_info(*profile).ok();
    let largest = LARGEST_PROFILES
        .iter()
        .filter_map(of_profile)
        .map(|profile| profile.decoder_count)
        .max()
        .filter(|&count| count > 0);
    if let Some(count) = largest {
        return Some((count, "mig_profile"));
    }
    by_name(&device.chip.name().ok()?).map(|count| (count, "table"))
}

/// The number of decoders of a common model. Matches whole words: `L4` does not match `NVIDIA L40S`.
fn by_name(name: &str) -> Option<u32> {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.find_map(|word| {
        let (_, count) = TABLE.iter().find(|(model, _)| *model == word)?;
        Some(*count)
    })
}

/// Fills in missing numbers with the number of decoders that GPM reports.
fn count_by_gpm(devices: &[Arc<Device>], gpm: Option<&Gpm>, counts: &mut [Option<Count>]) {
    let Some(gpm) = gpm else { return };
    let first: Vec<_> = devices
        .iter()
        .zip(counts.iter_mut())
        .filter(|(device, count)| count.is_none() && gpm.watches(device.ordinal))
        .filter_map(|(device, count)| Some((device, count, Sample::take(device).ok()?)))
        .collect();
    if first.is_empty() {
        return;
    }
    std::thread::sleep(MIN_GAP);
    let ids: Vec<_> = decoders().collect();
    for (device, count, before) in first {
        let answers = Sample::take(device).and_then(|after| before.until(&after, &ids));
        let engines = answers
            .unwrap_or_default()
            .iter()
            .zip(0_u32..)
            .filter(|(answer, _)| answer.is_ok())
            .count();
        *count = u32::try_from(engines)
            .ok()
            .filter(|&engines| engines > 0)
            .map(|engines| (engines, "gpm"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_whole_word_of_the_name() {
        for (name, count) in [
            ("NVIDIA H100 80GB HBM3", Some(7)),
            ("NVIDIA H200", Some(7)),
            ("NVIDIA A100-SXM4-80GB", Some(5)),
            ("NVIDIA L40S", Some(3)),
            ("NVIDIA L4", Some(4)),
            ("Tesla T4", Some(2)),
            ("NVIDIA A10", Some(2)),
            ("NVIDIA A10G", None),
            ("NVIDIA GeForce RTX 4090", None),
            ("", None),
        ] {
            assert_eq!(by_name(name), count, "{name}");
        }
    }
}
