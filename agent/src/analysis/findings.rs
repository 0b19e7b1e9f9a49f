//! Lists notable facts about a run: its resources, its probe, its stages.
//!
//! A finding is a measurement above a threshold, from which it can affect the step time. Attribution
//! determines which stage a finding slows and what a remedy would gain.

use super::floor::{FloorWarning, NoFloor, NoHeadspace};
use super::pcie;
use super::thresholds::Thresholds;
use super::thresholds::findings::{
    DECODERS_BUSY_PCT, IO_PRESSURE_PCT, MEMORY_ERRORS, MEMORY_PRESSURE_PCT, OTHERS_MEMORY_PCT,
    REDUCED_CLOCKS_PCT, SLOW_LINK_SHARE, SLOW_LINK_USE,
};
use crate::model::InterventionKind;
use crate::model::record::{
    Estimate, FindingCode, GpuUse, GrowthCause, MemoryGrowthRecord, MemoryScope, PcieLink,
    ResourcesRecord, ThrottleReason,
};

/// A notable fact. Percentages are shares of time if not stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// The CPU quota ran out.
    CpuThrottled {
        /// Share of the quota's periods.
        pct: f64,
        /// Cores that the quota allows.
        cores: Option<f64>,
    },
    /// The training thread waited for a core.
    Oversubscribed {
        /// Share of time.
        pct: f64,
        /// Mean number of runnable threads, and cores.
        threads_and_cores: Option<(f64, f64)>,
    },
    /// Threads waited for Python's interpreter lock.
    GilContended {
        /// Mean wait.
        wait_ms: f64,
    },
    /// Python's garbage collector stopped the process.
    GcPauses {
        /// Share of time.
        pct: f64,
        /// The longest pause.
        longest_ms: Option<f64>,
    },
    /// A task waited for storage.
    IoPressure {
        /// Share of time.
        pct: f64,
    },
    /// A task waited for memory.
    MemoryPressure {
        /// Share of time.
        pct: f64,
    },
    /// Memory grows with the steps.
    MemoryGrows {
        /// Bytes per step.
        growth: Estimate,
        /// The processes whose memory grows.
        scope: MemoryScope,
        /// What makes it grow, if that is known.
        cause: Option<Box<MemoryGrowthRecord>>,
    },
    /// A notable fact about a GPU.
    Gpu {
        /// The process's number of the GPU.
        ordinal: u32,
        /// The fact.
        finding: GpuFinding,
    },
    /// The step time kept changing.
    NoSteadyState {
        /// Steps after which it last changed.
        changed: usize,
        /// Steps of the run, and the steps that would be enough, if more steps would help.
        enough: Option<(u64, usize)>,
    },
    /// Several ranks each load and prepare all samples, and keep only their part of them.
    SameSamples {
        /// Number of ranks.
        ranks: u32,
    },
    /// The worker processes of a loader all load the same batches.
    SameBatchesInWorkers {
        /// Number of worker processes.
        workers: u32,
    },
    /// The samples are split among the ranks twice, so that most are never used.
    SplitTwice,
    /// The loop changed cached batches in place.
    BatchesMutated {
        /// Number of changed batches.
        mutated: u32,
        /// Number of cached batches.
        cached: u32,
    },
    /// The probe gave no number.
    NoHeadspace {
        /// The reason.
        reason: NoHeadspace,
    },
    /// The steps of a what-if without a wait do not show the floor.
    NoFloorInWhatIf {
        /// The reason.
        reason: NoFloor,
    },
    /// A what-if measured another bottleneck than the model found.
    WhatIfDisagrees {
        /// The stage that the model names.
        modelled: String,
        /// The stage that gains most if it is free.
        measured: String,
    },
    /// The model predicts another step than a what-if measured.
    ModelDisagrees {
        /// The stage that was changed.
        stage: String,
        /// How it was changed.
        intervention: InterventionKind,
        /// Step with the change by the model, in milliseconds.
        modelled_ms: f64,
        /// Measured step with the change, in milliseconds.
        measured_ms: f64,
    },
    /// The probe's number is less certain than its steps alone say.
    UnsteadyProbe {
        /// The reasons. At least one.
        warnings: Vec<FloorWarning>,
    },
    /// Calls of a stage ended in exceptions.
    CallsFail {
        /// The stage.
        stage: String,
        /// Number of failed calls.
        failures: u64,
        /// Number of calls.
        calls: u64,
    },
}

/// A notable fact about a GPU.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuFinding {
    /// All its video decoders are busy.
    DecodersBusy {
        /// Number of decoders.
        engines: u32,
        /// Mean utilization of the decoders.
        pct: f64,
    },
    /// Its clocks were reduced.
    Throttled {
        /// Share of time.
        pct: f64,
        /// The cause.
        by: ThrottleReason,
    },
    /// Memory errors that could not be corrected.
    MemoryErrors {
        /// Number of errors.
        errors: f64,
    },
    /// Its `PCIe` link is slower than GPU and machine allow.
    SlowLink {
        /// The link in use.
        link: PcieLink,
        /// The fastest one.
        max: PcieLink,
        /// Share of the link that is in use.
        used: f64,
    },
    /// Other processes hold some of its memory.
    Shared {
        /// Share of the memory in use.
        pct: f64,
    },
}

