//! Measures the age of this process, from which the start-up time of a run follows.

use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::procfs::{self, parse};

/// Time from the start of the calling process to now; absent if `/proc` cannot be read.
///
/// The kernel records the start in clock ticks, so this is exact to 10 ms. A process starts when it is
/// forked, so time before the interpreter runs is included.
pub fn age() -> Option<Duration> {
    let mut buffer = Vec::new();
    let bytes = procfs::read(Path::new("/proc/self/stat"), &mut buffer).ok()?;
    age_from_stat(bytes, since_boot()?, clock_ticks_per_second())
}

/// Time since the start in `stat`; absent if the start lies in the future.
pub(super) fn age_from_stat(
    stat: &[u8],
    since_boot: Duration,
    clock_rate: u64,
) -> Option<Duration> {
    let started = parse::stat(stat)?.identity.started;
    let whole = Duration::from_secs(started.checked_div(clock_rate)?);
    let rest =
        Duration::from_nanos((started % clock_rate).checked_mul(1_000_000_000)? / clock_rate);
    since_boot.checked_sub(whole.checked_add(rest)?)
}

/// Time since boot, suspension included, as `stat` counts it (also in a time namespace).
fn since_boot() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::Boottime)).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    fn stat(started: u64) -> Vec<u8> {
        format!("1 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n").into_bytes()
    }

    #[test]
    fn age_is_the_time_since_the_start_in_the_file() {
        let age = age_from_stat(&stat(118_593), Duration::from_secs(1_200), 100);

        assert_eq!(age, Some(Duration::from_millis(14_070)));
    }

    #[test]
    fn a_start_in_the_future_has_no_age() {
        let after_4_s = Duration::from_secs(4);
        assert_eq!(age_from_stat(&stat(500), after_4_s, 100), None);
        assert_eq!(age_from_stat(b"1 (a) S\n", after_4_s, 100), None);
        assert_eq!(age_from_stat(&stat(500), after_4_s, 0), None);
    }

    #[test]
    fn this_process_is_older_than_the_test_and_ages_with_the_clock() {
        // Within the time between both ages, however long the test waits for a core.
        let (first, begin) = (age().unwrap(), Instant::now());
        assert!(Command::new("true").status().unwrap().success());
        let (passed, second) = (begin.elapsed(), age().unwrap());

        let aged = second.checked_sub(first).expect("time goes on");
        assert!(
            aged >= passed.saturating_sub(Duration::from_millis(1)),
            "{aged:?} in {passed:?}"
        );
        // Wide: no test run lasts a day.
        assert!(second < Duration::from_secs(86_400));
    }

    proptest! {
        #[test]
        fn any_start_and_rate_yield_an_age_or_nothing(started: u64, boot: Duration, rate: u64) {
            if let Some(age) = age_from_stat(&stat(started), boot, rate) {
                prop_assert!(age <= boot);
            }
        }
    }
}
