//! Counts OpenTelemetry spans of a Rust program as stages, for a loader that is already instrumented with them.
//!
//! Each span whose name begins with the given prefix is one call of a stage, and the span's name is the stage's
//! name. A call lasts from the start of its span to the end. A span with an error status is a failed call. If a
//! selected span is inside another selected span, its stage counts as a part of the outer stage, even if there
//! are other spans in between. Spans are exported as before.
//!
//! ```
//! use headspace_agent::port::MonotonicClock;
//! use headspace_collectors::opentelemetry::StageSpanProcessor;
//! use opentelemetry::trace::{Tracer, TracerProvider};
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//!
//! let clock = MonotonicClock::new(); // The agent's own.
//! let stages = StageSpanProcessor::new(&clock, "loader.")?;
//! let region = stages.region(); // For `AgentBuilder::stages`.
//! let provider = SdkTracerProvider::builder().with_span_processor(stages).build();
//! provider.tracer("my_loader").in_span("loader.decode", |_| ());
//! assert_eq!(region.stages[0].name.get().as_deref(), Some("loader.decode"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Names are kept until the process ends, so the name of a span should be a kind of work, not a file. For spans
//! of the crate `tracing`, use [`tracing::StageLayer`](crate::tracing::StageLayer): it also measures CPU time.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use ::opentelemetry::Context;
use ::opentelemetry::trace::{Span as _, SpanContext, SpanId, Status, TraceContextExt, TraceId};
use headspace_agent::lock::lock;
use headspace_agent::port::MonotonicClock;
use headspace_agent::recording::stage::slot::{Outcome, Writers};
use headspace_agent::recording::stage::{Entered, Region, Slots};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

use crate::numbered_slot::NumberedSlot;

/// Counts selected spans as calls of stages, from any thread or task.
#[derive(Debug)]
pub struct StageSpanProcessor {
    slots: Slots,
    clock: MonotonicClock,
    prefix: String,
    open: Mutex<HashMap<SpanKey, OpenSpan>>,
}

type SpanKey = (TraceId, SpanId);

/// A span that has started and has not ended.
#[derive(Debug)]
enum OpenSpan {
    /// A call of a stage.
    Call {
        stage: NumberedSlot,
        entered: Entered,
        /// Nanoseconds in nested calls.
        nested: u64,
        /// The call that contains it.
        around: Option<SpanKey>,
    },
    /// Not a call, but inside this call.
    Inside(SpanKey),
}

impl StageSpanProcessor {
    /// A processor with room for the stages of this process, measured on the agent's clock. Spans whose names
    /// begin with `prefix` are stages; with an empty prefix, all spans are.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot provide memory.
    pub fn new(clock: &MonotonicClock, prefix: impl Into<String>) -> io::Result<Self> {
        Ok(Self {
            slots: Slots::new(Region::private()?),
            clock: clock.clone(),
            prefix: prefix.into(),
            open: Mutex::default(),
        })
    }

    /// The processor's counters, for the agent to read.
    pub fn region(&self) -> &'static Region {
        self.slots.region()
    }

    fn start(&self, span: SpanKey, name: &str, parent: SpanKey) {
        let mut open = lock(&self.open);
        let around = match open.get(&parent) {
            Some(OpenSpan::Call { .. }) => Some(parent),
            Some(OpenSpan::Inside(call)) => Some(*call),
            None => None,
        };
        let stage = (name.starts_with(&self.prefix))
            .then(|| NumberedSlot::of_stage(&self.slots, name))
            .flatten();
        if let Some(stage) = stage {
            let within = match around.and_then(|call| open.get(&call)) {
                Some(OpenSpan::Call { stage, .. }) => stage.number,
                _ => 0,
            };
            stage.slot.note_within(stage.number, within);
            let call = OpenSpan::Call {
                stage,
                // The span may end on another thread.
                entered: stage.slot.enter(&self.clock, false),
                nested: 0,
                around,
            };
            open.insert(span, call);
        } else if let Some(call) = around {
            open.insert(span, OpenSpan::Inside(call));
        }
    }

    fn end(&self, span: SpanKey, failed: bool) {
        let mut open = lock(&self.open);
        let Some(OpenSpan::Call {
            stage,
            entered,
            nested,
            around,
        }) = open.remove(&span)
        else {
            return;
        };
        let outcome = Outcome {
            failed,
            nested,
            ..Outcome::default()
        };
        let took = stage.slot.exit(&self.clock, entered, outcome);
        if let Some(OpenSpan::Call { nested, .. }) = around.and_then(|call| open.get_mut(&call)) {
            *nested = nested.saturating_add(took);
        }
    }
}

fn key(context: &SpanContext) -> SpanKey {
    (context.trace_id(), context.span_id())
}

impl SpanProcessor for StageSpanProcessor {
    fn on_start(&self, span: &mut Span, parent: &Context) {
        // A span that is not recorded has no data, and its end is not reported.
        if let Some(data) = span.exported_data() {
            let parent = key(parent.span().span_context());
            self.start(key(span.span_context()), &data.name, parent);
        }
    }

    fn on_end(&self, span: SpanData) {
        let failed = matches!(span.status, Status::Error { .. });
        self.end(key(&span.span_context), failed);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Ends the processor. Calls in progress are not counted.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        for (_, span) in lock(&self.open).drain() {
            if let OpenSpan::Call { stage, .. } = span {
                stage.slot.abandon_as(Writers::Many);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
