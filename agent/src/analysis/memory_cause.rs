//! What makes the memory grow, from counts of Python objects and an examination of those that become more.

use crate::model::census::{AutogradGraph, Examination, Examinations, GrownObjects};
use crate::model::record::{
    Estimate, GrownObjectsRecord, GrowthCause, MemoryGrowthRecord, MemoryScope,
};

/// Minimum part of the growth that a container or type accounts for, so that it is the cause. Sizes are estimated
/// from a few objects, and an allocator uses more memory than the objects: with a half, one leak in ten was called
/// native.
const LEAST_EXPLAINED: f64 = 0.3;

/// Minimum number of censuses from which on memory is called native. With fewer, growing containers are not known.
const FEWEST_FOR_NATIVE: u64 = 3;

/// A growth of memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryGrowth {
    /// How fast it grows.
    pub bytes_per_step: Estimate,
    /// The processes whose memory grows.
    pub scope: MemoryScope,
    /// Steps per second meanwhile.
    pub steps_per_s: f64,
}

/// The last queue of the training process, while it fills.
#[derive(Debug, Clone, Copy)]
pub struct FillingQueue {
    /// Items that it can hold.
    pub capacity: u32,
    /// How fast its number of items rises.
    pub items_per_step: f64,
    /// Size of an item.
    pub item_bytes: f64,
}

/// What makes the memory grow. `None` if no examination took place and no queue explains the growth. `queue` is only
/// called if the examined objects may be those in the queue.
pub fn growth_cause(
    growth: MemoryGrowth,
    examinations: Option<&Examinations>,
    queue: impl FnOnce() -> Option<FillingQueue>,
) -> Option<MemoryGrowthRecord> {
    let MemoryGrowth {
        bytes_per_step,
        scope,
        steps_per_s,
    } = growth;
    let examined = examinations.and_then(|examinations| match scope {
        MemoryScope::Process => memory_cause(bytes_per_step, steps_per_s, examinations),
        MemoryScope::Children => worker_cause(bytes_per_step, steps_per_s, examinations),
    });
    if scope == MemoryScope::Children || !examined.as_ref().is_none_or(is_possibly_queued) {
        return examined;
    }
    queue()
        .and_then(|queue| queue_cause(bytes_per_step, queue))
        .or(examined)
}

/// Whether the objects may be those in a queue: they become more, in no growing container.
fn is_possibly_queued(found: &MemoryGrowthRecord) -> bool {
    match found.cause {
        GrowthCause::Native => true,
        GrowthCause::Objects => (found.objects.first()).is_none_or(|first| !first.is_container),
        GrowthCause::AutogradGraph | GrowthCause::BoundedBuffer => false,
    }
}

/// The cause of a growth of the training process's memory, in bytes per step. `None` if no examination took place.
fn memory_cause(
    growth: Estimate,
    steps_per_s: f64,
    examinations: &Examinations,
) -> Option<MemoryGrowthRecord> {
    let last = examinations.last.as_ref()?;
    let before = examinations.before.as_ref();
    cause(growth, steps_per_s, last, before)
}

/// What makes the memory of the children grow: the cause in the worker that grows most. Workers usually do the same, so
/// each accounts for its part of the growth.
fn worker_cause(
    growth: Estimate,
    steps_per_s: f64,
    examinations: &Examinations,
) -> Option<MemoryGrowthRecord> {
    let part = 1.0 / examinations.workers.len().max(1) as f64;
    let growth = Estimate {
        value: part * growth.value,
        low: part * growth.low,
        high: part * growth.high,
    };
    let workers = examinations.workers.iter().filter_map(|worker| {
        Some(MemoryGrowthRecord {
            worker: Some(worker.name.clone()),
            ..cause(growth, steps_per_s, &worker.examination, None)?
        })
    });
    workers.max_by(|a, b| {
        a.explained_bytes_per_step
            .total_cmp(&b.explained_bytes_per_step)
    })
}

/// A declared queue that fills, as the cause of a growth that no counted object explains.
fn queue_cause(growth: Estimate, queue: FillingQueue) -> Option<MemoryGrowthRecord> {
    let explained = queue.items_per_step * queue.item_bytes;
    (explained >= LEAST_EXPLAINED * growth.low).then(|| MemoryGrowthRecord {
        cause: GrowthCause::BoundedBuffer,
        worker: None,
        explained_bytes_per_step: explained,
        objects: vec![GrownObjectsRecord {
            type_name: "headspace.queue".to_owned(),
            is_container: true,
            count_per_step: queue.items_per_step,
            bytes_per_step: Some(explained),
            most_items: Some(u64::from(queue.capacity)),
            ..GrownObjectsRecord::default()
        }],
    })
}

