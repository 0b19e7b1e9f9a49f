//! Texts of findings, in one or two sentences each.

use super::gpu::pcie_link;
use super::memory_growth::memory_growth;
use super::probe::warnings_text;
use super::units::{amount, duration_ms, percent};
use super::what_if::{changed_stage, why_no_floor};
use crate::analysis::findings::{Finding, GpuFinding};
use crate::model::OptionsFrom;
use crate::model::record::{FindingRecord, ThrottleReason};

/// The record of a finding.
/// Options have the names that the user uses in `options_from`.
pub(super) fn finding_record(finding: &Finding, options_from: OptionsFrom) -> FindingRecord {
    FindingRecord {
        code: finding.code().as_str().to_owned(),
        text: options_from.spell(&text(finding)),
    }
}

#[expect(clippy::too_many_lines, reason = "one text for each finding")]
fn text(finding: &Finding) -> String {
    match finding {
        Finding::CpuThrottled { pct, cores } => {
            let quota =
                cores.map_or_else(String::new, |cores| format!(" of {} cores", amount(cores)));
            format!(
                "The CPU quota{quota} ran out in {} % of its periods, and all threads were \
                 paused until the next period.",
                percent(*pct, 0)
            )
        }
        Finding::Oversubscribed {
            pct,
            threads_and_cores,
        } => {
            let counts = threads_and_cores.map_or_else(String::new, |(threads, cores)| {
                format!(
                    " ({} threads ready to run on average, {} cores)",
                    amount(threads),
                    amount(cores)
                )
            });
            format!(
                "The training thread waited for a core {} % of the time: more threads are \
                 runnable than there are cores{counts}.",
                percent(*pct, 0)
            )
        }
        Finding::GilContended { wait_ms } => format!(
            "A thread waits {} on average for Python's interpreter lock: threads that run Python \
             code block each other.",
            duration_ms(*wait_ms)
        ),
        Finding::GcPauses { pct, longest_ms } => {
            let longest = longest_ms.map_or_else(String::new, |ms| {
                format!(", the longest pause {}", duration_ms(ms))
            });
            format!(
                "Python's garbage collector stopped the process for {} % of the time{longest}.",
                percent(*pct, 1)
            )
        }
        Finding::IoPressure { pct } => format!(
            "At least one task on this machine waited for storage {} % of the time (I/O pressure).",
            percent(*pct, 0)
        ),
        Finding::MemoryPressure { pct } => format!(
            "Memory was scarce: at least one task waited for it {} % of the time (memory \
             pressure).",
            percent(*pct, 1)
        ),
        Finding::MemoryGrows {
            growth,
            scope,
            cause,
        } => memory_growth(*growth, *scope, cause.as_deref()),
        Finding::Gpu { ordinal, finding } => format!("GPU {ordinal}: {}", gpu(finding)),
        Finding::NoSteadyState { changed, enough } => no_steady_state(*changed, *enough),
        Finding::SameSamples { ranks } => format!(
            "Each of the {ranks} ranks loads and prepares the same samples, and then keeps \
             1/{ranks} of them, so the same work is done {ranks} times."
        ),
        Finding::SameBatchesInWorkers { workers } => format!(
            "Each of the {workers} worker processes loads the whole stream, so the same work is done \
             {workers} times, and each batch is trained on {workers} times. Let each worker load its own \
             part of the stream (`torch.utils.data.get_worker_info`)."
        ),
        Finding::SplitTwice => "The samples are split among the ranks twice: each rank keeps its part of what \
                                is already its part, so an epoch uses only a part of the samples. Split \
                                them once: Accelerate's `prepare` splits them already."
            .to_owned(),
        Finding::BatchesMutated { mutated, cached } => format!(
            "{mutated} of {cached} cached batches changed in place, so replayed steps used modified data."
        ),
        Finding::NoHeadspace { reason } => reason.to_string(),
        Finding::NoFloorInWhatIf { reason } => why_no_floor(*reason),
        Finding::UnsteadyProbe { warnings } => warnings_text(warnings),
        Finding::WhatIfDisagrees { modelled, measured } => format!(
            "From the times of its calls, `{modelled}` would limit the loop. The what-if measured that `{measured}` \
             does, so predictions about these stages are uncertain."
        ),
        Finding::ModelDisagrees {
            stage,
            intervention,
            modelled_ms,
            measured_ms,
        } => format!(
            "{}, the model predicts a step of {}, and the what-if measured {}. So other predictions of the model \
             may be as wrong.",
            changed_stage(stage, *intervention),
            duration_ms(*modelled_ms),
            duration_ms(*measured_ms)
        ),
        Finding::CallsFail {
            stage,
            failures,
            calls,
        } => format!("{failures} of {calls} calls of `{stage}` ended in an exception."),
    }
}

