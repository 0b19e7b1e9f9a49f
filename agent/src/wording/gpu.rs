//! Labels of a GPU's activity, and the rule that determines the GPU of a rank.

use crate::model::GpuActivity;
use crate::model::record::{GpuRule, PcieLink};

/// Share of time in which at least one kernel or copy was running (GPU-Util of `nvidia-smi`).
pub const GPU_BUSY: &str = "GPU busy";

/// The label of an activity: `GPU busy`, `NVDEC 0`.
pub fn activity_label(activity: GpuActivity<'_>) -> String {
    match activity {
        GpuActivity::Sms => "SMs".to_owned(),
        GpuActivity::AnyKernel => GPU_BUSY.to_owned(),
        GpuActivity::AllDecoders => "all decoders".to_owned(),
        GpuActivity::AllEncoders => "all encoders".to_owned(),
        GpuActivity::Decoder(number) => format!("NVDEC {number}"),
        GpuActivity::Engine(name) => {
            let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = name.strip_prefix(kind).unwrap_or_default();
            let label = format!("{} {number}", kind.to_uppercase());
            label.trim_end().to_owned()
        }
    }
}

/// A `PCIe` link.
pub(super) fn pcie_link(link: PcieLink) -> String {
    format!("generation {} x{}", link.generation, link.width)
}

/// The rule that determined the GPU of a rank, after `by`.
pub(super) fn rule_text(rule: GpuRule) -> &'static str {
    match rule {
        GpuRule::LocalRank => "LOCAL_RANK",
        GpuRule::OwnMemory => "this process's memory",
        GpuRule::TorchCurrentDevice => "torch's current device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_labelled_by_its_kind_and_number() {
        for (activity, label) in [
            (GpuActivity::Decoder(0), "NVDEC 0"),
            (GpuActivity::Engine("nvjpg12"), "NVJPG 12"),
            (GpuActivity::Engine("ofa"), "OFA"),
        ] {
            assert_eq!(activity_label(activity), label);
        }
    }
}
