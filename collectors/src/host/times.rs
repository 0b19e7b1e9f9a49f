//! Measures how busy cores were between two readings of `/proc/stat`.
//!
//! Idle time and waiting for a disk (`iowait`) count as idle. Time stolen by the hypervisor counts as
//! busy, because the core was not available to us. Guest time is counted once, because the kernel
//! includes it in user and nice.

use super::cores::Cores;
use crate::procfs::{lines, number, words};

/// Times of one core since boot, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoreTime {
    core: usize,
    busy: u64,
    idle: u64,
    waiting: u64,
}

/// Replaces `times` by the cores in `/proc/stat`, in the order of the file.
pub(super) fn read_into(bytes: &[u8], times: &mut Vec<CoreTime>) {
    times.clear();
    // The lines of the cores come first, after that of all cores together.
    times.extend(
        lines(bytes)
            .take_while(|line| line.starts_with(b"cpu"))
            .filter_map(core),
    );
}

/// Number of threads of the machine that run or wait for a core, without the one that reads the file: it
/// runs even on an otherwise idle machine.
///
/// `/proc/loadavg` has the same number, but would be one more file to read.
pub(super) fn runnable(bytes: &[u8]) -> Option<u64> {
    let line = lines(bytes).find(|line| line.starts_with(b"procs_running "))?;
    let running = number(words(line).nth(1)?)?;
    Some(running.saturating_sub(1))
}

/// Reads `cpu3 user nice system idle iowait irq softirq steal [guest guest_nice]`.
fn core(line: &[u8]) -> Option<CoreTime> {
    let mut fields = words(line.strip_prefix(b"cpu")?);
    if !line.get(3)?.is_ascii_digit() {
        return None; // The sum of all cores.
    }
    let core = usize::try_from(number(fields.next()?)?).ok()?;
    let mut next = || number(fields.next()?);
    let (user, nice, system, idle, waiting) = (next()?, next()?, next()?, next()?, next()?);
    let (interrupt, soft_interrupt, stolen) = (next()?, next()?, next()?);
    let busy = [user, nice, system, interrupt, soft_interrupt, stolen]
        .into_iter()
        .try_fold(0u64, u64::checked_add)?;
    Some(CoreTime {
        core,
        busy,
        idle,
        waiting,
    })
}

