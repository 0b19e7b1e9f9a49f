//! Proposes changes to what worker processes pass to the training process, and how.
//!
//! A remedy changes the contents of a batch. The time of both ends of the hand-off is assumed to fall as the price of
//! the contents does ([`Price`]).

use super::super::candidates::{is_starved, receives_long};
use super::super::hand_off_cost::Price;
use super::super::law_terms::Term;
use super::super::queueing_model::Model;
use super::super::relief::scale_hand_off;
use super::super::simulation::Supply;
use super::action::Action;
use super::{Context, Draft};
use crate::analysis::thresholds::{confidence, counts};
use crate::model::record::BatchRecord;
use crate::model::stack::Activity;

pub(super) fn drafts(context: &Context<'_>) -> Vec<Draft> {
    let model = context.model;
    // A thread that waits for a core also takes long to receive a batch.
    let receives = receives_long(model) && !is_starved(model);
    if !receives && !context.binds(Term::HandOff) {
        return Vec::new();
    }
    let receive_ms = |batch| price(model, batch).receive_ms;
    let contents = model.facts.loader.batch.map_or_else(Vec::new, |batch| {
        let drafts = [
            pack_batch(model, batch),
            share_arrays(model, batch),
            smaller_tensors(batch),
        ];
        let with_change =
            |(action, changed)| draft(model, action, receive_ms(changed) / receive_ms(batch));
        drafts.into_iter().flatten().map(with_change).collect()
    });
    let messages = larger_messages(model);
    contents
        .into_iter()
        .chain(messages)
        .chain(load_in_threads(model))
        .collect()
}

/// The price of a batch with these contents.
fn price(model: &Model<'_>, batch: BatchRecord) -> Price {
    Price::of_batch(Some(batch), model.facts.shared_mib_ms, model.thresholds)
}

/// Time per batch that both ends of the hand-off save, in milliseconds, if workers send what the loop gets now. Negative
/// if that costs more. 0 if the contents are unknown, and if the loop receives the batches itself: then the thread that
/// holds the lock does not change them.
pub(super) fn saving_of_delivered_ms(model: &Model<'_>) -> f64 {
    let loader = &model.facts.loader;
    let both_ends_ms = |batch| {
        let price = price(model, batch);
        price.receive_ms + price.send_ms
    };
    let facts = model.facts;
    let loop_receives = facts.receive_ms >= model.thresholds.negligible_wait * facts.step_ms;
    (loader.batch.zip(loader.delivered_batch))
        .filter(|_| !loop_receives)
        .map_or(0.0, |(sent, delivered)| {
            both_ends_ms(sent) - both_ends_ms(delivered)
        })
}

/// A remedy after which the hand-off takes this share of its time now.
fn draft(model: &Model<'_>, action: Action, share: f64) -> Draft {
    if !receives_long(model) && model.send_delay.is_none() {
        return Draft::new(action, Term::HandOff, confidence::MINIMUM_GAIN);
    }
    Draft {
        changed: Some(scale_hand_off(model, share)),
        ..Draft::new(action, Term::HandOff, confidence::ASSUMED_GAIN)
    }
}

/// Joins the tensors and the many other objects of a batch.
fn pack_batch(model: &Model<'_>, batch: BatchRecord) -> Option<(Action, BatchRecord)> {
    let tensors = (batch.tensors > counts::PACKED_TENSORS).then_some(batch.tensors);
    let objects = (batch.objects >= counts::MANY_OBJECTS).then_some(batch.objects);
    tensors.or(objects)?;
    let joined = BatchRecord {
        tensors: batch.tensors.min(counts::PACKED_TENSORS),
        objects: match objects {
            Some(_) => 0,
            // The containers of the tensors go with them. Strings, arrays and numbers stay.
            None => batch.objects.saturating_sub(batch.tensors),
        },
        ..batch
    };
    let action = Action::PackBatch {
        tensors,
        objects,
        from_torch: is_from_torch(model),
    };
    Some((action, joined))
}

/// Whether workers of torch make the batches.
fn is_from_torch(model: &Model<'_>) -> bool {
    (model.facts.loader.workers).is_some_and(|workers| workers > 0)
}

/// Passes the bytes of arrays and strings as a tensor, in shared memory, instead of through a pipe. Only torch's
/// workers share the memory of tensors.
fn share_arrays(model: &Model<'_>, batch: BatchRecord) -> Option<(Action, BatchRecord)> {
    if !is_from_torch(model) || batch.object_bytes < counts::LARGE_PART_BYTES {
        return None;
    }
    let shared = BatchRecord {
        tensors: batch.tensors + 1,
        tensor_bytes: batch.tensor_bytes + batch.object_bytes,
        object_bytes: 0,
        ..batch
    };
    let bytes = batch.object_bytes;
    Some((Action::ShareArrays { bytes }, shared))
}

/// Halves the bytes of the tensors.
fn smaller_tensors(batch: BatchRecord) -> Option<(Action, BatchRecord)> {
    let bytes = batch.tensor_bytes;
    (bytes >= counts::LARGE_PART_BYTES).then(|| {
        let halved = BatchRecord {
            tensor_bytes: bytes / 2,
            ..batch
        };
        (Action::SmallerTensors { bytes }, halved)
    })
}

/// Passes several batches in one message. Only the cost of a message itself is saved, so it must be a large part.
fn larger_messages(model: &Model<'_>) -> Option<Draft> {
    let batches = counts::BATCHES_PER_MESSAGE;
    let message =
        model.thresholds.worker_batch_ms / price(model, model.facts.loader.batch?).receive_ms;
    let saved = message * (1.0 - 1.0 / f64::from(batches));
    let is_large = message >= model.thresholds.large_message_cost;
    (is_large && receives_long(model))
        .then(|| draft(model, Action::LargerMessages { batches }, 1.0 - saved))
}

/// Loads in threads, which pass a batch without a copy. Not if a call of the stage holds the interpreter lock for
/// long, because threads share that lock with the loop.
fn load_in_threads(model: &Model<'_>) -> Option<Draft> {
    let stage = model.workers.filter(|_| receives_long(model))?;
    let name = &model.nodes[stage].stage.name;
    let lines = model
        .facts
        .lines
        .iter()
        .filter(|line| line.place.stage() == Some(name));
    let (holding, others): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.activity == Activity::Python);
    if holding.is_empty() && others.is_empty() {
        return None;
    }
    let lock_share: f64 = holding.iter().map(|line| line.share).sum();
    if lock_share > model.thresholds.threads_lock_share {
        return None;
    }
    let mut simulated = scale_hand_off(model, 0.0);
    let station = &mut simulated.stations[stage];
    let lock_ms = lock_share * station.alone_ms();
    for (supply, ms) in &mut station.parts {
        if *supply == Supply::Cores {
            *ms = (*ms - lock_ms).max(0.0);
        }
    }
    station.parts.push((Supply::Gil, lock_ms));
    let threads = station.servers;
    let action = Action::LoadInThreads {
        threads,
        stage: name.clone(),
        lock_share,
    };
    Some(Draft {
        changed: Some(simulated),
        ..Draft::new(action, Term::HandOff, confidence::ASSUMED_GAIN)
    })
}
