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

/// Cores' worth of work of threads beside the one that trains.
const OTHER_THREADS_CORES: f64 = 0.1;

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
    let host = [
        throttled(resources),
        oversubscribed(resources),
        gil(resources),
        collector(resources),
        storage(resources),
        memory(resources),
        growth(resources),
    ];
    // Busy decoders and other processes' memory are normal on another rank's GPU.
    let own = (resources.own_gpus()).flat_map(|gpu| [decoders(gpu), shared(gpu)]);
    let all = (resources.gpus.iter()).flat_map(|gpu| [clocks(gpu), memory_errors(gpu)]);
    host.into_iter().chain(own).chain(all).flatten().collect()
}

fn finding(code: &str, text: String) -> FindingRecord {
    FindingRecord {
        code: code.to_owned(),
        text,
    }
}

/// The value if it is at least `least`.
fn above(value: Option<f64>, least: f64) -> Option<f64> {
    value.filter(|value| *value >= least)
}

fn throttled(r: &ResourcesRecord) -> Option<FindingRecord> {
    let pct = percent(above(r.throttled_pct, THROTTLED_PCT)?, 0);
    let quota = r
        .cores_usable
        .map(|cores| format!(" of {} cores", amount(cores)))
        .unwrap_or_default();
    let text = format!(
        "The CPU quota{quota} ran out in {pct} % of its periods, and every thread stood still \
         until the next."
    );
    Some(finding("cpu_throttled", text))
}

fn oversubscribed(r: &ResourcesRecord) -> Option<FindingRecord> {
    // A thread that a quota stops is waiting for a core too.
    if above(r.throttled_pct, THROTTLED_PCT).is_some() {
        return None;
    }
    let pct = percent(above(r.consumer_run_queue_pct, RUN_QUEUE_PCT)?, 0);
    let crowd = r.runnable_threads.zip(r.cores_usable);
    let crowd = crowd
        .map(|(threads, cores)| {
            format!(
                " ({} threads ready to run on average, {} cores)",
                amount(threads),
                amount(cores)
            )
        })
        .unwrap_or_default();
    let text = format!(
        "The training thread waited for a core in {pct} % of the time: more threads want to run \
         than there are cores{crowd}."
    );
    Some(finding("oversubscribed", text))
}

fn gil(r: &ResourcesRecord) -> Option<FindingRecord> {
    let wait = duration_ms(above(r.gil_wait_ms, GIL_WAIT_MS)?);
    // One thread that computes in Python makes whoever asks wait, and hinders nobody.
    above(r.other_threads_cores, OTHER_THREADS_CORES)?;
    let text = format!(
        "A thread waits {wait} on average for Python's interpreter lock: threads that run Python \
         code hold each other up."
    );
    Some(finding("gil_contended", text))
}

fn collector(r: &ResourcesRecord) -> Option<FindingRecord> {
    let pct = percent(above(r.gc_pct, GC_PCT)?, 1);
    let longest = r
        .gc_longest_ms
        .map(|ms| format!(", the longest pause {}", duration_ms(ms)))
        .unwrap_or_default();
    let text =
        format!("Python's garbage collector stopped the process for {pct} % of the time{longest}.");
    Some(finding("gc_pauses", text))
}

fn storage(r: &ResourcesRecord) -> Option<FindingRecord> {
    let pct = percent(above(r.io_pressure_pct, IO_PRESSURE_PCT)?, 0);
    let text = format!("Something waited for storage in {pct} % of the time.");
    Some(finding("io_pressure", text))
}

fn memory(r: &ResourcesRecord) -> Option<FindingRecord> {
    let pct = percent(above(r.memory_pressure_pct, MEMORY_PRESSURE_PCT)?, 1);
    let text = format!("Memory was scarce: something waited for it in {pct} % of the time.");
    Some(finding("memory_pressure", text))
}

fn growth(r: &ResourcesRecord) -> Option<FindingRecord> {
    let growth = r.memory_growth_per_step.filter(|growth| growth.low > 0.0)?;
    let whose = match r.memory_growth_of.as_deref() {
        Some("tree") => "The memory of this process and its children",
        _ => "The memory of this process",
    };
    let [value, low, high] = [growth.value, growth.low, growth.high].map(|b| bytes(1e3 * b));
    let text = format!("{whose} grows by {value} in 1,000 steps ({low} to {high}).");
    Some(finding("memory_grows", text))
}

fn of_gpu(gpu: &GpuUse, code: &str, text: &str) -> FindingRecord {
    finding(code, format!("GPU {}: {text}", gpu.ordinal))
}

fn decoders(gpu: &GpuUse) -> Option<FindingRecord> {
    let engines = gpu.nvdec_engines.filter(|engines| *engines > 0)?;
    let share = 100.0 * gpu.nvdec_busy? / f64::from(engines);
    let pct = percent(above(Some(share), DECODERS_BUSY_PCT)?, 0);
    let text = format!(
        "its {engines} video decoders are busy {pct} % of the time, so that more decoding at once \
         gains nothing."
    );
    Some(of_gpu(gpu, "decoders_busy", &text))
}

fn clocks(gpu: &GpuUse) -> Option<FindingRecord> {
    let pct = percent(above(gpu.throttled_pct, THROTTLED_PCT)?, 0);
    let why = match gpu.throttled_by.as_deref()? {
        "power" => "its power cap",
        "thermal" => "its temperature",
        _ => "the hardware (a brake signal, or a supply that is too weak)",
    };
    let text = format!("its clocks were held down in {pct} % of the time by {why}.");
    Some(of_gpu(gpu, "gpu_throttled", &text))
}

fn memory_errors(gpu: &GpuUse) -> Option<FindingRecord> {
    let errors = above(gpu.ecc_uncorrected, 1.0)?;
    let text = format!(
        "{errors:.0} memory errors appeared that could not be corrected. Results may be wrong; \
         have it checked."
    );
    Some(of_gpu(gpu, "gpu_memory_errors", &text))
}

fn shared(gpu: &GpuUse) -> Option<FindingRecord> {
    let pct = percent(above(gpu.others_memory_pct, OTHERS_MEMORY_PCT)?, 0);
    let text = format!("{pct} % of its memory in use belongs to other processes.");
    Some(of_gpu(gpu, "gpu_shared", &text))
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
    fn one_thread_that_computes_holds_nobody_up() {
        let with_others = |cores| ResourcesRecord {
            gil_wait_ms: Some(5.0),
            other_threads_cores: cores,
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&with_others(Some(0.01))), [""; 0]);
        assert_eq!(codes(&with_others(None)), [""; 0]);
        assert_eq!(codes(&with_others(Some(0.6))), ["gil_contended"]);
    }

    #[test]
    fn what_a_quota_does_is_not_blamed_on_too_many_threads() {
        let waiting = |throttled_pct| ResourcesRecord {
            consumer_run_queue_pct: Some(70.0),
            throttled_pct,
            ..ResourcesRecord::default()
        };

        assert_eq!(codes(&waiting(Some(100.0))), ["cpu_throttled"]);
        assert_eq!(codes(&waiting(None)), ["oversubscribed"]);
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