fn cause(
    growth: Estimate,
    steps_per_s: f64,
    examination: &Examination,
    earlier: Option<&Examination>,
) -> Option<MemoryGrowthRecord> {
    let mut grown: Vec<&GrownObjects> = examination.objects.iter().collect();
    let bytes_per_s = |grown: &GrownObjects| grown.per_s * grown.bytes_each;
    grown.sort_by(|a, b| bytes_per_s(b).total_cmp(&bytes_per_s(a)));
    let record = |grown: &&GrownObjects| objects_record(grown, steps_per_s);
    let mut objects: Vec<GrownObjectsRecord> = grown.iter().map(record).collect();
    let most = objects.first().and_then(|record| record.bytes_per_step);
    let most = most.unwrap_or(0.0);
    let is_explained = most >= LEAST_EXPLAINED * growth.low;
    let graph = earlier.and_then(|earlier| growing_graph(examination, earlier, steps_per_s));
    // A graph also keeps tensors, which no Python object holds: they become more as objects of their type.
    let in_container = objects.first().is_some_and(|first| first.is_container);
    let with_graphs = grown.iter().position(|grown| grown.keep_graphs);
    let with_graphs = with_graphs.filter(|_| graph.is_none() && !(is_explained && in_container));
    if let Some(place) = with_graphs {
        objects[..=place].rotate_right(1);
    }
    let is_graph = with_graphs.is_some();
    let cause = match (objects.first_mut(), graph) {
        (_, Some(graph)) if !(is_explained && in_container) => {
            objects.insert(0, graph);
            GrowthCause::AutogradGraph
        }
        (Some(first), _) if is_graph && first.most_items.is_some() => GrowthCause::BoundedBuffer,
        (Some(first), _) if is_graph => {
            first.bytes_per_step = None;
            GrowthCause::AutogradGraph
        }
        (Some(first), _) if is_explained && first.most_items.is_some() => {
            GrowthCause::BoundedBuffer
        }
        (Some(_), _) if is_explained => GrowthCause::Objects,
        // The containers that grow may not be known yet, or their growth.
        _ if earlier.is_none() || examination.censuses < FEWEST_FOR_NATIVE => return None,
        _ => GrowthCause::Native,
    };
    Some(MemoryGrowthRecord {
        cause,
        worker: None,
        explained_bytes_per_step: most,
        objects,
    })
}

fn objects_record(grown: &GrownObjects, steps_per_s: f64) -> GrownObjectsRecord {
    let count_per_step = grown.per_s / steps_per_s;
    GrownObjectsRecord {
        type_name: grown.type_name.clone(),
        is_container: grown.is_container,
        items: grown.items.clone(),
        count_per_step,
        bytes_per_step: Some(count_per_step * grown.bytes_each),
        most_items: grown.most_items,
        holders: grown.holders.clone(),
        site: grown.site.clone(),
    }
}

