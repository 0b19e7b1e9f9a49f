//! Names and durations as in the verdict, for the other texts that Python prints.

use headspace_agent::model::record::{BottleneckKind, BottleneckRecord};
use headspace_agent::wording::{units, verdict};
use pyo3::prelude::*;

/// The name that the verdict has for a bottleneck, from the fields of its record.
#[pyfunction]
#[pyo3(signature = (kind, name = None, /))]
pub(crate) fn bottleneck_name(kind: String, name: Option<String>) -> String {
    let Some(kind) = BottleneckKind::named(&kind) else {
        return name.unwrap_or(kind);
    };
    verdict::bottleneck_name(&BottleneckRecord {
        kind,
        name,
        ..BottleneckRecord::default()
    })
}

/// A duration in milliseconds as the verdict shows it: `850 µs`, `30.0 ms`, `1.52 s`.
#[pyfunction]
#[pyo3(signature = (ms, /))]
pub(crate) fn duration_ms(ms: f64) -> String {
    units::duration_ms(ms)
}
