//! The GPM metrics: their ids, and their names in a script.

use std::ffi::CStr;

/// For each metric: its name in a script, its id, and its name in NVML's answer.
const NAMED: &[(&str, u32, &CStr)] = &[
    ("graphics_util", 1, c"Graphics Util"),
    ("sm_util", 2, c"SM Util"),
    ("sm_occupancy", 3, c"SM Occupancy"),
    ("integer_util", 4, c"Integer Util"),
    ("any_tensor_util", 5, c"Any Tensor Util"),
    ("dram_bw_util", 10, c"DRAM BW Util"),
    ("pcie_tx", 20, c"PCIe TX"),
    ("pcie_rx", 21, c"PCIe RX"),
    ("nvlink_total_rx", 60, c"NVLink RX"),
    ("nvlink_total_tx", 61, c"NVLink TX"),
];

/// Engines that occur several times: name prefix in a script, id of the first, number of ids.
const NUMBERED: &[(&str, u32, u32)] = &[("nvdec_", 30, 8), ("nvjpg_", 40, 8), ("nvofa_", 50, 2)];

/// The id of a metric that a script gives by name or by id.
pub(crate) fn id_of(key: &str) -> Option<u32> {
    if let Ok(id) = key.parse() {
        return Some(id);
    }
    if let Some((_, id, _)) = NAMED.iter().find(|(name, ..)| *name == key) {
        return Some(*id);
    }
    NUMBERED.iter().find_map(|(prefix, first, count)| {
        let index: u32 = key.strip_prefix(prefix)?.parse().ok()?;
        (index < *count).then_some(first + index)
    })
}

/// NVML's name for a metric, if it is in the table.
pub(crate) fn name_of(id: u32) -> Option<&'static CStr> {
    NAMED
        .iter()
        .find_map(|(_, known, name)| (*known == id).then_some(*name))
}

/// The unit of a metric: MiB/s for `PCIe` and `NVLink`, percent for all others.
pub(crate) fn unit_of(id: u32) -> &'static CStr {
    match id {
        20 | 21 | 60.. => c"MiB/s",
        _ => c"%",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_name_has_an_index_up_to_the_last_engine() {
        assert_eq!(id_of("nvdec_0"), Some(30));
        assert_eq!(id_of("nvjpg_7"), Some(47));
        assert_eq!(id_of("nvofa_2"), None);
        assert_eq!(id_of("61"), Some(61));
        assert_eq!(id_of("sm"), None);
    }
}