fn gpu(finding: &GpuFinding) -> String {
    match finding {
        GpuFinding::DecodersBusy { engines, pct } => format!(
            "its {engines} video decoders are busy {} % of the time, so more concurrent decoding \
             does not help.",
            percent(*pct, 0)
        ),
        GpuFinding::Throttled { pct, by } => {
            let why = match by {
                ThrottleReason::Power => "its power cap",
                ThrottleReason::Thermal => "its temperature",
                ThrottleReason::Hardware => {
                    "the hardware (power brake, or another slowdown that heat did not cause)"
                }
            };
            let pct = percent(*pct, 0);
            format!("its clocks were throttled {pct} % of the time by {why}.")
        }
        GpuFinding::MemoryErrors { errors } => format!(
            "{errors:.0} memory errors appeared that could not be corrected. Results may be wrong; \
             have the GPU checked."
        ),
        GpuFinding::SlowLink { link, max, used } => format!(
            "its PCIe link is {}, and GPU and machine allow {}. The program uses {} % of it in one direction. The slot, a \
             riser or a setting of the firmware may limit it.",
            pcie_link(*link),
            pcie_link(*max),
            percent(100.0 * used, 0)
        ),
        GpuFinding::Shared { pct } => format!(
            "other processes hold {} % of its used memory.",
            percent(*pct, 0)
        ),
    }
}

fn no_steady_state(changed: usize, enough: Option<(u64, usize)>) -> String {
    match enough {
        None => format!(
            "The step time still changed after {changed} steps, so the means include all steps after \
             the first 20."
        ),
        Some((steps, enough)) => format!(
            "The step time still changed after {changed} of {steps} steps, so the means may include \
             warm-up. Train for at least {enough} steps."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::findings::findings;
    use crate::model::record::{Estimate, MemoryScope, ResourcesRecord};

    #[test]
    fn without_a_steady_state_the_finding_says_how_long_to_train() {
        let unsteady = |enough| {
            let changed = 250;
            text(&Finding::NoSteadyState { changed, enough })
        };

        assert_eq!(
            unsteady(Some((299, 500))),
            "The step time still changed after 250 of 299 steps, so the means may include warm-up. \
             Train for at least 500 steps."
        );
        assert_eq!(
            unsteady(None),
            "The step time still changed after 250 steps, so the means include all steps after the \
             first 20."
        );
    }

    #[test]
    fn a_finding_states_its_amount() {
        let resources = ResourcesRecord {
            throttled_pct: Some(43.0),
            cores_usable: Some(1.5),
            memory_growth_per_step: Some(Estimate {
                value: 10_485.76,
                low: 10_000.0,
                high: 11_000.0,
            }),
            memory_growth_of: Some(MemoryScope::Process),
            ..ResourcesRecord::default()
        };

        let texts: Vec<_> = findings(&resources).iter().map(text).collect();

        assert_eq!(
            texts,
            [
                "The CPU quota of 1.5 cores ran out in 43 % of its periods, and all threads were \
                 paused until the next period.",
                "The memory of this process grows by 10.0 MiB in 1,000 steps (9.54 MiB to 10.5 MiB).",
            ]
        );
    }
}
