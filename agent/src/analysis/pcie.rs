//! How many bytes a `PCIe` link carries.

use crate::model::record::{GpuUse, PcieLink};

/// Transfers per second of a lane, in each direction, by generation, from the first one; and the share of the bits that are
/// data. Source: PCI Express Base Specification 6.0, sections 4.2 and 8.3: 8b/10b encoding in the first two generations,
/// 128b/130b in the next three, and flits from the sixth on, of which 14 of 256 bytes are checksum and error correction.
const LANES: [(f64, f64); 6] = [
    (2.5e9, 8.0 / 10.0),
    (5e9, 8.0 / 10.0),
    (8e9, 128.0 / 130.0),
    (16e9, 128.0 / 130.0),
    (32e9, 128.0 / 130.0),
    (64e9, 242.0 / 256.0),
];

/// Bytes per second that a link carries in one direction, with the headers of packets. `None` for an unknown generation.
pub(super) fn bytes_per_s(link: PcieLink) -> Option<f64> {
    let before = usize::try_from(link.generation.checked_sub(1)?).ok()?;
    let (transfers, data) = LANES.get(before)?;
    (link.width > 0).then_some(f64::from(link.width) * transfers * data / 8.0)
}

/// Share of the link that is in use, in the busier direction.
pub(super) fn used_share(gpu: &GpuUse) -> Option<f64> {
    let directions = [gpu.pcie_receive_bytes_per_s, gpu.pcie_transmit_bytes_per_s];
    let busier = directions.into_iter().flatten().reduce(f64::max)?;
    Some((busier / bytes_per_s(gpu.pcie_link?)?).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gigabytes(generation: u32, width: u32) -> Option<f64> {
        Some(bytes_per_s(PcieLink { generation, width })? / 1e9)
    }

    #[test]
    fn a_link_carries_what_its_lanes_and_encoding_allow() {
        for (generation, width, expected) in [
            (1, 16, 4.0),
            (2, 8, 4.0),
            (3, 16, 15.754),
            (4, 16, 31.508),
            (5, 16, 63.015),
            (6, 16, 121.0),
        ] {
            let found = gigabytes(generation, width).unwrap();
            assert!((found - expected).abs() < 1e-3, "{generation}: {found}");
        }
        assert_eq!(gigabytes(0, 16), None);
        assert_eq!(gigabytes(7, 16), None);
        assert_eq!(gigabytes(4, 0), None);
    }

    #[test]
    fn the_busier_direction_counts() {
        let gpu = GpuUse {
            pcie_receive_bytes_per_s: Some(2e9),
            pcie_transmit_bytes_per_s: Some(3e9),
            pcie_link: Some(PcieLink {
                generation: 1,
                width: 16,
            }),
            ..GpuUse::default()
        };

        assert!((used_share(&gpu).unwrap() - 0.75).abs() < 1e-9);
        let unknown = GpuUse {
            pcie_link: None,
            ..gpu
        };
        assert_eq!(used_share(&unknown), None);
    }
}
