//! Counts spans of a Rust program as stages, for a loader that is already instrumented with `tracing`.
//!
//! Each span is one call of a stage, and the span's name is the stage's name. The duration of a call is
//! the time for which its span is entered. A future's span is entered only while it is polled, so
//! waiting at an `.await` is not included. A span entered within another one on the same thread counts
//! as part of it. Spans entered on several threads at once are concurrent calls.
//!
//! The user selects which spans are stages with a filter on this layer:
//!
//! ```
//! use headspace_agent::port::MonotonicClock;
//! use headspace_collectors::tracing::StageLayer;
//! use tracing_subscriber::Layer;
//! use tracing_subscriber::filter::{LevelFilter, Targets};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let clock = MonotonicClock::new(); // The agent's own.
//! let stages = StageLayer::new(&clock)?;
//! let region = stages.region(); // For `AgentBuilder::stages`.
//! let ours = Targets::new().with_target("my_loader", LevelFilter::INFO);
//! let subscriber = tracing_subscriber::registry().with(stages.with_filter(ours));
//! tracing::subscriber::with_default(subscriber, || {
//!     tracing::info_span!(target: "my_loader", "decode").in_scope(|| ());
//! });
//! assert_eq!(region.stages[0].name.get().as_deref(), Some("decode"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! headspace's own spans are never stages. Use only one such layer per subscriber: a second one would
//! count the same spans in its place. Entering and leaving a span costs two time stamps, a few atomic
//! additions, and two acquisitions of the lock with which `tracing_subscriber` protects the span's
//! data.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::{PoisonError, RwLock};

use ::tracing::callsite::Identifier;
use ::tracing::span::{Attributes, Id};
use ::tracing::{Metadata, Subscriber};
use headspace_agent::port::MonotonicClock;
use headspace_agent::recording::stage::slot::Outcome;
use headspace_agent::recording::stage::{Entered, Region, Slots};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::numbered_slot::NumberedSlot;

/// Target prefixes of headspace's own spans.
const OWN_TARGETS: [&str; 3] = [
    "headspace_agent",
    "headspace_collectors",
    "headspace_exporters",
];

/// Counts spans as calls of stages.
#[derive(Debug)]
pub struct StageLayer {
    slots: Slots,
    clock: MonotonicClock,
    /// The slots of known spans, by call site; `None` for spans without room.
    known: RwLock<HashMap<Identifier, Option<NumberedSlot>>>,
}

/// A span that is currently entered on this thread.
struct Open {
    /// The layer's address: a thread may see spans of several subscribers.
    layer: usize,
    span: u64,
    stage: NumberedSlot,
    entered: Entered,
    /// How many times the span was entered within itself.
    again: u32,
    /// Nanoseconds in nested spans.
    nested: u64,
}

/// The time of a span so far, stored with the span.
#[derive(Debug, Clone, Copy, Default)]
struct Call {
    parts: u64,
    busy: u64,
    nested: u64,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// The spans entered on this thread; `None` while the thread ends.
fn with_open<R>(work: impl FnOnce(&mut Vec<Open>) -> Option<R>) -> Option<R> {
    let in_open = |open: &RefCell<Vec<Open>>| work(&mut *open.try_borrow_mut().ok()?);
    OPEN.try_with(in_open).ok().flatten()
}

impl StageLayer {
    /// A layer with room for the stages of this process, measured on the agent's clock.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot provide memory.
    pub fn new(clock: &MonotonicClock) -> io::Result<Self> {
        Ok(Self {
            slots: Slots::new(Region::private()?),
            clock: clock.clone(),
            known: RwLock::default(),
        })
    }

    /// The layer's counters, for the agent to read.
    pub fn region(&self) -> &'static Region {
        self.slots.region()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self.slots.region()).addr()
    }

    fn stage_slot(&self, metadata: &'static Metadata<'static>) -> Option<NumberedSlot> {
        let target = metadata.target();
        if OWN_TARGETS.iter().any(|own| target.starts_with(own)) {
            return None;
        }
        let callsite = metadata.callsite();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = known.get(&callsite) {
            return *stage;
        }
        drop(known);
        let stage = NumberedSlot::of_stage(&self.slots, metadata.name());
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(callsite, stage);
        stage
    }

    fn enter(&self, span: u64, stage: NumberedSlot) {
        let layer = self.address();
        with_open(|open| {
            let is_same = |open: &&mut Open| (open.layer, open.span) == (layer, span);
            if let Some(same) = open.iter_mut().rev().find(is_same) {
                same.again += 1;
                return Some(());
            }
            let around = open.iter().rev().find(|open| open.layer == layer);
            let within = around.map_or(0, |around| around.stage.number);
            stage.slot.note_within(stage.number, within);
            open.push(Open {
                layer,
                span,
                stage,
                entered: stage.slot.enter(&self.clock, true),
                again: 0,
                nested: 0,
            });
            Some(())
        });
    }

    /// Leaves a span. Returns the total time since it was entered, and the part in nested spans.
    fn exit(&self, span: u64) -> Option<Call> {
        let layer = self.address();
        with_open(|open| {
            let index = open
                .iter()
                .rposition(|open| (open.layer, open.span) == (layer, span))?;
            if open[index].again > 0 {
                open[index].again -= 1;
                return None;
            }
            let left = open.remove(index);
            let busy = left.stage.slot.suspend(&self.clock, left.entered);
            // A span that is left before its inner spans does not contain them.
            if index == open.len()
                && let Some(around) = open.iter_mut().rev().find(|open| open.layer == layer)
            {
                around.nested = around.nested.saturating_add(busy);
            }
            Some(Call {
                parts: 1,
                busy,
                nested: left.nested,
            })
        })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for StageLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if self.stage_slot(attributes.metadata()).is_some()
            && let Some(span) = context.span(id)
        {
            span.extensions_mut().replace(Call::default());
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(stage) = self.stage_slot(span.metadata())
        {
            self.enter(id.into_u64(), stage);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(part) = self.exit(id.into_u64())
            && let Some(span) = context.span(id)
            && let Some(call) = span.extensions_mut().get_mut::<Call>()
        {
            call.parts += part.parts;
            call.busy = call.busy.saturating_add(part.busy);
            call.nested = call.nested.saturating_add(part.nested);
        }
    }

    /// Ends the call. A span that was never entered is not a call.
    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let call = span.extensions_mut().remove::<Call>();
        if let Some(call) = call.filter(|call| call.parts > 0)
            && let Some(stage) = self.stage_slot(span.metadata())
        {
            let outcome = Outcome {
                nested: call.nested,
                ..Outcome::default()
            };
            stage.slot.record(call.busy, outcome);
        }
    }
}

#[cfg(test)]
mod tests;
