//! Finds the smallest capacity of the last queue with which the step stays about as long, and the memory that it frees.
//!
//! A smaller queue gains no time, so it is not a remedy. The step with it comes from the simulation, which assumes that
//! the calls of a stage are slow independently of each other. A queue that is often full and often empty absorbs
//! something else, such as a stall of the storage or a pause of the loop. For such a queue, nothing is proposed.

use super::attribution_result::SmallerBuffer;
use super::law_terms::at_least;
use super::prediction::Predictor;
use super::queueing_model::Model;
use super::simulation::SimulatedPipeline;
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::{ChangeRecord, QueueSummary, Setting};

/// Returns `None` if no much smaller capacity is enough, if little memory would be freed, or if the simulation does not
/// reproduce the measured step.
pub(super) fn smaller_buffer(predictor: &Predictor<'_>) -> Option<SmallerBuffer> {
    let model = predictor.model;
    let error = predictor.error()?;
    if model.simulated.inline || error > model.thresholds.max_smaller_buffer_error {
        return None;
    }
    let buffer = LastBuffer::of(model)?;
    let (to, predicted_step_ms) = smallest_sufficient(predictor, &buffer)?;
    let freed_items = buffer.held - f64::from(to * buffer.servers);
    let freed_bytes = bytes_per_item(model).map(|bytes| freed_items * bytes);
    let is_much = freed_items >= counts::MIN_FREED_ITEMS
        && freed_bytes.is_none_or(|bytes| bytes >= counts::MIN_FREED_BYTES);
    (is_much && to <= buffer.capacity / counts::LESS_BUFFER).then(|| SmallerBuffer {
        change: buffer.change(to),
        queue: buffer.queue.name.clone(),
        from: buffer.capacity * buffer.servers,
        to: to * buffer.servers,
        predicted_step_ms,
        freed_items,
        freed_bytes,
        confidence: confidence::of_prediction(confidence::SMALLER_BUFFER, Some(error)),
    })
}

/// The queue from which the loop takes its batches.
struct LastBuffer<'a> {
    queue: &'a QueueSummary,
    /// Capacity as its setting has it: items, or batches that each of torch's workers prefetches.
    capacity: u32,
    /// 1, or the number of torch's workers.
    servers: u32,
    /// Mean number of items in the queue.
    held: f64,
    is_prefetch: bool,
}

impl<'a> LastBuffer<'a> {
    fn of(model: &Model<'a>) -> Option<Self> {
        let station = model.simulated.stations.last()?;
        let queue = model.nodes.last()?.after?;
        let (capacity, servers) = match station.ahead {
            Some(ahead) => (ahead, station.servers),
            None if queue.last => (queue.capacity?, 1),
            None => return None,
        };
        let often = model.thresholds.swinging_queue_pct;
        let swings = at_least(queue.empty_pct, often) && at_least(queue.full_pct, often);
        (!swings).then_some(Self {
            queue,
            capacity,
            servers,
            held: queue.depth?,
            is_prefetch: station.ahead.is_some(),
        })
    }

    /// The pipeline with another capacity.
    fn changed(&self, model: &Model<'_>, capacity: u32) -> SimulatedPipeline {
        let mut simulated = model.simulated.clone();
        if let Some(station) = simulated.stations.last_mut() {
            if self.is_prefetch {
                station.ahead = Some(capacity);
            } else {
                station.room = capacity;
            }
        }
        simulated
    }

    fn change(&self, to: u32) -> ChangeRecord {
        let (target, setting) = if self.is_prefetch {
            (None, Setting::PrefetchFactor)
        } else {
            (Some(self.queue.name.as_str()), Setting::Capacity)
        };
        ChangeRecord::new(target, setting, self.capacity.to_string(), to.to_string())
    }
}

/// The smallest capacity with which the predicted step is within the allowed share of the shortest one, and that step.
///
/// A long queue is not full at the end of a short simulation, so the simulated step with it may be too long. The
/// shortest step with any tried capacity is the reference.
fn smallest_sufficient(predictor: &Predictor<'_>, buffer: &LastBuffer<'_>) -> Option<(u32, f64)> {
    let model = predictor.model;
    let step_with = |capacity| predictor.step_ms(&buffer.changed(model, capacity));
    let sizes = std::iter::successors(Some(1_u32), |size| size.checked_mul(2));
    let tried: Vec<(u32, f64)> = (sizes.take_while(|size| *size < buffer.capacity))
        .map(|size| (size, step_with(size)))
        .collect();
    let measured = model.facts.step_ms;
    let shortest = (tried.iter().map(|(_, ms)| *ms)).fold(measured, f64::min);
    // Relative to the shortest one, so that a step shorter than now is not called a gain.
    let is_enough = |ms: f64| ms <= (1.0 + model.thresholds.allowed_longer_step) * shortest;
    let first = tried.iter().position(|(_, ms)| is_enough(*ms))?;
    let mut enough = tried[first];
    let mut too_small = first.checked_sub(1).map_or(0, |before| tried[before].0);
    while enough.0 - too_small > 1 {
        let middle = too_small + (enough.0 - too_small) / 2;
        let ms = step_with(middle);
        if is_enough(ms) {
            enough = (middle, ms);
        } else {
            too_small = middle;
        }
    }
    Some((enough.0, measured * (enough.1 / shortest).max(1.0)))
}

/// Bytes of an item of the last queue. `None` if the contents of a batch are unknown, or on a device.
fn bytes_per_item(model: &Model<'_>) -> Option<f64> {
    let loader = &model.facts.loader;
    let bytes = loader.delivered_batch.or(loader.batch)?.host_bytes()?;
    Some(bytes / model.simulated.batch)
}
