//! The parts of a GPU whose activity is measured.

use super::attributes::{GPU_DECODER, GPU_ENCODER, GPU_GENERAL};
use super::metric::{GPU_ENGINE_UTILIZATION, GPU_SM_UTILIZATION, GPU_UTILIZATION};
use super::reading::ReadingKey;

/// What the reading of a GPU's activity is a share of, in the order in which outputs list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuActivity<'a> {
    /// Busy SMs, of all SMs.
    Sms,
    /// Time in which at least one kernel was running. It does not show how many SMs were busy.
    AnyKernel,
    /// Utilisation of all decoders together.
    AllDecoders,
    /// Utilisation of all encoders together.
    AllEncoders,
    /// Utilisation of the decoder (NVDEC) with this number.
    Decoder(u32),
    /// Utilisation of another engine, by its name, such as `nvjpg0`.
    Engine(&'a str),
}

impl<'a> GpuActivity<'a> {
    /// The activity that a reading measures. `None` if it measures another one, or something else.
    pub fn from_key(key: &'a ReadingKey<'_>) -> Option<Self> {
        if *key.metric == GPU_SM_UTILIZATION {
            Some(Self::Sms)
        } else if *key.metric == GPU_ENGINE_UTILIZATION {
            key.attribute("engine").map(Self::of_engine)
        } else if *key.metric == GPU_UTILIZATION {
            let tasks = [
                (GPU_GENERAL, Self::AnyKernel),
                (GPU_DECODER, Self::AllDecoders),
                (GPU_ENCODER, Self::AllEncoders),
            ];
            let found = tasks.iter().find(|(task, _)| key.has_attributes(task));
            found.map(|(_, activity)| *activity)
        } else {
            None
        }
    }

    /// The activity of the engine with this name.
    pub fn of_engine(name: &'a str) -> Self {
        let decoder = name.strip_prefix("nvdec").and_then(|n| n.parse().ok());
        decoder.map_or(Self::Engine(name), Self::Decoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Scope;

    #[test]
    fn the_key_of_a_reading_determines_the_activity() {
        for (key, activity) in [
            (
                "headspace.gpu.sm.utilization{source=gpm}",
                Some(GpuActivity::Sms),
            ),
            (
                "hw.gpu.utilization{hw.gpu.task=general}",
                Some(GpuActivity::AnyKernel),
            ),
            (
                "hw.gpu.utilization{hw.gpu.task=decoder}",
                Some(GpuActivity::AllDecoders),
            ),
            (
                "hw.gpu.utilization{hw.gpu.task=encoder}",
                Some(GpuActivity::AllEncoders),
            ),
            ("hw.gpu.utilization{hw.gpu.task=jpeg}", None),
            (
                "headspace.gpu.engine.utilization{engine=nvdec6}",
                Some(GpuActivity::Decoder(6)),
            ),
            (
                "headspace.gpu.engine.utilization{engine=nvjpg0}",
                Some(GpuActivity::Engine("nvjpg0")),
            ),
            ("headspace.gpu.sampling.period{hw.gpu.task=decoder}", None),
        ] {
            let parsed = ReadingKey::parse(&Scope::Gpu(0), key).unwrap();
            assert_eq!(GpuActivity::from_key(&parsed), activity, "{key}");
        }
    }
}
