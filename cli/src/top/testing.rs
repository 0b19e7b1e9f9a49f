//! Records for the tests of state and view.

use headspace_agent::model::Distribution;
use headspace_agent::model::distribution::DistributionRecord;
use headspace_agent::model::record::{Record, RecordBody, SCHEMA};

/// A record written at a second of 2026-11-21, 09:30 UTC.
pub(super) fn record(run_id: &str, second: u64, body: RecordBody) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano: (1_795_253_400 + second) * 1_000_000_000,
        run_id: run_id.to_owned(),
        rank: 0,
        pid: 4711,
        body,
    }
}

/// Durations from pairs of a count and a length in milliseconds.
pub(super) fn times(counts: &[(u64, f64)]) -> DistributionRecord {
    let mut all = Distribution::default();
    for (count, ms) in counts {
        for _ in 0..*count {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a test's own"
            )]
            all.record((ms * 1e6) as u64);
        }
    }
    DistributionRecord::from(&all)
}
