use std::sync::atomic::Ordering::Relaxed;

use ::opentelemetry::trace::{SpanBuilder, Tracer, TracerProvider};
use headspace_agent::recording::stage::StageSlot;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use super::*;

struct Program {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    region: &'static Region,
}

fn program(sampler: Sampler) -> Program {
    let stages = StageSpanProcessor::new(&MonotonicClock::new(), "loader.").unwrap();
    let region = stages.region();
    let provider = SdkTracerProvider::builder()
        .with_sampler(sampler)
        .with_span_processor(stages)
        .build();
    let tracer = provider.tracer("test");
    Program {
        provider,
        tracer,
        region,
    }
}

/// The slot of that stage, and its number plus 1.
fn slot(program: &Program, name: &str) -> (&'static StageSlot, u32) {
    let found = (1..)
        .zip(&program.region.stages)
        .find(|(_, slot)| slot.name.get().as_deref() == Some(name));
    let (number, slot) = found.unwrap_or_else(|| panic!("no stage `{name}`"));
    (slot, number)
}

#[test]
fn a_selected_span_is_a_call_and_a_part_of_the_selected_span_around_it() {
    let program = program(Sampler::AlwaysOn);
    let tracer = &program.tracer;
    for _ in 0..3 {
        tracer.in_span("loader.load", |_| {
            tracer.in_span("between", |_| {
                tracer.in_span("loader.decode", |_| {
                    std::hint::black_box([0_u8; 4096]);
                });
            });
        });
    }

    let ((load, number), (decode, _)) = (
        slot(&program, "loader.load"),
        slot(&program, "loader.decode"),
    );
    assert_eq!(
        (load.exited.load(Relaxed), decode.exited.load(Relaxed)),
        (3, 3)
    );
    assert_eq!(
        (load.within.load(Relaxed), decode.within.load(Relaxed)),
        (0, number)
    );
    let decoding = decode.busy.load(Relaxed);
    assert!(decoding > 0);
    assert_eq!(load.nested.load(Relaxed), decoding);
    assert!(load.busy.load(Relaxed) >= decoding);
    let names = program
        .region
        .stages
        .iter()
        .map_while(|slot| slot.name.get());
    assert_eq!(names.count(), 2, "`between` is no stage");
}

#[test]
fn a_span_with_an_error_status_is_a_failed_call() {
    let program = program(Sampler::AlwaysOn);
    program.tracer.in_span("loader.read", |span| {
        span.span().set_status(Status::error("no such file"));
    });

    let (read, _) = slot(&program, "loader.read");
    assert_eq!(
        (read.exited.load(Relaxed), read.failed.load(Relaxed)),
        (1, 1)
    );
}

#[test]
fn a_span_may_end_on_another_thread() {
    let program = program(Sampler::AlwaysOn);
    let mut span = program.tracer.build(SpanBuilder::from_name("loader.fetch"));
    std::thread::spawn(move || span.end()).join().unwrap();

    let (fetch, _) = slot(&program, "loader.fetch");
    assert_eq!(
        (fetch.entered.load(Relaxed), fetch.exited.load(Relaxed)),
        (1, 1)
    );
}

#[test]
fn a_call_in_progress_at_the_shutdown_and_spans_that_are_not_recorded_are_not_counted() {
    let on = program(Sampler::AlwaysOn);
    let span = on.tracer.build(SpanBuilder::from_name("loader.fetch"));
    on.provider.shutdown().unwrap();
    drop(span);
    let (fetch, _) = slot(&on, "loader.fetch");
    assert_eq!(
        (fetch.entered.load(Relaxed), fetch.exited.load(Relaxed)),
        (0, 0)
    );

    let off = program(Sampler::AlwaysOff);
    off.tracer.in_span("loader.fetch", |_| ());
    assert_eq!(off.region.stages[0].name.get(), None);
}
