//! Helpers for the tests: readings of a source, and root folders of simulated machines.

use std::collections::BTreeMap;
use std::time::Duration;

use headspace_agent::port::{CollectError, Collector};

/// The readings of one tick, by key.
pub(crate) fn tick(source: &mut impl Collector) -> Result<BTreeMap<String, f64>, CollectError> {
    let mut readings = Vec::new();
    source.collect(Duration::ZERO, &mut readings)?;
    Ok(readings
        .iter()
        .map(|reading| (reading.key(), reading.value))
        .collect())
}