impl Finding {
    /// Stable name for programs.
    pub fn code(&self) -> FindingCode {
        match self {
            Self::CpuThrottled { .. } => FindingCode::CpuThrottled,
            Self::Oversubscribed { .. } => FindingCode::Oversubscribed,
            Self::GilContended { .. } => FindingCode::GilContended,
            Self::GcPauses { .. } => FindingCode::GcPauses,
            Self::IoPressure { .. } => FindingCode::IoPressure,
            Self::MemoryPressure { .. } => FindingCode::MemoryPressure,
            Self::MemoryGrows { .. } => FindingCode::MemoryGrows,
            Self::Gpu { finding, .. } => match finding {
                GpuFinding::DecodersBusy { .. } => FindingCode::DecodersBusy,
                GpuFinding::Throttled { .. } => FindingCode::GpuThrottled,
                GpuFinding::MemoryErrors { .. } => FindingCode::GpuMemoryErrors,
                GpuFinding::SlowLink { .. } => FindingCode::GpuSlowLink,
                GpuFinding::Shared { .. } => FindingCode::GpuShared,
            },
            Self::NoSteadyState { .. } => FindingCode::NoSteadyState,
            Self::SameSamples { .. } => FindingCode::SameSamples,
            Self::SameBatchesInWorkers { .. } => FindingCode::SameBatchesInWorkers,
            Self::SplitTwice => FindingCode::SplitTwice,
            Self::BatchesMutated { .. } => FindingCode::BatchesMutated,
            Self::NoHeadspace { .. } | Self::NoFloorInWhatIf { .. } => FindingCode::NoHeadspace,
            Self::UnsteadyProbe { .. } => FindingCode::UnsteadyProbe,
            Self::WhatIfDisagrees { .. } => FindingCode::WhatIfDisagrees,
            Self::ModelDisagrees { .. } => FindingCode::ModelDisagrees,
            Self::CallsFail { .. } => FindingCode::CallsFail,
        }
    }
}

/// Lists the findings about resources.
pub fn findings(resources: &ResourcesRecord) -> Vec<Finding> {
    let t = &Thresholds::default();
    let host = [
        throttled(resources, t),
        oversubscribed(resources, t),
        gil_contention_ms(resources, t).map(|wait_ms| Finding::GilContended { wait_ms }),
        above(resources.gc_pct, t.notable_gc_pct).map(|pct| Finding::GcPauses {
            pct,
            longest_ms: resources.gc_longest_ms,
        }),
        above(resources.io_pressure_pct, IO_PRESSURE_PCT).map(|pct| Finding::IoPressure { pct }),
        above(resources.memory_pressure_pct, MEMORY_PRESSURE_PCT)
            .map(|pct| Finding::MemoryPressure { pct }),
        growth(resources),
    ];
    // Busy decoders and other processes' memory are normal on another rank's GPU.
    let own = (resources.own_gpus()).flat_map(|gpu| {
        [
            about(gpu, decoders),
            about(gpu, slow_link),
            about(gpu, shared),
        ]
    });
    let all =
        (resources.gpus.iter()).flat_map(|gpu| [about(gpu, clocks), about(gpu, memory_errors)]);
    host.into_iter().chain(own).chain(all).flatten().collect()
}

/// The value if it is at least `least`.
fn above(value: Option<f64>, least: f64) -> Option<f64> {
    value.filter(|value| *value >= least)
}

fn throttled(r: &ResourcesRecord, t: &Thresholds) -> Option<Finding> {
    Some(Finding::CpuThrottled {
        pct: above(r.throttled_pct, t.exhausted_quota_pct)?,
        cores: r.cores_usable,
    })
}

fn oversubscribed(r: &ResourcesRecord, t: &Thresholds) -> Option<Finding> {
    // A thread that is stopped by a quota also waits for a core.
    if above(r.throttled_pct, t.exhausted_quota_pct).is_some() {
        return None;
    }
    Some(Finding::Oversubscribed {
        pct: above(r.consumer_run_queue_pct, t.negligible_core_wait_pct)?,
        threads_and_cores: r.runnable_threads.zip(r.cores_usable),
    })
}

/// Mean wait for the interpreter lock, if threads wait long for it and more than one of them holds it. A single
/// thread that computes in Python makes the GIL probe wait, but delays no other thread.
pub(super) fn gil_contention_ms(r: &ResourcesRecord, t: &Thresholds) -> Option<f64> {
    above(r.other_threads_cores, t.min_gil_threads)?;
    above(r.gil_wait_ms, t.long_gil_wait_ms)
}

fn growth(r: &ResourcesRecord) -> Option<Finding> {
    let cause = r.memory_growth_cause.clone();
    let is_leak = (cause.as_ref()).is_none_or(|found| found.cause != GrowthCause::BoundedBuffer);
    is_leak.then_some(())?;
    Some(Finding::MemoryGrows {
        growth: r.memory_growth_per_step.filter(|growth| growth.low > 0.0)?,
        scope: r.memory_growth_of?,
        cause,
    })
}

