//! What stands out in the resources of a run, in words.
//!
//! A finding says what was seen and how much of it; which stage it slows, and what a remedy would
//! gain, is attribution's to say. Each threshold is where the effect can reach the step time.

use super::verdict::units::{amount, bytes, duration_ms, percent};
use crate::model::record::{FindingRecord, GpuUse, ResourcesRecord};

/// Share of quota periods that ran out, or of time a GPU's clocks were held down, in percent.
const THROTTLED_PCT: f64 = 5.0;

/// Share of time that the training thread waits for a core, in percent.
const RUN_QUEUE_PCT: f64 = 5.0;

/// A fifth of Python's switch interval (`sys.getswitchinterval()`, 5 ms), which is what a thread
/// waits at most for one other thread that runs Python code.
const GIL_WAIT_MS: f64 = 1.0;

/// Share of time in which the garbage collector stops everything, in percent.
const GC_PCT: f64 = 1.0;

/// Share of time in which something waits for storage, in percent.
const IO_PRESSURE_PCT: f64 = 10.0;

/// The same for memory: reclaim is rare where memory suffices.
const MEMORY_PRESSURE_PCT: f64 = 1.0;

/// Use of all decoders together that leaves nothing for more of them, in percent.
const DECODERS_BUSY_PCT: f64 = 95.0;

/// Share of a GPU's used memory that others hold, in percent.
const OTHERS_MEMORY_PCT: f64 = 10.0;

/// What stands out.
#[must_use]
pub fn findings(resources: &ResourcesRecord) -> Vec<FindingRecord> {
    let r = resources;
    let above = |value: Option<f64>, least: f64| value.filter(|value| *value >= least);
    let mut found = Vec::new();
    let mut say = |code: &str, text: String| {
        found.push(FindingRecord {
            code: code.to_owned(),
            text,
        });
    };
    if let Some(pct) = above(r.throttled_pct, THROTTLED_PCT) {
        let quota = r
            .cores_usable
            .map(|cores| format!(" of {} cores", amount(cores)))
            .unwrap_or_default();
        say(
            "cpu_throttled",
            format!(
                "The CPU quota{quota} ran out in {} % of its periods, and every thread stood still \
                 until the next.",
                percent(pct, 0)
            ),
        );
    }
    if let Some(pct) = above(r.consumer_run_queue_pct, RUN_QUEUE_PCT) {
        let crowd = r
            .runnable_threads
            .zip(r.cores_usable)
            .map(|(threads, cores)| {
                format!(
                    " ({} threads ready to run on average, {} cores)",
                    amount(threads),
                    amount(cores)
                )
            })
            .unwrap_or_default();
        say(
            "oversubscribed",
            format!(
                "The training thread waited for a core in {} % of the time: more threads want to \
                 run than there are cores{crowd}.",
                percent(pct, 0)
            ),
        );
    }
    if let Some(ms) = above(r.gil_wait_ms, GIL_WAIT_MS) {
        say(
            "gil_contended",
            format!(
                "A thread waits {} on average for Python's interpreter lock: threads that run \
                 Python code hold each other up.",
                duration_ms(ms)
            ),
        );
    }
    if let Some(pct) = above(r.gc_pct, GC_PCT) {
        let longest = r
            .gc_longest_ms
            .map(|ms| format!(", the longest pause {}", duration_ms(ms)))
            .unwrap_or_default();
        say(
            "gc_pauses",
            format!(
                "Python's garbage collector stopped the process for {} % of the time{longest}.",
                percent(pct, 1)
            ),
        );
    }
    if let Some(pct) = above(r.io_pressure_pct, IO_PRESSURE_PCT) {
        say(
            "io_pressure",
            format!(
                "Something waited for storage in {} % of the time.",
                percent(pct, 0)
            ),
        );
    }
    if let Some(pct) = above(r.memory_pressure_pct, MEMORY_PRESSURE_PCT) {
        say(
            "memory_pressure",
            format!(
                "Memory was scarce: something waited for it in {} % of the time.",
                percent(pct, 1)
            ),
        );
    }
    if let Some(growth) = r.memory_growth_per_step.filter(|growth| growth.low > 0.0) {
        let whose = match r.memory_growth_of.as_deref() {
            Some("tree") => "The memory of this process and its children",
            _ => "The memory of this process",
        };
        say(
            "memory_grows",
            format!(
                "{whose} grows by {} in 1,000 steps ({} to {}).",
                bytes(1e3 * growth.value),
                bytes(1e3 * growth.low),
                bytes(1e3 * growth.high)
            ),
        );
    }
    found.extend(r.gpus.iter().flat_map(of_gpu));
    found
}

fn of_gpu(gpu: &GpuUse) -> Vec<FindingRecord> {
    let mut found = Vec::new();
    let mut say = |code: &str, text: String| {
        found.push(FindingRecord {
            code: code.to_owned(),
            text: format!("GPU {}: {text}", gpu.ordinal),
        });
    };
    if let (Some(busy), Some(engines)) = (gpu.nvdec_busy, gpu.nvdec_engines) {
        let pct = 100.0 * busy / f64::from(engines.max(1));
        if pct >= DECODERS_BUSY_PCT {
            say(
                "decoders_busy",
                format!(
                    "its {engines} video decoders are busy {} % of the time, so that more decoding \
                     at once gains nothing.",
                    percent(pct, 0)
                ),
            );
        }
    }
    if let (Some(pct), Some(reason)) = (gpu.throttled_pct, &gpu.throttled_by)
        && pct >= THROTTLED_PCT
    {
        let why = match reason.as_str() {
            "power" => "its power cap",
            "thermal" => "its temperature",
            _ => "the hardware (a brake signal, or a supply that is too weak)",
        };
        say(
            "gpu_throttled",
            format!(
                "its clocks were held down in {} % of the time by {why}.",
                percent(pct, 0)
            ),
        );
    }
    if let Some(errors) = gpu.ecc_uncorrected.filter(|errors| *errors >= 1.0) {
        say(
            "gpu_memory_errors",
            format!(
                "{errors:.0} memory errors appeared that could not be corrected. Results may be \
                 wrong; have it checked."
            ),
        );
    }
    if let Some(pct) = gpu
        .others_memory_pct
        .filter(|pct| *pct >= OTHERS_MEMORY_PCT)
    {
        say(
            "gpu_shared",
            format!(
                "{} % of its memory in use belongs to other processes.",
                percent(pct, 0)
            ),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::Estimate;

    fn codes(resources: &ResourcesRecord) -> Vec<String> {
        findings(resources).into_iter().map(|f| f.code).collect()
    }

    #[test]
    fn nothing_read_and_nothing_amiss_say_nothing() {
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
    fn one_saturated_decoder_of_seven_is_not_all_of_them() {
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

    #[test]
    fn a_finding_says_how_much() {
        let resources = ResourcesRecord {
            throttled_pct: Some(43.0),
            cores_usable: Some(1.5),
            memory_growth_per_step: Some(Estimate {
                value: 10_485.76,
                low: 10_000.0,
                high: 11_000.0,
            }),
            memory_growth_of: Some("process".to_owned()),
            ..ResourcesRecord::default()
        };

        let texts: Vec<_> = findings(&resources).into_iter().map(|f| f.text).collect();

        assert_eq!(
            texts,
            [
                "The CPU quota of 1.5 cores ran out in 43 % of its periods, and every thread stood \
                 still until the next.",
                "The memory of this process grows by 10.0 MiB in 1,000 steps (9.54 MiB to 10.5 MiB).",
            ]
        );
    }
}
