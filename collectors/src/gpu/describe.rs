//! Describes the devices for the `run` record, with the number of decoders of each.
//!
//! No driver call returns the number of decoders (NVDEC) of a GPU. If the GPU supports MIG, the profile
//! of the largest slice contains it, and a slice reports its own number. Otherwise a table of common
//! models is used. GPM does not show the number: it answers 0 for decoders that do not exist.

use std::sync::Arc;

use headspace_agent::model::record::{GpuRecord, SmSource};

use super::device::Device;
use super::gpm::Gpm;
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
    let records = devices.iter().map(|device| {
        let count = known_decoders(device);
        let in_use = device.used();
        GpuRecord {
            ordinal: device.ordinal,
            name: device.chip.name().ok(),
            uuid: Some(device.uuid.clone()),
            mig: device.slice.as_ref().map(|slice| slice.uuid.clone()),
            driver: in_use.nvml().sys_driver_version().ok(),
            memory_bytes: memory_of(in_use).ok().map(|(_, total)| total),
            pcie_generation_max: device.chip.max_pcie_link_gen().ok(),
            pcie_width_max: device.chip.max_pcie_link_width().ok(),
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
pub(super) fn by_name(name: &str) -> Option<u32> {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.find_map(|word| {
        let (_, count) = TABLE.iter().find(|(model, _)| *model == word)?;
        Some(*count)
    })
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
