//! Rates of this process and its children together, which are read at different times.

use crate::model::metric::{Metric, PROCESS_CPU_TIME};
use crate::model::reading::Attributes;
use crate::model::reading_series::Span;
use crate::model::{Scope, attributes};

/// Whether the children of the process are read in this run: `scopes` are those of all readings.
fn has_tree<'a>(mut scopes: impl Iterator<Item = &'a Scope>) -> bool {
    scopes.any(|scope| *scope == Scope::Tree)
}

/// Growth per second of a counter of this process and its children; of this process alone if its children are not read.
pub(super) fn rate_of_tree(
    span: &Span<'_>,
    metric: &'static Metric,
    attributes: Attributes,
) -> Option<f64> {
    let own = span.of(metric, &Scope::Process, attributes).rate();
    if !has_tree(span.keys().map(|key| &key.scope)) {
        return own;
    }
    own.zip(rate_of_children(span, metric, attributes))
        .map(|(own, children)| own + children)
        .or_else(|| span.of(metric, &Scope::Tree, attributes).rate())
}

/// Growth per second of a counter of the children of this process and their descendants.
///
/// The tree is read less often than the process. So its growth is compared with that of the process between the same
/// readings. If parts of the run are left out, such as replayed steps, the tree's readings may also cover these.
fn rate_of_children(
    span: &Span<'_>,
    metric: &'static Metric,
    attributes: Attributes,
) -> Option<f64> {
    let of = |scope| span.of(metric, &scope, attributes);
    let rate = of(Scope::Tree).rate_beyond(of(Scope::Process))?;
    Some(rate.max(0.0))
}

/// Mean number of cores that this process and its children use.
pub(super) fn cores_of_tree(span: &Span<'_>) -> Option<f64> {
    sum_of_modes(|mode| rate_of_tree(span, &PROCESS_CPU_TIME, mode))
}

/// Mean number of cores that the children of this process and their descendants use; `None` if they are not read.
pub(super) fn cores_of_children(span: &Span<'_>) -> Option<f64> {
    sum_of_modes(|mode| rate_of_children(span, &PROCESS_CPU_TIME, mode))
}

/// Sum of the rates of CPU time in user mode and in the kernel.
fn sum_of_modes(rate: impl Fn(Attributes) -> Option<f64>) -> Option<f64> {
    Some(rate(attributes::CPU_USER)? + rate(attributes::CPU_SYSTEM)?)
}

/// The value of the process with its children, if they are read in this run: `scopes` are those of all
/// readings. Otherwise that of the process alone.
pub fn tree_else_process<'a, T>(
    scopes: impl Iterator<Item = &'a Scope>,
    value: impl Fn(&Scope) -> T,
) -> T {
    value(if has_tree(scopes) {
        &Scope::Tree
    } else {
        &Scope::Process
    })
}
