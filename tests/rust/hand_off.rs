//! Remedies for a slow hand-off of batches between processes. The numbers are measured, without noise.

use std::sync::Arc;

use headspace_agent::analysis::attribution::facts::PipelineFacts;
use headspace_agent::analysis::attribution::{Attribution, Limit, Remedy, attribute};
use headspace_agent::analysis::stacks::LineShare;
use headspace_agent::model::record::{
    BatchRecord, LoaderRecord, QueueSummary, ResourcesRecord, StageSummary,
};
use headspace_agent::model::stack::{Activity, Frame, Origin, Place};
use headspace_agent::wording::{bottleneck_record, remedy_record};

const MIB: u64 = 1 << 20;

/// A loop with steps of 20 ms. It takes 10 ms of each step to receive a batch. Two workers load a batch in 16 ms each.
fn loop_that_receives_for_half_of_its_step(batch: BatchRecord) -> PipelineFacts {
    PipelineFacts {
        stages: vec![StageSummary {
            name: "fetch".to_owned(),
            processes: 2,
            concurrency: Some(2.0),
            concurrency_known: true,
            calls_per_batch: Some(1.0),
            out_per_in: Some(1.0),
            mean_ms: Some(16.0),
            p50_ms: Some(16.0),
            p95_ms: Some(17.0),
            p99_ms: Some(18.0),
            cpu_pct: Some(20.0),
            ..StageSummary::default()
        }],
        queues: vec![QueueSummary {
            name: "prefetch".to_owned(),
            capacity: Some(4),
            last: true,
            empty_pct: Some(2.0),
            full_pct: Some(90.0),
            ..QueueSummary::default()
        }],
        step_ms: 20.0,
        wait_ms: 10.5,
        receive_ms: 10.0,
        loader: LoaderRecord {
            workers: Some(2),
            batch: Some(batch),
            ..LoaderRecord::default()
        },
        resources: ResourcesRecord {
            cores_used: Some(1.0),
            cores_usable: Some(16.0),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

/// A batch of one tensor.
fn tensor(tensor_bytes: u64) -> BatchRecord {
    BatchRecord {
        tensors: 1,
        tensor_bytes,
        objects: 2,
        object_bytes: 0,
        ..BatchRecord::default()
    }
}

fn line(activity: Activity, share: f64) -> LineShare {
    LineShare {
        place: Place::Stage("fetch".to_owned()),
        frame: Frame {
            file: Arc::from("train.py"),
            line: 12,
            function: Arc::from("decode"),
            origin: Origin::Own,
        },
        activity,
        share,
        proportional_share: share,
        work_share: share,
        wait_share: 0.0,
        own_share: share,
    }
}

fn remedy<'a>(found: &'a Attribution, code: &str) -> Option<&'a Remedy> {
    (found.remedies.iter()).find(|remedy| remedy.action.code().as_str() == code)
}

fn text(remedy: &Remedy) -> String {
    remedy_record(remedy).what
}

#[test]
fn large_tensors_get_a_smaller_type_as_remedy() {
    let found = attribute(&loop_that_receives_for_half_of_its_step(tensor(40 * MIB)));

    assert_eq!(found.bottleneck.as_ref().unwrap().limit, Limit::HandOff);
    let smaller = remedy(&found, "smaller_tensors").unwrap();
    assert!(text(smaller).contains("the tensors of a batch (40.0 MiB) in a type of half the size"));
    // For 40 MiB, most of the receive time depends on the number of bytes.
    assert!(
        (15.0..16.5).contains(&smaller.predicted_step_ms),
        "{smaller:?}"
    );
    assert!(remedy(&found, "share_arrays").is_none());
    assert!(remedy(&found, "pack_batch").is_none());
}

#[test]
fn large_arrays_are_to_be_sent_as_tensors() {
    let found = attribute(&loop_that_receives_for_half_of_its_step(BatchRecord {
        tensors: 0,
        tensor_bytes: 0,
        objects: 3,
        object_bytes: 30 * MIB,
        ..BatchRecord::default()
    }));

    let shared = remedy(&found, "share_arrays").unwrap();
    assert!(text(shared).contains("the arrays and strings of a batch (30.0 MiB) as tensors"));
    assert!(
        (12.0..14.0).contains(&shared.predicted_step_ms),
        "{shared:?}"
    );
    assert!(remedy(&found, "smaller_tensors").is_none());
}

#[test]
fn small_batches_are_to_be_sent_several_at_once() {
    let found = attribute(&loop_that_receives_for_half_of_its_step(tensor(4096)));

    let larger = remedy(&found, "larger_messages").unwrap();
    assert!(text(larger).contains("send 4 batches in one message"));
    assert!(
        (14.0..16.5).contains(&larger.predicted_step_ms),
        "{larger:?}"
    );
}

#[test]
fn threads_are_proposed_only_for_calls_that_hardly_hold_the_interpreter_lock() {
    let mut facts = loop_that_receives_for_half_of_its_step(tensor(40 * MIB));
    assert!(remedy(&attribute(&facts), "load_in_threads").is_none());

    facts.lines = vec![line(Activity::Native, 0.9), line(Activity::Python, 0.1)];
    let found = attribute(&facts);
    let threads = remedy(&found, "load_in_threads").unwrap();
    assert!(text(threads).starts_with("Load in 2 threads of the training process"));
    assert!(
        (9.0..11.0).contains(&threads.predicted_step_ms),
        "{threads:?}"
    );

    facts.lines = vec![line(Activity::Native, 0.2), line(Activity::Python, 0.8)];
    assert!(remedy(&attribute(&facts), "load_in_threads").is_none());
}

#[test]
fn a_worker_whose_loading_and_serializing_delay_each_other_is_limited_by_the_hand_off() {
    let mut facts = loop_that_receives_for_half_of_its_step(tensor(12 * MIB));
    facts.loader.workers = Some(1);
    facts.stages[0].processes = 1;
    facts.stages[0].concurrency = Some(1.0);
    facts.stages[0].mean_ms = Some(8.9);
    facts.stages[0].p50_ms = Some(8.9);
    facts.stages[0].p95_ms = Some(9.5);
    facts.stages[0].p99_ms = Some(9.9);
    facts.queues[0].empty_pct = Some(95.0);
    facts.queues[0].full_pct = Some(0.0);
    (facts.step_ms, facts.wait_ms, facts.receive_ms) = (15.4, 12.0, 3.0);
    facts.send_ms = Some(11.1);

    let bottleneck = attribute(&facts).bottleneck.unwrap();

    assert_eq!(bottleneck.limit, Limit::HandOff);
    assert_eq!(
        bottleneck_record(&bottleneck).evidence,
        "a worker process loads a batch in 8.9 ms and meanwhile serializes the previous one in 11.1 ms; the \
         training thread takes 3.0 ms of each step of 15.4 ms to receive one (tensors: 1, bytes in them: 12.0 \
         MiB, other objects: 2)"
    );
}

#[test]
fn a_line_of_compute_does_not_shorten_the_time_in_which_batches_are_received() {
    let mut facts = loop_that_receives_for_half_of_its_step(tensor(MIB));
    facts.lines = vec![LineShare {
        place: Place::Loop("train".to_owned()),
        ..line(Activity::Python, 1.0)
    }];

    let found = attribute(&facts);

    // The predicted gain is half of the 9.5 ms between receiving a batch and requesting the next one.
    let gain = found.lines.first().unwrap();
    assert!((gain.predicted_step_ms - 15.25).abs() < 0.5, "{gain:?}");
}