/// The graph that grew most since the earlier examination. An operation on a tensor makes another tensor, so a
/// graph belongs to a variable: it is identified by its holder.
fn growing_graph(
    now: &Examination,
    earlier: &Examination,
    steps_per_s: f64,
) -> Option<GrownObjectsRecord> {
    let seconds = now.at_s - earlier.at_s;
    let growth = |graph: &AutogradGraph| {
        let variable = |graph: &AutogradGraph| {
            let names = graph.holders.iter();
            names
                .map(|h| (h.kind, h.name.clone(), h.of.clone()))
                .collect::<Vec<_>>()
        };
        let before = earlier
            .graphs
            .iter()
            .find(|other| variable(other) == variable(graph));
        graph.nodes.checked_sub(before?.nodes)
    };
    let largest = now.graphs.iter().max_by_key(|graph| growth(graph))?;
    let nodes = growth(largest).filter(|nodes| *nodes > 0 && seconds > 0.0)?;
    Some(GrownObjectsRecord {
        type_name: largest.type_name.clone(),
        count_per_step: nodes as f64 / seconds / steps_per_s,
        holders: largest.holders.clone(),
        ..GrownObjectsRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::census::WorkerExamination;
    use crate::model::record::{HolderKind, HolderRecord};

    const GROWTH: Estimate = Estimate {
        value: 1000.0,
        low: 900.0,
        high: 1100.0,
    };

    fn container(bytes_each: f64) -> GrownObjects {
        GrownObjects {
            per_s: 100.0,
            is_container: true,
            type_name: "list".to_owned(),
            bytes_each,
            ..GrownObjects::default()
        }
    }

    fn graph(nodes: u64) -> AutogradGraph {
        AutogradGraph {
            nodes,
            type_name: "torch.Tensor float32[] AddBackward0".to_owned(),
            holders: vec![HolderRecord {
                kind: HolderKind::Local,
                name: "total".to_owned(),
                of: Some("train".to_owned()),
                site: None,
            }],
        }
    }

    fn examined(objects: &[GrownObjects], nodes: &[u64]) -> Option<MemoryGrowthRecord> {
        let at = |at_s, nodes: Option<&u64>| Examination {
            at_s,
            censuses: 5,
            objects: objects.to_vec(),
            graphs: nodes.map(|nodes| graph(*nodes)).into_iter().collect(),
        };
        let examinations = Examinations {
            before: Some(at(10.0, nodes.first())),
            last: Some(at(12.0, nodes.get(1))),
            workers: Vec::new(),
        };
        memory_cause(GROWTH, 100.0, &examinations)
    }

    #[test]
    fn a_container_that_accounts_for_the_growth_is_the_cause() {
        let found = examined(&[container(10.0), container(950.0)], &[]).unwrap();
        assert_eq!(found.cause, GrowthCause::Objects);
        assert!((found.explained_bytes_per_step - 950.0).abs() < 1e-9);
        // Tensors in a container may have a graph, too.
        let found = examined(&[container(950.0)], &[200, 400]).unwrap();
        assert_eq!(found.cause, GrowthCause::Objects);
    }

    #[test]
    fn a_container_with_a_maximum_size_is_no_leak() {
        let buffer = GrownObjects {
            most_items: Some(200),
            ..container(950.0)
        };
        let found = examined(&[buffer], &[]).unwrap();
        assert_eq!(found.cause, GrowthCause::BoundedBuffer);
    }

    #[test]
    fn a_graph_that_grows_is_the_cause_although_it_keeps_tensors() {
        let tensors = GrownObjects {
            is_container: false,
            ..container(950.0)
        };
        let found = examined(&[tensors], &[200, 400]).unwrap();
        assert_eq!(found.cause, GrowthCause::AutogradGraph);
        assert!((found.objects[0].count_per_step - 1.0).abs() < 1e-9);
        let constant = examined(&[], &[400, 400]).unwrap();
        assert_eq!(constant.cause, GrowthCause::Native);
    }

    #[test]
    fn a_container_of_small_tensors_that_keep_graphs_is_the_cause() {
        let losses = GrownObjects {
            keep_graphs: true,
            ..container(40.0)
        };
        let saved_by_graphs = GrownObjects {
            is_container: false,
            ..container(900.0)
        };
        let found = examined(&[saved_by_graphs.clone(), losses.clone()], &[]).unwrap();
        assert_eq!(found.cause, GrowthCause::AutogradGraph);
        assert_eq!(found.objects.len(), 2);
        assert_eq!(found.objects[0].bytes_per_step, None);
        let last_losses = GrownObjects {
            most_items: Some(100),
            ..losses
        };
        let found = examined(&[saved_by_graphs, last_losses], &[]).unwrap();
        assert_eq!(found.cause, GrowthCause::BoundedBuffer);
    }

    #[test]
    fn each_of_several_workers_accounts_for_its_part_of_the_growth() {
        let worker = |number: usize| WorkerExamination {
            name: format!("worker {number}"),
            examination: Examination {
                censuses: 5,
                objects: vec![container(240.0 + number as f64)],
                ..Examination::default()
            },
        };
        let examinations = Examinations {
            workers: (0..4).map(worker).collect(),
            ..Examinations::default()
        };
        let found = worker_cause(GROWTH, 100.0, &examinations).unwrap();
        assert_eq!(found.cause, GrowthCause::Objects);
        assert_eq!(found.worker.as_deref(), Some("worker 3"));
    }

    #[test]
    fn a_queue_that_fills_fast_enough_is_the_cause() {
        let cause = |items_per_step| {
            let queue = FillingQueue {
                capacity: 200,
                items_per_step,
                item_bytes: 1000.0,
            };
            queue_cause(GROWTH, queue)
        };
        let found = cause(0.6).unwrap();
        assert_eq!(found.cause, GrowthCause::BoundedBuffer);
        assert_eq!(found.objects[0].most_items, Some(200));
        assert_eq!(cause(0.1), None);
    }

    #[test]
    fn without_growing_objects_memory_is_native_after_two_examinations() {
        assert_eq!(examined(&[], &[]).unwrap().cause, GrowthCause::Native);
        assert_eq!(
            examined(&[container(10.0)], &[]).unwrap().cause,
            GrowthCause::Native
        );
        let once = Examinations {
            last: Some(Examination {
                censuses: 5,
                ..Examination::default()
            }),
            ..Examinations::default()
        };
        assert_eq!(memory_cause(GROWTH, 100.0, &once), None);
    }
}
