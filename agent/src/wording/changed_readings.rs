//! Texts of readings that changed with the steps.

use super::units::{amount, bytes, duration_ms, percent};
use crate::analysis::episodes::{ChangedReading, Signal};
use crate::model::metric::PAGE_CACHE_REFAULTS;
use crate::model::record::{ChangedReadingRecord, EpisodeSignal};

/// The records of readings that changed.
pub(super) fn changed_records(changed: &[ChangedReading]) -> Vec<ChangedReadingRecord> {
    let record = |one: &ChangedReading| ChangedReadingRecord {
        signal: Some(one.signal),
        metric: one.metric.name.to_owned(),
        usual: one.usual,
        slow: one.slow,
        unit: one.unit.to_owned(),
    };
    changed.iter().map(record).collect()
}

/// What changed, with both values if they are known.
pub(super) fn resource_phrase(part: EpisodeSignal, signal: &Signal) -> String {
    let reading = (signal.changed.iter().flatten()).find(|one| one.signal == part);
    let values = reading.map(|one| format!(": {}", both_values(one)));
    format!("{}{}", phrase(part), values.unwrap_or_default())
}

/// What else changed: the evidence for the signal, other resources, or that none did.
pub(super) fn changed_resources(signal: &Signal) -> Vec<String> {
    let Some(changed) = &signal.changed else {
        return Vec::new();
    };
    if changed.is_empty() {
        return vec!["No resource that headspace reads changed at the same time.".to_owned()];
    }
    let is_refault = |one: &&ChangedReading| *one.metric == PAGE_CACHE_REFAULTS;
    let evicted = changed.iter().filter(is_refault).map(|one| {
        format!(
            "The page cache no longer holds the data: {} of files per step are read again after they had been evicted.",
            bytes(one.slow)
        )
    });
    let is_other = |one: &&ChangedReading| Some(one.signal) != signal.kind && !is_refault(one);
    let others = changed.iter().filter(is_other);
    let others: Vec<String> = others
        .map(|one| format!("{} ({})", phrase(one.signal), both_values(one)))
        .collect();
    let others = (!others.is_empty()).then(|| format!("Also, {}.", others.join(", and ")));
    evicted.chain(others).collect()
}

fn phrase(part: EpisodeSignal) -> &'static str {
    match part {
        EpisodeSignal::Wait => "the loop waits longer for data",
        EpisodeSignal::Compute => "the loop's own code takes longer",
        EpisodeSignal::StorageReads => "more bytes come from storage",
        EpisodeSignal::MountLatency => "reads from the network file system take longer",
        EpisodeSignal::OtherPrograms => "other programs use more cores",
        EpisodeSignal::CpuQuota => "the CPU quota runs out more often",
        EpisodeSignal::CpuClocks => "the cores have a lower clock frequency",
        EpisodeSignal::GpuClocks => "the GPU's clocks are throttled more",
        EpisodeSignal::FewerProcesses => "fewer processes run",
        EpisodeSignal::Swap => "more memory comes back from swap",
        EpisodeSignal::MemoryPressure => "threads wait longer for memory",
        EpisodeSignal::IoPressure => "threads wait longer for I/O",
        EpisodeSignal::GarbageCollection => "Python's garbage collector stops the process longer",
        EpisodeSignal::CoreWait => "the training thread waits longer for a core",
        EpisodeSignal::MemoryUse => "the program uses more memory",
    }
}

/// The value at the slow steps, and the one at the others.
fn both_values(reading: &ChangedReading) -> String {
    let (slow, usual) = (reading.slow, reading.usual);
    let (slow, usual, what) = match reading.unit {
        "%" => {
            let share = |pct| format!("{} %", percent(pct, 0));
            (share(slow), share(usual), share_of(reading.signal))
        }
        "ms" => (duration_ms(slow), duration_ms(usual), ""),
        "By" => (bytes(slow), bytes(usual), ""),
        "By/{step}" => (bytes(slow), bytes(usual), " per step"),
        "{operation}/{step}" => (amount(slow), amount(usual), " pages per step"),
        "Hz" => {
            let gigahertz = |hertz: f64| format!("{:.2} GHz", hertz / 1e9);
            (gigahertz(slow), gigahertz(usual), "")
        }
        _ => (amount(slow), amount(usual), ""),
    };
    format!("{slow}{what} instead of {usual}")
}

/// What a share is a share of.
fn share_of(signal: EpisodeSignal) -> &'static str {
    match signal {
        EpisodeSignal::CpuQuota => " of the quota's periods",
        _ => " of the time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric::{HOST_CPU_UTILIZATION, Metric, PROCESS_DISK_IO};

    fn reading(
        signal: EpisodeSignal,
        metric: &'static Metric,
        unit: &'static str,
        (usual, slow): (f64, f64),
    ) -> ChangedReading {
        ChangedReading {
            signal,
            metric,
            usual,
            slow,
            unit,
        }
    }

    #[test]
    fn reads_from_storage_are_shown_per_step_with_the_evicted_bytes_and_other_causes() {
        let per_step = "By/{step}";
        let reads = EpisodeSignal::StorageReads;
        let signal = Signal {
            kind: Some(reads),
            changed: Some(vec![
                reading(
                    reads,
                    &PROCESS_DISK_IO,
                    per_step,
                    (1024.0, 3.0 * 1_048_576.0),
                ),
                reading(
                    reads,
                    &PAGE_CACHE_REFAULTS,
                    per_step,
                    (0.0, 2.0 * 1_048_576.0),
                ),
                reading(
                    EpisodeSignal::OtherPrograms,
                    &HOST_CPU_UTILIZATION,
                    "{cpu}",
                    (0.1, 1.5),
                ),
            ]),
            ..Signal::default()
        };

        assert_eq!(
            resource_phrase(reads, &signal),
            "more bytes come from storage: 3.00 MiB per step instead of 1.00 KiB"
        );
        assert_eq!(
            changed_resources(&signal),
            [
                "The page cache no longer holds the data: 2.00 MiB of files per step are read again \
                 after they had been evicted.",
                "Also, other programs use more cores (1.5 instead of 0.1)."
            ]
        );
    }

    #[test]
    fn a_change_without_a_changed_resource_says_so() {
        let compared = Signal {
            kind: Some(EpisodeSignal::Compute),
            changed: Some(Vec::new()),
            ..Signal::default()
        };

        assert_eq!(changed_resources(&compared).len(), 1);
        assert!(changed_resources(&Signal::default()).is_empty());
    }
}
