//! Memory of this process and its children: its amount, its growth, and what is available.

use super::process_tree::may_have_children;
use super::tree_else_process;
use crate::analysis::growth::growth;
use crate::model::Scope;
use crate::model::metric::{
    CGROUP_MEMORY_LIMIT, HOST_MEMORY_AVAILABLE, Metric, PROCESS_MEMORY_ANONYMOUS,
    PROCESS_MEMORY_PROPORTIONAL,
};
use crate::model::reading_series::Span;
use crate::model::record::{Estimate, MemoryScope};

/// Minimum growth of memory that is reported, in bytes. The agent itself grows by less in its first minutes.
const LEAST_GROWTH: f64 = 4.0 * 1024.0 * 1024.0;

/// Memory at one reading, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeMemory {
    /// Of this process and its children, or of this process alone if its children are not read.
    pub(super) whole_tree: f64,
    /// Of the children; `None` if there were none, or if they are not read.
    pub(super) children: Option<f64>,
}

/// Minimum memory of the children at a reading at which workers run, as a share of their median memory. Chosen: a fork
/// server with torch alone has a third of what it has together with a worker that holds 1 GB of data.
const MIN_RUNNING_SHARE: f64 = 0.5;

/// The memory at the last reading at which workers ran. If there never were children, the memory at the last reading.
///
/// At the last reading of a run, the workers have often ended. Their fork server then still runs (the default start method
/// of `multiprocessing` from Python 3.14 on). If the workers had less memory than their fork server, this is not noticed.
pub(super) fn tree_memory(span: &Span<'_>, metric: &'static Metric) -> Option<TreeMemory> {
    let with_children: Vec<TreeReading> = tree_readings(span, metric)
        .filter(|reading| reading.children > 0.0)
        .collect();
    // The upper median: a short run may have two readings, of which the last one is after the workers' end.
    let mut sorted: Vec<f64> = with_children
        .iter()
        .map(|reading| reading.children)
        .collect();
    sorted.sort_by(f64::total_cmp);
    let threshold = MIN_RUNNING_SHARE * sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let running = with_children
        .iter()
        .rfind(|reading| reading.children >= threshold);
    if let Some(running) = running {
        return Some(TreeMemory {
            whole_tree: running.whole_tree,
            children: Some(running.children),
        });
    }
    let scopes = span.keys().map(|key| &key.scope);
    let last = tree_else_process(scopes, |scope| span.of(metric, scope, &[]).last())?;
    Some(TreeMemory {
        whole_tree: last,
        children: None,
    })
}

/// A reading of the memory of this process and its children.
struct TreeReading {
    /// Seconds since the run began.
    at_s: f64,
    /// Bytes of this process and its children.
    whole_tree: f64,
    /// Bytes of the children. May be negative, because the two are not read at exactly the same time.
    children: f64,
}

/// The readings of the memory of this process and its children.
fn tree_readings(span: &Span<'_>, metric: &'static Metric) -> impl Iterator<Item = TreeReading> {
    let of = |scope| span.of(metric, &scope, &[]);
    let readings = of(Scope::Tree).points_with(of(Scope::Process));
    readings.map(|(at_s, whole_tree, own)| TreeReading {
        at_s,
        whole_tree,
        children: whole_tree - own,
    })
}

/// Memory that this rank can still use, if all `ranks_on_node` ranks of the machine take as much as this one.
pub(super) fn memory_available(span: &Span<'_>, ranks_on_node: u32) -> Option<f64> {
    let ranks = f64::from(ranks_on_node);
    let machine = span.of(&HOST_MEMORY_AVAILABLE, &Scope::Host, &[]).last()?;
    let Some(limit) = span.of(&CGROUP_MEMORY_LIMIT, &Scope::Cgroup, &[]).last() else {
        return Some(machine / ranks);
    };
    let used = tree_memory(span, &PROCESS_MEMORY_PROPORTIONAL)?.whole_tree;
    Some((machine / ranks).min((limit / ranks - used).max(0.0)))
}

/// Growth of memory, and its scope: of this process, or, if that growth is not reported, of its children. Pages of files do
/// not count, because the kernel adds and drops them at any time.
pub(super) fn memory_growth(span: &Span<'_>, steps_per_s: f64) -> Option<(MemoryScope, Estimate)> {
    let metric = &PROCESS_MEMORY_ANONYMOUS;
    let in_steps = |(at_s, bytes): (f64, f64)| (at_s * steps_per_s, bytes);
    let own = span.of(metric, &Scope::Process, &[]).points();
    if let Some(growth) = reported_growth(own.map(in_steps).collect()) {
        return Some((MemoryScope::Process, growth));
    }
    if !may_have_children(span) {
        return None;
    }
    let children = tree_readings(span, metric).map(|reading| (reading.at_s, reading.children));
    let growth = reported_growth(children.map(in_steps).collect())?;
    Some((MemoryScope::Children, growth))
}

/// Growth of memory in bytes per step, if it is large enough. `points` are steps and bytes.
fn reported_growth(mut points: Vec<(f64, f64)>) -> Option<Estimate> {
    // The last reading may be after the loop, when the program has freed its data.
    points.pop();
    let steps = points.last()?.0 - points.first()?.0;
    let growth = growth(&points).ok()?;
    (growth.value * steps >= LEAST_GROWTH).then_some(growth)
}
