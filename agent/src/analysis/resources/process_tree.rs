//! Rates of counters of the process tree: this process and its children.
//!
//! The process is read at each tick. The tree is read at most once a second, and its readings may be one tick old. So only the
//! part of the children comes from the tree: its growth minus that of the process, between the readings of the tree. If a
//! run replays batches, no two readings of the tree may lie in one live part. The part of the children then covers the
//! replayed steps, too.

use super::tree_else_process;
use crate::model::metric::{Metric, PROCESS_COUNT, PROCESS_CPU_TIME};
use crate::model::reading::Attributes;
use crate::model::reading_series::Span;
use crate::model::{Scope, attributes};

/// The values of CPU time, which add up.
const CPU_MODES: &[Attributes] = &[attributes::CPU_USER, attributes::CPU_SYSTEM];

/// Whether the children of the process are read in this run.
pub(super) fn is_tree_read(span: &Span<'_>) -> bool {
    tree_else_process(span.keys().map(|key| &key.scope), |scope| {
        *scope == Scope::Tree
    })
}

/// Whether the process has children, or their number is not known. Without children, the difference between the tree and the
/// process is only the error of the two times.
pub(super) fn may_have_children(span: &Span<'_>) -> bool {
    let processes = span.of(&PROCESS_COUNT, &Scope::Tree, &[]).mean();
    processes.is_none_or(|mean| mean > 1.0)
}

/// Growth per second of a counter of this process and its children, summed over values with these attributes. If the
/// children are not read in this run, that of this process alone.
pub(super) fn rate_of_tree(
    span: &Span<'_>,
    metric: &'static Metric,
    values: &[Attributes],
) -> Option<f64> {
    let rate = |scope: Scope| sum(values, |value| span.of(metric, &scope, value).rate());
    let Some(own) = rate(Scope::Process) else {
        return rate(Scope::Tree);
    };
    if !is_tree_read(span) {
        return Some(own);
    }
    Some(own + rate_of_children(span, metric, values)?)
}

/// Growth per second of a counter of the children of this process and their descendants. `None` if they are not read.
fn rate_of_children(
    span: &Span<'_>,
    metric: &'static Metric,
    values: &[Attributes],
) -> Option<f64> {
    if !may_have_children(span) {
        return Some(0.0);
    }
    let difference = |value| span.rate_of_difference(metric, value, &Scope::Tree, &Scope::Process);
    Some(sum(values, difference)?.max(0.0))
}

/// Mean number of cores that this process and its children use.
pub(super) fn cores_of_tree(span: &Span<'_>) -> Option<f64> {
    rate_of_tree(span, &PROCESS_CPU_TIME, CPU_MODES)
}

/// Mean number of cores that the children of this process and their descendants use; `None` if they are not read.
pub(super) fn cores_of_children(span: &Span<'_>) -> Option<f64> {
    rate_of_children(span, &PROCESS_CPU_TIME, CPU_MODES)
}

/// Sum of the rates of all values; `None` if one is unknown.
fn sum(values: &[Attributes], rate: impl Fn(Attributes) -> Option<f64>) -> Option<f64> {
    values.iter().map(|value| rate(value)).sum()
}
