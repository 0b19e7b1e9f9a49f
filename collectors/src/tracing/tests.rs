use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use ::tracing::{Dispatch, debug_span, dispatcher, info_span};
use headspace_agent::recording::stage::StageSlot;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// Work that takes that long.
const WORK: Duration = Duration::from_millis(3);

fn work() {
    let start = Instant::now();
    while start.elapsed() < WORK {
        std::hint::spin_loop();
    }
}

fn stages_at(filter: Targets) -> (Dispatch, &'static Region) {
    let layer = StageLayer::new(&MonotonicClock::new()).unwrap();
    let region = layer.region();
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    (Dispatch::new(subscriber), region)
}

fn stages() -> (Dispatch, &'static Region) {
    stages_at(Targets::new().with_default(LevelFilter::INFO))
}

/// The slot of that stage, and its number plus 1.
fn slot(region: &'static Region, name: &str) -> (&'static StageSlot, u32) {
    (1..)
        .zip(&region.stages)
        .find(|(_, slot)| slot.name.get().as_deref() == Some(name))
        .map_or_else(
            || panic!("no stage `{name}`"),
            |(number, slot)| (slot, number),
        )
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

#[test]
fn a_nested_span_is_a_nested_stage_and_part_of_the_outer_time() {
    let (subscriber, region) = stages();
    dispatcher::with_default(&subscriber, || {
        for _ in 0..3 {
            let _load = info_span!(target: "loader", "load").entered();
            info_span!(target: "loader", "decode").in_scope(work);
        }
    });

    let ((load, number), (decode, _)) = (slot(region, "load"), slot(region, "decode"));
    assert_eq!(load.exited.load(Relaxed), 3);
    assert_eq!(decode.exited.load(Relaxed), 3);
    assert_eq!(decode.within.load(Relaxed), number);
    assert_eq!(load.within.load(Relaxed), 0);
    let decoding = decode.busy.load(Relaxed);
    assert!(decoding >= 3 * nanos(WORK));
    assert_eq!(load.nested.load(Relaxed), decoding);
    assert!(load.busy.load(Relaxed) >= decoding);
    // A spin is CPU time.
    assert!(decode.cpu.load(Relaxed) > 0);
}

#[test]
fn a_span_that_is_entered_several_times_is_one_call_of_the_entered_time() {
    let (subscriber, region) = stages();
    dispatcher::with_default(&subscriber, || {
        let fetch = info_span!(target: "loader", "fetch");
        for _ in 0..4 {
            fetch.in_scope(work);
            work(); // Pending: the span is not entered.
        }
        let (slot, _) = slot(region, "fetch");
        assert_eq!(slot.exited.load(Relaxed), 0, "it goes on");
        assert_eq!(slot.entered.load(Relaxed), 0, "nobody is at it");
        // Within itself it is not counted twice.
        fetch.in_scope(|| fetch.in_scope(work));
        drop(fetch);
    });

    let (slot, _) = slot(region, "fetch");
    assert_eq!(slot.exited.load(Relaxed), 1);
    let busy = slot.busy.load(Relaxed);
    assert!(busy >= 5 * nanos(WORK), "{busy}");
    assert_eq!(slot.nested.load(Relaxed), 0);
}

#[test]
fn sibling_spans_on_several_threads_are_concurrent_calls() {
    let (subscriber, region) = stages();
    let together = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                dispatcher::with_default(&subscriber, || {
                    info_span!(target: "loader", "decode").in_scope(|| together.wait());
                });
            });
        }
    });

    let (slot, _) = slot(region, "decode");
    assert_eq!(slot.peak.load(Relaxed), 3);
    assert_eq!(slot.exited.load(Relaxed), 3);
}

#[test]
fn spans_outside_the_filter_and_spans_of_headspace_are_not_stages() {
    let filter = Targets::new()
        .with_target("my_loader", LevelFilter::DEBUG)
        .with_target("headspace_agent", LevelFilter::TRACE);
    let (subscriber, region) = stages_at(filter);
    dispatcher::with_default(&subscriber, || {
        debug_span!(target: "my_loader", "decode").in_scope(|| ());
        ::tracing::trace_span!(target: "my_loader", "detail").in_scope(|| ());
        info_span!(target: "their_loader", "read").in_scope(|| ());
        info_span!(target: "headspace_agent", "tick").in_scope(|| ());
    });

    let names = region.stages.iter().map_while(|slot| slot.name.get());
    assert_eq!(names.collect::<Vec<_>>(), ["decode"]);
}

#[test]
fn spans_that_are_left_out_of_order_or_not_entered_change_no_other_count() {
    let (subscriber, region) = stages();
    dispatcher::with_default(&subscriber, || {
        drop(info_span!(target: "loader", "never"));
        let outer = info_span!(target: "loader", "outer").entered();
        let inner = info_span!(target: "loader", "inner").entered();
        drop(outer);
        work();
        drop(inner);
        info_span!(target: "loader", "after").in_scope(|| ());
    });

    let counted = |name| slot(region, name).0.exited.load(Relaxed);
    assert_eq!(counted("never"), 0);
    assert_eq!((counted("outer"), counted("inner")), (1, 1));
    assert_eq!(slot(region, "outer").0.nested.load(Relaxed), 0);
    assert_eq!(slot(region, "after").0.within.load(Relaxed), 0);
}