fn about(gpu: &GpuUse, rule: impl Fn(&GpuUse) -> Option<GpuFinding>) -> Option<Finding> {
    Some(Finding::Gpu {
        ordinal: gpu.ordinal,
        finding: rule(gpu)?,
    })
}

fn decoders(gpu: &GpuUse) -> Option<GpuFinding> {
    let engines = gpu.nvdec_engines.filter(|engines| *engines > 0)?;
    let pct = 100.0 * gpu.nvdec_busy? / f64::from(engines);
    (pct >= DECODERS_BUSY_PCT).then_some(GpuFinding::DecodersBusy { engines, pct })
}

fn clocks(gpu: &GpuUse) -> Option<GpuFinding> {
    Some(GpuFinding::Throttled {
        pct: above(gpu.throttled_pct, REDUCED_CLOCKS_PCT)?,
        by: gpu.throttled_by?,
    })
}

fn memory_errors(gpu: &GpuUse) -> Option<GpuFinding> {
    let errors = above(gpu.ecc_uncorrected, MEMORY_ERRORS)?;
    Some(GpuFinding::MemoryErrors { errors })
}

fn slow_link(gpu: &GpuUse) -> Option<GpuFinding> {
    let (link, max) = (gpu.pcie_link?, gpu.pcie_link_max?);
    let is_slow = pcie::bytes_per_s(link)? < SLOW_LINK_SHARE * pcie::bytes_per_s(max)?;
    let used = above(pcie::used_share(gpu), SLOW_LINK_USE)?;
    is_slow.then_some(GpuFinding::SlowLink { link, max, used })
}

fn shared(gpu: &GpuUse) -> Option<GpuFinding> {
    let pct = above(gpu.others_memory_pct, OTHERS_MEMORY_PCT)?;
    Some(GpuFinding::Shared { pct })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(resources: &ResourcesRecord) -> Vec<&'static str> {
        findings(resources)
            .iter()
            .map(|finding| finding.code().as_str())
            .collect()
    }

    #[test]
    fn without_notable_readings_there_are_no_findings() {
        assert_eq!(codes(&ResourcesRecord::default()), [""; 0]);
        let calm = ResourcesRecord {
            throttled_pct: Some(0.0),
            gil_wait_ms: Some(0.02),
            gc_pct: Some(0.1),
            io_pressure_pct: Some(1.0),
            consumer_run_queue_pct: Some(0.5),
            gpus: vec![GpuUse {
                nvdec_busy: Some(0.0),
                nvdec_engines: Some(7),
                throttled_pct: Some(0.0),
                ..GpuUse::default()
            }],
            ..ResourcesRecord::default()
        };
        assert_eq!(codes(&calm), [""; 0]);
    }

    #[test]
    fn a_single_computing_thread_does_not_contend_for_the_lock() {
        let with_others = |cores| ResourcesRecord {
            gil_wait_ms: Some(5.0),
            other_threads_cores: cores,
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&with_others(Some(0.01))), [""; 0]);
        let least = Thresholds::default().min_gil_threads;
        assert_eq!(codes(&with_others(Some(0.9 * least))), [""; 0]);
        assert_eq!(codes(&with_others(None)), [""; 0]);
        assert_eq!(codes(&with_others(Some(0.6))), ["gil_contended"]);
    }

    #[test]
    fn waits_caused_by_a_quota_are_not_reported_as_oversubscription() {
        let waiting = |throttled_pct| ResourcesRecord {
            consumer_run_queue_pct: Some(70.0),
            throttled_pct,
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&waiting(Some(100.0))), ["cpu_throttled"]);
        assert_eq!(codes(&waiting(None)), ["oversubscribed"]);
    }

    #[test]
    fn a_slow_link_is_a_finding_only_if_it_is_used() {
        let using = |width, bytes_per_s| ResourcesRecord {
            gpus: vec![GpuUse {
                pcie_receive_bytes_per_s: Some(bytes_per_s),
                pcie_link: Some(PcieLink {
                    generation: 4,
                    width,
                }),
                pcie_link_max: Some(PcieLink {
                    generation: 4,
                    width: 16,
                }),
                ..GpuUse::default()
            }],
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&using(8, 5e9)), ["gpu_slow_link"]);
        assert_eq!(codes(&using(8, 1e9)), [""; 0]);
        assert_eq!(codes(&using(16, 15e9)), [""; 0]);
    }

    #[test]
    fn one_busy_decoder_of_seven_is_no_finding() {
        let decoding = |busy| ResourcesRecord {
            gpus: vec![GpuUse {
                nvdec_busy: Some(busy),
                nvdec_engines: Some(7),
                ..GpuUse::default()
            }],
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&decoding(1.0)), [""; 0]);
        assert_eq!(codes(&decoding(6.8)), ["decoders_busy"]);
    }
}