/// The share of time, in `[0, 1]`, that the cores of the set were busy from `before` to `after`.
///
/// `None` if a core of the set is missing in one of the readings, if its counters decreased, or if the
/// kernel's clock has not ticked in between.
pub(super) fn utilization(before: &[CoreTime], after: &[CoreTime], set: &Cores) -> Option<f64> {
    let (mut busy, mut idle, mut found) = (0u64, 0u64, 0u32);
    for (index, now) in after
        .iter()
        .enumerate()
        .filter(|(_, time)| set.contains(time.core))
    {
        let same = |time: &&CoreTime| time.core == now.core;
        // At the same index, unless a core was added or removed.
        let then = before
            .get(index)
            .filter(same)
            .or_else(|| before.iter().find(same));
        let Some(then) = then else { continue };
        let worked = now.busy.checked_sub(then.busy)?;
        found = found.saturating_add(1);
        busy = busy.saturating_add(worked);
        // These two may decrease a little (proc(5) on `iowait`), which counts as no change.
        idle = idle
            .saturating_add(now.idle.saturating_sub(then.idle))
            .saturating_add(now.waiting.saturating_sub(then.waiting));
    }
    // In some containers `/proc/stat` renumbers the cores, but the affinity mask does not.
    if found == 0 || found != set.len() {
        return None;
    }
    let total = busy as f64 + idle as f64;
    (total > 0.0).then(|| busy as f64 / total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Vec<CoreTime> {
        let mut times = Vec::new();
        read_into(text.as_bytes(), &mut times);
        times
    }

    fn set(text: &str) -> Cores {
        let mut cores = Cores::default();
        cores.read_list(text.as_bytes());
        cores
    }

    const BEFORE: &str = "cpu  8 0 8 8 8 0 0 0 0 0\n\
        cpu0 100 0 50 1000 10 0 0 0 0 0\n\
        cpu1 200 0 60 2000 20 0 0 0 90 0\n\
        intr 1 2 3\n";

    fn between(after: &str, cores: &str) -> Option<f64> {
        utilization(&parse(BEFORE), &parse(after), &set(cores))
    }

    #[test]
    fn only_the_cores_of_the_set_count() {
        let after = "cpu  9 9 9 9 9 9 9 9 9 9\n\
            cpu0 130 0 50 1070 10 0 0 0 0 0\n\
            cpu1 300 0 60 2000 20 0 0 0 90 0\n";

        assert_eq!(between(after, "0"), Some(0.3));
        assert_eq!(between(after, "1"), Some(1.0));
        assert_eq!(between(after, "0-1"), Some(0.65));
    }

    #[test]
    fn waiting_for_a_disk_is_idle_and_stolen_time_is_busy_and_guests_count_once() {
        let waiting = "cpu0 100 0 50 1050 60 0 0 0 0 0\n";
        let stolen = "cpu0 100 0 50 1050 10 0 0 50 0 0\n";
        let guest = "cpu0 150 0 50 1050 10 0 0 0 50 0\n";

        assert_eq!(between(waiting, "0"), Some(0.0));
        assert_eq!(between(stolen, "0"), Some(0.5));
        assert_eq!(between(guest, "0"), Some(0.5));
    }

    #[test]
    fn without_a_core_in_both_readings_the_share_is_unknown() {
        let after = "cpu0 130 0 50 1070 10 0 0 0 0 0\n";

        assert_eq!(between(after, "0-1"), None);
        assert_eq!(between(after, "1"), None);
        assert_eq!(utilization(&[], &parse(BEFORE), &set("0")), None);
        assert_eq!(between("", "0"), None);
    }

    #[test]
    fn decreased_counters_make_the_share_unknown_except_for_a_small_decrease_of_iowait() {
        let set_back = "cpu0 3 0 2 40 0 0 0 0 0 0\n";
        let jitter = "cpu0 110 0 50 1010 8 0 0 0 0 0\n";

        assert_eq!(between(set_back, "0"), None);
        assert_eq!(between(jitter, "0"), Some(0.5));
    }

    #[test]
    fn two_readings_within_one_clock_tick_give_no_share() {
        assert_eq!(between(BEFORE, "0-1"), None);
    }

    #[test]
    fn short_truncated_and_negative_lines_are_skipped() {
        assert_eq!(parse("cpu0 1 2 3 4\n"), []);
        assert_eq!(parse("cpu0 1 2 3 4 5 6 7 8 9 10"), []);
        assert_eq!(parse("cpu0 1 2 3 -4 5 6 7 8 9 10\n"), []);
        assert_eq!(parse("cpu0x 1 2 3 4 5 6 7 8 9 10\n"), []);
        assert_eq!(parse("cpu 1 2 3 4 5 6 7 8 9 10\n"), []);
        assert_eq!(parse("cpu0 18446744073709551615 2 3 4 5 6 7 8 9 10\n"), []);
    }

    #[test]
    fn the_reading_thread_is_not_counted_as_runnable() {
        assert_eq!(
            runnable(b"cpu 1\nprocs_running 3\nprocs_blocked 0\n"),
            Some(2)
        );
        assert_eq!(runnable(b"procs_running 1\n"), Some(0));
        for wrong in [
            "",
            "procs_running 3",
            "procs_running\n",
            "procs_running x\n",
        ] {
            assert_eq!(runnable(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    fn any_times() -> impl Strategy<Value = Vec<CoreTime>> {
        let time = (0usize..4, any::<u64>(), any::<u64>(), any::<u64>());
        prop::collection::vec(
            time.prop_map(|(core, busy, idle, waiting)| CoreTime {
                core,
                busy,
                idle,
                waiting,
            }),
            0..6,
        )
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            read_into(&bytes, &mut Vec::new());
        }

        #[test]
        fn a_share_is_between_zero_and_one_whatever_the_counters(
            before in any_times(), after in any_times()
        ) {
            if let Some(share) = utilization(&before, &after, &set("0-3")) {
                prop_assert!((0.0..=1.0).contains(&share));
            }
        }

        #[test]
        fn a_truncated_file_has_only_cores_of_the_whole_file(cut in 0usize..BEFORE.len()) {
            let whole = parse(BEFORE);
            prop_assert!(parse(&BEFORE[..cut]).iter().all(|time| whole.contains(time)));
        }
    }
}
