//! Bottlenecks and remedies of pipelines whose correct answer is known.
//!
//! The pipelines are the cases in SPDL's documentation, the numbers of its case study, and a few
//! random pipelines. `make study` runs thousands of such random pipelines.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod simulator;

use std::sync::Arc;

use headspace_agent::analysis::attribution::facts::PipelineFacts;
use headspace_agent::analysis::attribution::{Attribution, Limit, Remedy, attribute};
use headspace_agent::analysis::stacks::{BlockedLoading, LineShare, SharedLockWaits, StageThreads};
use headspace_agent::model::InterventionKind;
use headspace_agent::model::record::{
    BatchRecord, CallsAtOnce, ComputeGpu, Estimate, GilHolderRecord, GpuRule, GpuUse, LoaderRecord,
    QueueSummary, RemedyCode, Resource, ResourcesRecord, SentPartsRecord, StageSummary,
    WhatIfRecord,
};
use headspace_agent::model::stack::{Activity, Frame, Origin, Place, WaitFor};
use headspace_agent::wording::{bottleneck_record, remedy_record, smaller_buffer_record};
use simulator::line::draw::Blind;
use simulator::line::engine::run;
use simulator::line::facts::facts;
use simulator::line::judge::{Length, apply};
use simulator::line::table::Table;
use simulator::line::{Line, Part, Stage};
use simulator::service::{Service, Shape};

const STEPS: u32 = 600;

fn stage(name: &str, threads: u32, ms: f64, room: u32) -> Stage {
    Stage::of(name, threads, Part::Wait, ms, room)
}

fn attribute_line(line: &Line) -> Attribution {
    attribute(&facts(line, &run(line, STEPS, 1), false, Blind::default()))
}

fn bottleneck_limit(found: &Attribution) -> Option<Limit> {
    found.bottleneck.as_ref().map(|found| found.limit.clone())
}

fn stage_limit(name: &str) -> Limit {
    Limit::Stage(name.to_owned())
}

/// The text of the evidence for the bottleneck.
fn evidence(found: &Attribution) -> String {
    bottleneck_record(found.bottleneck.as_ref().unwrap()).evidence
}

/// The text of a remedy.
fn remedy_text(remedy: &Remedy) -> String {
    remedy_record(remedy).what
}

fn remedy<'a>(found: &'a Attribution, code: &str) -> Option<&'a Remedy> {
    found
        .remedies
        .iter()
        .find(|remedy| remedy.action.code().as_str() == code)
}

/// Applies a remedy and returns by how much its prediction was off, in percent.
fn error_pct(line: &Line, remedy: &Remedy) -> f64 {
    let really = run(&apply(line, remedy).unwrap(), STEPS, 2).step_ms();
    100.0 * (remedy.predicted_step_ms / really - 1.0).abs()
}

#[test]
fn random_pipelines_get_the_right_bottleneck_and_remedies_gain_what_was_predicted() {
    let length = Length {
        calls: 1500.0,
        most_steps: 400.0,
    };
    let table = Table::of(2_000_000..2_000_014, length);
    println!("{table}");
    let all = table.all();
    assert!(all.right_pct() >= 90.0, "{table}");
    assert!(all.error_pct(0.5) <= 5.0, "{table}");
    assert!(all.error_pct(0.9) <= 15.0, "{table}");
}

#[test]
fn one_stage_of_25_ms_hides_behind_30_ms_of_work_and_one_of_35_does_not() {
    let hidden = attribute_line(&Line::of(vec![stage("load", 1, 25.0, 2)], 30.0));
    assert_eq!(bottleneck_limit(&hidden), Some(Limit::Compute));
    assert!(
        hidden.remedies.is_empty(),
        "without a floor there is no reason to stop: {hidden:?}"
    );
    let hidden = Line::of(vec![stage("load", 1, 25.0, 2)], 30.0);
    let totals = run(&hidden, STEPS, 1);
    let probed = attribute(&facts(&hidden, &totals, true, Blind::default()));
    assert_eq!(probed.remedies[0].action.code(), RemedyCode::Stop);
    assert_eq!(probed.remedies.len(), 1);

    let line = Line::of(vec![stage("load", 1, 35.0, 2)], 30.0);
    let slower = attribute_line(&line);
    assert_eq!(bottleneck_limit(&slower), Some(stage_limit("load")));
    let more = remedy(&slower, "more_workers").unwrap();
    let change = more.change.as_ref().unwrap();
    assert_eq!(
        (
            change.knob.as_str(),
            change.from.as_str(),
            change.to.as_str()
        ),
        ("load.concurrency", "1", "2")
    );
    assert!((more.predicted_step_ms - 30.0).abs() < 0.3, "{more:?}");
}

#[test]
fn the_slowest_of_three_stages_is_the_bottleneck_at_any_position() {
    for order in [[10.0, 25.0, 40.0], [40.0, 25.0, 10.0]] {
        let stages = order.map(|ms| stage(&format!("stage_{ms}"), 1, ms, 2));
        let line = Line::of(stages.to_vec(), 30.0);
        let found = attribute_line(&line);

        assert_eq!(bottleneck_limit(&found), Some(stage_limit("stage_40")));
        let more = remedy(&found, "more_workers").unwrap();
        assert!((more.predicted_step_ms - 30.0).abs() < 0.3, "{more:?}");
        let evidence = evidence(&found);
        assert!(evidence.contains("busy 100 %"), "{evidence}");
    }
}

#[test]
fn concurrency_divides_the_time_of_a_call() {
    let line = |threads| {
        let stages = vec![stage("read", 1, 20.0, 2), stage("decode", threads, 90.0, 4)];
        Line::of(stages, 25.0)
    };
    assert_eq!(
        bottleneck_limit(&attribute_line(&line(2))),
        Some(stage_limit("decode"))
    );
    assert_eq!(
        bottleneck_limit(&attribute_line(&line(4))),
        Some(Limit::Compute)
    );
}

#[test]
fn aggregation_of_five_fits_and_of_six_does_not_although_its_queue_is_never_full() {
    let line = |joined| {
        let mut stages = vec![stage("decode", 1, 5.5, 6), stage("collate", 1, 1.0, 2)];
        stages[1].takes = joined;
        Line::of(stages, 30.0)
    };
    assert_eq!(
        bottleneck_limit(&attribute_line(&line(5))),
        Some(Limit::Compute)
    );
    assert_eq!(
        bottleneck_limit(&attribute_line(&line(6))),
        Some(stage_limit("decode"))
    );
}

#[test]
fn jitter_is_distinguished_from_a_slow_stage_and_a_larger_buffer_absorbs_it() {
    let mut decode = stage("decode", 1, 25.0, 3);
    decode.service = Service::new(1.0, 1.6, Shape::Rare, 0.0);
    let mut line = Line::of(vec![decode], 25.0);
    line.compute = Service::new(1.0, 0.1, Shape::Normal, 0.0);
    let totals = run(&line, 3000, 1);
    let found = attribute(&facts(&line, &totals, false, Blind::default()));

    assert_eq!(bottleneck_limit(&found), Some(Limit::Jitter));
    let bigger = remedy(&found, "bigger_buffer").unwrap();
    assert_eq!(bigger.change.as_ref().unwrap().from, "3");
    let really = run(&apply(&line, bigger).unwrap(), 6000, 2).step_ms();
    let error = (bigger.predicted_step_ms / really - 1.0).abs();
    assert!(
        error < 0.05 && really < 0.98 * totals.step_ms(),
        "{bigger:?} {really}"
    );
    // No limit is above 25 ms.
    assert!(totals.step_ms() > 1.1 * 25.0, "{}", totals.step_ms());

    // Nothing waits for a queue that is never empty.
    let mut never_empty = facts(&line, &totals, false, Blind::default());
    for queue in &mut never_empty.queues {
        queue.empty_pct = Some(0.0);
    }
    assert_eq!(remedy(&attribute(&never_empty), "bigger_buffer"), None);
}

#[test]
fn waiting_caused_by_a_tail_is_jitter_and_not_compute() {
    let mut decode = stage("decode", 1, 15.9, 2);
    decode.service = Service::new(1.0, 2.0, Shape::Bimodal, 0.0);
    let line = Line::of(vec![decode], 20.0);
    let totals = run(&line, 3000, 1);
    let found = attribute(&facts(&line, &totals, false, Blind::default()));

    assert!(totals.wait_ms > 0.15 * totals.ms);
    assert_eq!(bottleneck_limit(&found), Some(Limit::Jitter));
    let bigger = remedy(&found, "bigger_buffer").unwrap();
    let really = run(&apply(&line, bigger).unwrap(), 6000, 2).step_ms();
    let error = (bigger.predicted_step_ms / really - 1.0).abs();
    assert!(error < 0.05, "{bigger:?} {really}");
}

/// The attribution of a pipeline whose batches have 1 MiB.
fn attribute_batches_of_a_mebibyte(line: &Line) -> Attribution {
    let mut facts = facts(line, &run(line, 3000, 1), false, Blind::default());
    facts.loader.delivered_batch = Some(BatchRecord {
        object_bytes: 1 << 20,
        ..BatchRecord::default()
    });
    attribute(&facts)
}

/// A loader whose calls vary, and whose queue is usually full.
fn line_with_long_queue() -> Line {
    let mut load = stage("load", 2, 36.0, 200);
    load.service = Service::new(1.0, 0.8, Shape::Normal, 0.0);
    Line::of(vec![load], 20.0)
}

#[test]
fn a_much_smaller_queue_is_found_and_the_step_with_it_is_within_a_percent_and_a_half() {
    let mut line = line_with_long_queue();
    let before = run(&line, 6000, 2).step_ms();

    let found = attribute_batches_of_a_mebibyte(&line);

    let smaller = found.smaller_buffer.unwrap();
    assert_eq!(smaller.from, 200);
    assert!((2..=30).contains(&smaller.to), "{smaller:?}");
    line.stages[0].room = smaller.to;
    let after = run(&line, 6000, 2).step_ms();
    assert!(after < 1.015 * before, "{smaller:?} {before} {after}");
    assert!((smaller.predicted_step_ms / after - 1.0).abs() < 0.015);
    // The calls per batch include the calls that filled the queue. So an item seems to be a smaller part of a batch.
    let bytes_per_item = smaller.freed_bytes.unwrap() / smaller.freed_items;
    let share = bytes_per_item / f64::from(1 << 20);
    assert!((0.9..=1.0).contains(&share), "{smaller:?}");
    assert!(smaller.freed_items > 100.0, "{smaller:?}");
}

#[test]
fn a_capacity_that_calls_with_rare_long_times_need_is_kept() {
    let mut line = line_with_long_queue();
    line.stages[0].service = Service::new(1.0, 6.0, Shape::Rare, 0.0);
    let short = attribute_batches_of_a_mebibyte(&line_with_long_queue());

    let found = attribute_batches_of_a_mebibyte(&line);

    let least = found.smaller_buffer.map_or(200, |smaller| smaller.to);
    assert!(least >= 2 * short.smaller_buffer.unwrap().to, "{least}");
}

#[test]
fn a_long_queue_that_is_empty_holds_no_memory_so_no_smaller_one_is_proposed() {
    let mut line = line_with_long_queue();
    line.stages[0].scale(None, 3.0);

    let found = attribute_batches_of_a_mebibyte(&line);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("load")));
    assert_eq!(found.smaller_buffer, None);
}

#[test]
fn no_smaller_queue_is_proposed_if_the_queue_is_often_full_and_often_empty() {
    let line = line_with_long_queue();
    let totals = run(&line, 3000, 1);
    let mut facts = facts(&line, &totals, false, Blind::default());
    assert!(attribute(&facts).smaller_buffer.is_some());

    (facts.queues[0].empty_pct, facts.queues[0].full_pct) = (Some(10.0), Some(60.0));

    assert_eq!(attribute(&facts).smaller_buffer, None);
}

#[test]
fn a_small_prefetch_factor_is_proposed_for_workers_whose_batches_wait() {
    let mut fetch = stage("fetch", 2, 20.0, 1);
    fetch.ahead = Some(64);
    let line = Line::of(vec![fetch], 20.0);

    let found = attribute_batches_of_a_mebibyte(&line);

    let smaller = found.smaller_buffer.unwrap();
    let knob = smaller.change.knob.as_str();
    assert_eq!((knob, smaller.from), ("prefetch_factor", 128));
    assert!(smaller.to <= 8, "{smaller:?}");
    let text = smaller_buffer_record(&smaller, 20.0).text;
    assert!(text.contains("instead of 128 is enough"), "{text}");
    assert!(text.contains("MiB of memory"), "{text}");
}

#[test]
fn a_tail_in_torch_workers_is_found_and_a_larger_prefetch_factor_absorbs_it() {
    let mut fetch = stage("fetch", 2, 40.0, 1);
    (fetch.ahead, fetch.service) = (Some(2), Service::new(1.0, 1.3, Shape::Bimodal, 0.0));
    let line = Line::of(vec![fetch], 18.0);
    let totals = run(&line, 3000, 1);
    let found = attribute(&facts(&line, &totals, false, Blind::default()));

    assert!(totals.step_ms() > 1.25 * 20.0, "{}", totals.step_ms());
    assert!(found.bottleneck.is_some());
    let bigger = remedy(&found, "bigger_buffer").unwrap();
    let change = bigger.change.as_ref().unwrap();
    assert_eq!(
        (change.knob.as_str(), change.from.as_str()),
        ("prefetch_factor", "2")
    );
    let really = run(&apply(&line, bigger).unwrap(), 6000, 2).step_ms();
    let error = (bigger.predicted_step_ms / really - 1.0).abs();
    assert!(error < 0.05, "{bigger:?} {really}");
}

#[test]
fn a_worker_that_is_always_busy_gains_nothing_from_a_larger_prefetch_factor() {
    let mut fetch = stage("fetch", 2, 40.0, 1);
    (fetch.ahead, fetch.service) = (Some(2), Service::new(1.0, 0.6, Shape::Bimodal, 0.0));
    let line = Line::of(vec![fetch], 12.0);
    let totals = run(&line, 3000, 1);
    let irregular = facts(&line, &totals, false, Blind::default());
    assert!(remedy(&attribute(&irregular), "bigger_buffer").is_some());

    // If the long calls come at regular intervals, the worker never waits for space in the queue.
    let step_ms = irregular.stages[0].busy_ms().unwrap() / 2.0;
    let regular = PipelineFacts {
        wait_ms: irregular.wait_ms - (irregular.step_ms - step_ms),
        step_ms,
        ..irregular
    };
    let found = attribute(&regular);

    assert!(found.bottleneck.is_some());
    assert_eq!(remedy(&found, "bigger_buffer"), None);
}

#[test]
fn remedies_for_a_torch_loader_name_its_own_options() {
    let mut fetch = stage("fetch", 2, 60.0, 1);
    fetch.ahead = Some(2);
    let line = Line::of(vec![fetch], 12.0);
    let more = remedy(&attribute_line(&line), "more_workers")
        .cloned()
        .unwrap();

    let change = more.change.as_ref().unwrap();
    assert_eq!(
        (change.knob.as_str(), change.from.as_str()),
        ("num_workers", "2")
    );
    assert!(error_pct(&line, &more) < 5.0, "{more:?}");
}

#[test]
fn a_loop_that_loads_in_its_own_thread_gets_workers_as_remedy() {
    let mut line = Line::of(vec![Stage::of("fetch", 1, Part::Cpu, 20.0, 1)], 10.0);
    (line.inline, line.cores) = (true, 8.0);
    let found = attribute_line(&line);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("fetch")));
    let more = remedy(&found, "more_workers").unwrap();
    assert_eq!(more.change.as_ref().unwrap().knob, "num_workers");
    assert!(error_pct(&line, more) < 5.0, "{more:?}");
}

#[test]
fn the_predicted_gain_of_workers_includes_the_cores_that_other_programs_use() {
    for (cores, others) in [(2.0, 2.0), (2.0, 1.0), (4.0, 3.0), (4.0, 6.0)] {
        let mut line = Line::of(vec![Stage::of("fetch", 1, Part::Cpu, 200.0, 1)], 200.0);
        (line.inline, line.cores, line.compute_cores) = (true, cores, 1.0);
        let alone = attribute_line(&line);
        line.others = others;
        let found = attribute_line(&line);

        assert_eq!(bottleneck_limit(&found), Some(stage_limit("fetch")));
        let more = remedy(&found, "more_workers").unwrap();
        assert!(error_pct(&line, more) < 5.0, "{cores} {others} {more:?}");
        let gain = |more: &Remedy| more.predicted_gain_pct;
        let gain_alone = gain(remedy(&alone, "more_workers").unwrap());
        assert!(gain(more) < gain_alone, "{cores} {others} {more:?}");
    }
}

#[test]
fn the_predicted_gain_of_threads_includes_the_cores_that_other_programs_use() {
    let mut line = Line::of(vec![Stage::of("decode", 1, Part::Cpu, 60.0, 4)], 20.0);
    (line.cores, line.compute_cores, line.others) = (4.0, 1.0, 4.0);
    let found = attribute_line(&line);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("decode")));
    let more = remedy(&found, "more_workers").unwrap();
    assert!(error_pct(&line, more) < 10.0, "{more:?}");
}

#[test]
fn workers_are_not_proposed_when_sending_their_batches_costs_more_than_loading() {
    let mut line = Line::of(vec![Stage::of("fetch", 1, Part::Cpu, 9.0, 1)], 30.0);
    (line.inline, line.cores) = (true, 8.0);
    let small = attribute_line(&line);
    let more = remedy(&small, "more_workers").unwrap();
    assert!(more.confidence >= 0.7, "{more:?}");
    assert!(error_pct(&line, more) < 5.0, "{more:?}");

    (line.handing.tensors, line.handing.mib) = (2, 8.0);
    let expensive = attribute_line(&line);
    assert_eq!(bottleneck_limit(&expensive), Some(stage_limit("fetch")));
    let more = remedy(&expensive, "more_workers").unwrap();
    assert!(more.confidence < 0.7, "{more:?}");
    assert!(error_pct(&line, more) < 5.0, "{more:?}");

    line.handing.mib = 40.0;
    let slower = attribute_line(&line);
    assert!(remedy(&slower, "more_workers").is_none(), "{slower:?}");
    let evidence = evidence(&slower);
    assert!(evidence.contains("15.0 ms"), "{evidence}");
}

/// A PyTorch loop that loads on its training thread.
fn loop_without_workers() -> PipelineFacts {
    let fetch = stage_summary("fetch", 1.0, 1.0, 18.0, 99.0);
    PipelineFacts {
        stages: vec![fetch],
        // The queue of a loader that another loop iterates.
        queues: vec![sink(2, 0.0)],
        step_ms: 22.0,
        wait_ms: 18.4,
        loader: LoaderRecord {
            workers: Some(0),
            ..LoaderRecord::default()
        },
        resources: ResourcesRecord {
            cores_used: Some(1.0),
            cores_usable: Some(2.0),
            gil_wait_ms: Some(5.0),
            other_threads_cores: Some(0.01),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn without_workers_the_verdict_names_the_training_thread() {
    let mut facts = loop_without_workers();
    let found = attribute(&facts);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("fetch")));
    let evidence = evidence(&found);
    assert!(
        evidence.contains("on the training thread itself (num_workers=0)"),
        "{evidence}"
    );
    let change = remedy(&found, "more_workers").unwrap().change.clone();
    assert_eq!(change.unwrap().to, "2");
    assert!(remedy(&found, "subprocess").is_none(), "{found:?}");

    // A loader without a number of workers may have threads that fill this queue.
    facts.loader.workers = None;
    assert_eq!(attribute(&facts).bottleneck, None);
}

#[test]
fn only_a_remedy_that_starts_the_first_processes_says_what_they_would_get() {
    let sent = SentPartsRecord {
        bytes: Some(1 << 30),
        objects: Some(1_000_000),
        ..SentPartsRecord::default()
    };
    let mut facts = loop_without_workers();
    facts.loader.sent = Some(sent.clone());
    let found = attribute(&facts);
    let start = remedy(&found, "more_workers")
        .unwrap()
        .process_start
        .clone();
    let start = start.unwrap();
    assert_eq!(start.sent, sent);
    // 4 ms/MiB and 0.7 µs per object.
    let ms = start.ms.unwrap();
    assert!((ms - (4.0 * 1024.0 + 700.0)).abs() < 1.0, "{start:?}");
    let others = found.remedies.iter().filter(|one| one.stage.is_none());
    assert!(
        others.clone().all(|one| one.process_start.is_none()),
        "{found:?}"
    );

    let mut facts = loop_with_large_workers(2, 8.0);
    facts.loader.sent = Some(sent);
    let found = attribute(&facts);
    let more = remedy(&found, "more_workers").unwrap();
    assert_eq!(more.process_start, None);
}

/// A PyTorch loop that waits for `workers` worker processes. Each takes 1 GiB, and `available` GiB are free.
fn loop_with_large_workers(workers: u32, available: f64) -> PipelineFacts {
    const GIB: f64 = (1_u64 << 30) as f64;
    PipelineFacts {
        stages: vec![StageSummary {
            processes: workers,
            ..stage_summary("fetch", f64::from(workers), 1.0, 40.0, 5.0)
        }],
        queues: vec![sink(2 * workers, 98.0)],
        step_ms: 40.0 / f64::from(workers),
        wait_ms: 40.0 / f64::from(workers) - 5.0,
        loader: LoaderRecord {
            workers: Some(workers),
            ..LoaderRecord::default()
        },
        resources: ResourcesRecord {
            cores_used: Some(0.4),
            cores_usable: Some(16.0),
            children_memory_bytes: Some(f64::from(workers) * GIB),
            memory_available_bytes: Some(available * GIB),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn no_more_workers_are_proposed_than_fit_into_the_memory() {
    let enough = attribute(&loop_with_large_workers(1, 100.0));
    let remedy_of = |found: &Attribution| remedy(found, "more_workers").cloned();
    let more = remedy_of(&enough).unwrap();
    assert_eq!(more.change.as_ref().unwrap().to, "8");
    assert_eq!(
        remedy_text(&more),
        "Load in 8 worker processes instead of 1; each takes 1.00 GiB, and the memory is enough for 81."
    );

    // 80 % of 3 GiB is enough for two more workers.
    let scarce = attribute(&loop_with_large_workers(1, 3.0));
    let more = remedy_of(&scarce).unwrap();
    assert_eq!(more.change.as_ref().unwrap().to, "3");
    assert_eq!(
        remedy_text(&more),
        "Load in 3 worker processes instead of 1: each takes 1.00 GiB, and further ones may take \
         2.40 GiB in total."
    );
    assert!((more.predicted_step_ms - 40.0 / 3.0).abs() < 1.0);

    let none = attribute(&loop_with_large_workers(1, 1.0));
    assert_eq!(remedy_of(&none), None);
    let smaller = remedy(&none, "smaller_processes").unwrap();
    assert_eq!(
        remedy_text(smaller),
        "Reduce the memory of each worker process (now 1.00 GiB), then load in 8 instead of 1: further ones may take \
         only 819 MiB in total."
    );
    let difference = smaller.predicted_step_ms - remedy_of(&enough).unwrap().predicted_step_ms;
    assert!(difference.abs() < 1e-9, "{smaller:?}");
}

#[test]
fn for_many_threads_that_compete_for_few_cores_the_remedy_is_fewer_workers_without_a_predicted_gain()
 {
    let mut facts = loop_with_large_workers(8, 100.0);
    facts.stages[0].mean_ms = Some(160.0);
    facts.stages[0].cpu_pct = Some(20.0);
    (facts.step_ms, facts.wait_ms) = (40.0, 8.0);
    facts.resources.cores_usable = Some(2.0);
    facts.resources.cores_used = Some(2.0);
    facts.resources.runnable_threads = Some(11.0);
    facts.resources.consumer_run_queue_pct = Some(70.0);

    let found = attribute(&facts);

    let fewer = &found.remedies[0];
    assert_eq!(fewer.action.code(), RemedyCode::FewerWorkers);
    assert!(fewer.at_least);
    assert_eq!(
        remedy_text(fewer),
        "Load in 1 worker process instead of 8: there are no cores for more."
    );
}

#[test]
fn workers_that_wait_for_one_lock_get_no_prediction_of_a_gain_from_more_workers() {
    // Each of 4 workers holds the lock for 10 ms of a call, and waits for it for the rest.
    let mut facts = loop_with_large_workers(4, 100.0);
    facts.shared_lock_waits = vec![SharedLockWaits {
        stage: "fetch".to_owned(),
        share: 0.75,
        line: Frame {
            file: "data.py".into(),
            line: 11,
            function: "read".into(),
            origin: Origin::Own,
        },
    }];
    let found = attribute(&facts);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("fetch")));
    let evidence = evidence(&found);
    assert!(
        evidence
            .ends_with("its calls wait for one another's lock 75 % of their time (`data.py:11`)"),
        "{evidence}"
    );
    assert!(remedy(&found, "more_workers").is_none(), "{found:?}");
    let separate = remedy(&found, "separate_locks").unwrap();
    // Without the lock, 4 workers need 10 ms each; the loop computes for 5 ms.
    assert!(
        (separate.predicted_step_ms - 5.0).abs() < 0.5,
        "{separate:?}"
    );
    assert!(remedy_text(separate).contains("wait at `data.py:11`"));

    // Rare waits for the lock do not rule out more workers.
    facts.shared_lock_waits[0].share = 0.03;
    assert!(remedy(&attribute(&facts), "more_workers").is_some());
}

#[test]
fn the_gain_of_more_calls_is_unknown_if_much_work_is_done_outside_of_the_stages() {
    let mut facts = loop_with_large_workers(1, 100.0);
    facts.resources.cores_used = Some(0.9);
    facts.resources.children_cores = Some(0.1);
    assert!(!remedy(&attribute(&facts), "more_workers").unwrap().at_least);

    facts.resources.children_cores = Some(0.8);
    let found = attribute(&facts);
    let more = remedy(&found, "more_workers").unwrap();
    assert!(more.at_least, "{more:?}");
    assert!(more.predicted_gain_pct.abs() < 1e-9, "{more:?}");

    // The loop does not wait, so more calls do not help it.
    let wait_ms = std::mem::replace(&mut facts.wait_ms, 0.01 * facts.step_ms);
    let found = attribute(&facts);
    assert!(remedy(&found, "more_workers").is_none(), "{found:?}");
    facts.wait_ms = wait_ms;

    // If the measured slow-down by concurrent calls is known, the prediction includes it.
    facts.stages[0].call_ms_by_calls = times_by_calls([40.0, 50.0, 60.0, 70.0]);
    let found = attribute(&facts);
    assert!(
        !remedy(&found, "more_workers").unwrap().at_least,
        "{found:?}"
    );
}

/// Mean duration of a call while 1, 2, 3 and 4 calls are in progress.
fn times_by_calls(means_ms: [f64; 4]) -> Vec<CallsAtOnce> {
    (1..)
        .zip(means_ms)
        .map(|(calls, mean_ms)| CallsAtOnce {
            calls,
            count: 50,
            mean_ms,
            sd_ms: 2.0,
        })
        .collect()
}

#[test]
fn more_workers_are_not_proposed_if_the_time_of_a_call_grows_in_proportion_to_the_calls() {
    let mut facts = loop_with_large_workers(4, 100.0);
    facts.stages[0].call_ms_by_calls = times_by_calls([10.0, 20.0, 30.0, 40.0]);

    let found = attribute(&facts);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("fetch")));
    let evidence = evidence(&found);
    assert!(
        evidence.ends_with("a call takes 10.0 ms alone and 40.0 ms with 4 at once"),
        "{evidence}"
    );
    assert!(remedy(&found, "more_workers").is_none(), "{found:?}");
}

#[test]
fn more_workers_are_proposed_as_before_if_the_time_of_a_call_does_not_grow() {
    let unknown = attribute(&loop_with_large_workers(4, 100.0));
    let mut facts = loop_with_large_workers(4, 100.0);
    facts.stages[0].call_ms_by_calls = times_by_calls([39.5, 40.5, 39.8, 40.1]);

    assert_eq!(attribute(&facts), unknown);
    let more = remedy(&unknown, "more_workers").unwrap();
    assert!((more.predicted_step_ms - 5.0).abs() < 0.6, "{more:?}");
}

#[test]
fn the_predicted_gain_of_more_workers_includes_that_their_calls_take_longer() {
    let mut facts = loop_with_large_workers(4, 100.0);
    // 20 ms, plus 5 ms for each call in progress.
    facts.stages[0].call_ms_by_calls = times_by_calls([25.0, 30.0, 35.0, 40.0]);

    let found = attribute(&facts);

    let more = remedy(&found, "more_workers").unwrap();
    let workers: f64 = more.change.as_ref().unwrap().to.parse().unwrap();
    let expected = (20.0 + 5.0 * workers) / workers;
    assert!((more.predicted_step_ms - expected).abs() < 0.4, "{more:?}");
    assert!(more.confidence <= 0.5, "{more:?}");
}

/// Adds a function on another thread that holds the interpreter lock for a share of the time, and the loop's waits for
/// the lock.
fn hold_lock(facts: &mut PipelineFacts, share_pct: f64, wait_ms: f64) {
    facts.resources.gil_wait_ms = Some(5.0);
    facts.compute_gil_wait_ms = Some(wait_ms);
    facts.gil_holder = Some(GilHolderRecord {
        function: "stage_batches".to_owned(),
        share_pct,
        ..GilHolderRecord::default()
    });
}

#[test]
fn work_that_leaves_the_lock_for_a_worker_makes_the_workers_batches_longer() {
    let predicted = |share_pct: f64| {
        let mut facts = loop_with_large_workers(1, 100.0);
        facts.stages[0].mean_ms = Some(8.0);
        facts.stages[0].cpu_pct = Some(90.0);
        facts.queues[0].empty_pct = Some(0.0);
        (facts.step_ms, facts.wait_ms) = (50.0, 0.0);
        hold_lock(&mut facts, share_pct, 25.0);
        let found = attribute(&facts);
        remedy(&found, "free_lock").unwrap().predicted_step_ms
    };

    // Without the waits, the loop needs 25 ms. The worker needs 8 ms and the time of its new work.
    assert!((predicted(20.0) - 25.0).abs() < 1.0);
    assert!((predicted(50.0) - 33.0).abs() < 1.0);
}

#[test]
fn work_that_leaves_the_lock_for_a_worker_frees_the_cores_of_the_loops_process() {
    let predicted = |delivered_batch: Option<BatchRecord>| {
        let mut facts = loop_with_large_workers(1, 100.0);
        facts.stages[0].mean_ms = Some(30.0);
        facts.stages[0].cpu_pct = Some(100.0);
        facts.queues[0].empty_pct = Some(0.0);
        (facts.step_ms, facts.wait_ms) = (100.0, 0.0);
        facts.resources.cores_usable = Some(2.0);
        facts.resources.cores_used = Some(1.9);
        hold_lock(&mut facts, 50.0, 40.0);
        facts.loader.batch = Some(BatchRecord {
            objects: 400_000,
            ..BatchRecord::default()
        });
        facts.loader.delivered_batch = delivered_batch;
        let found = attribute(&facts);
        remedy(&found, "free_lock").map(|remedy| remedy.predicted_step_ms)
    };
    let one_tensor = BatchRecord {
        tensors: 1,
        tensor_bytes: 1 << 20,
        ..BatchRecord::default()
    };

    // The worker needs 30 ms, and 50 ms for its new work. Outside the worker's call, the cores work for 160 ms per
    // step, and 50 ms of this moves to the worker. If the delivered contents are unknown, the prediction assumes that
    // the hand-off does not change.
    let of_objects = predicted(None).unwrap();
    let of_tensor = predicted(Some(one_tensor)).unwrap();
    assert!((of_tensor / 80.0 - 1.0).abs() < 0.1, "{of_tensor}");
    assert!(of_objects > of_tensor + 15.0, "{of_objects}, {of_tensor}");
    let large = BatchRecord {
        tensor_bytes: 400 << 20,
        ..one_tensor
    };
    assert_eq!(predicted(Some(large)), None, "the step would be longer");
}

#[test]
fn a_remedy_on_all_ranks_also_frees_the_cores_that_the_other_ranks_use() {
    let rank = |other_ranks: bool| {
        let mut facts = loop_with_large_workers(1, 100.0);
        facts.stages[0].cpu_pct = Some(75.0);
        facts.step_ms = 40.0;
        facts.wait_ms = 12.0;
        facts.compute_blocked_ms = Some(12.0);
        facts.resources.cores_usable = Some(2.0);
        facts.resources.cores_used = Some(1.0);
        facts.resources.consumer_run_queue_pct = Some(15.0);
        facts.resources.runnable_threads = Some(4.0);
        let others = Some(1.0);
        if other_ranks {
            facts.resources.other_ranks_cores = others;
        } else {
            facts.resources.others_cores = others;
        }
        facts
    };

    let found = attribute(&rank(true));
    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Cores))
    );
    assert!(evidence(&found).contains("other ranks use about 1"));
    // The stage uses 30 of the 40 ms of CPU time.
    let cheaper = remedy(&found, "cheaper_calls").unwrap();
    assert!(
        (cheaper.predicted_step_ms - 25.0).abs() < 2.0,
        "{cheaper:?}"
    );

    let found = attribute(&rank(false));
    let alone = remedy(&found, "cheaper_calls").unwrap();
    assert!(
        alone.predicted_step_ms > cheaper.predicted_step_ms + 2.0,
        "{alone:?}"
    );
}

#[test]
fn waits_for_other_ranks_do_not_hide_that_the_loop_needs_a_core() {
    // Two ranks on two cores tokenize the same texts. The training thread needs its core for 26 ms per step. That is
    // 29 % of its time to compute and to receive batches. Without the waits for the other rank, it is half.
    let mut facts = loop_with_large_workers(1, 100.0);
    facts.stages[0] = stage_summary("fetch", 1.0, 1.0, 112.0, 78.0);
    facts.step_ms = 116.0;
    facts.wait_ms = 45.0;
    facts.receive_ms = 19.0;
    facts.compute_blocked_ms = Some(39.0);
    facts.resources.cores_usable = Some(2.0);
    facts.resources.cores_used = Some(0.98);
    facts.resources.other_ranks_cores = Some(0.97);
    facts.resources.consumer_run_queue_pct = Some(19.0);
    facts.resources.runnable_threads = Some(4.4);

    let cheaper = remedy(&attribute(&facts), "cheaper_calls").unwrap().clone();
    // The core works for 114 ms per step, and 87 ms of this is the stage's work. Without half of it, 70 ms are left.
    assert!(
        (cheaper.predicted_step_ms - 71.0).abs() < 5.0,
        "{cheaper:?}"
    );
}

#[test]
fn loading_on_the_training_thread_that_waits_for_the_device_is_not_slow() {
    // The loop launches work on a device. Then `collate` uploads a batch on the training thread, and waits for it.
    let upload = Frame {
        file: Arc::from("train.py"),
        line: 47,
        function: Arc::from("upload"),
        origin: Origin::Own,
    };
    let found = |share: f64| {
        let collate = StageSummary {
            within: Some("fetch".to_owned()),
            ..stage_summary("collate", 1.0, 1.0, 14.0, 10.0)
        };
        attribute(&PipelineFacts {
            stages: vec![stage_summary("fetch", 1.0, 1.0, 24.0, 40.0), collate],
            step_ms: 40.0,
            wait_ms: 24.0,
            blocked_loading: Some(BlockedLoading {
                share,
                line: upload.clone(),
            }),
            lines: vec![LineShare {
                place: Place::Stage("collate".to_owned()),
                frame: upload.clone(),
                activity: Activity::Wait(WaitFor::Lock),
                share: 0.8,
                proportional_share: 0.8,
                work_share: 0.0,
                wait_share: 1.0,
                own_share: 0.8,
            }],
            loader: LoaderRecord {
                workers: Some(0),
                ..LoaderRecord::default()
            },
            resources: ResourcesRecord {
                cores_usable: Some(2.0),
                ..ResourcesRecord::default()
            },
            ..PipelineFacts::default()
        })
    };

    let waits = found(0.55);
    assert_eq!(bottleneck_limit(&waits), Some(Limit::Compute));
    assert!(evidence(&waits).contains("waits 55 % of that time at `train.py:47` (upload)"));
    assert!((waits.wait_blocked_ms().unwrap() - 13.2).abs() < 1e-6);
    assert_eq!(waits.remedies, []);
    assert_eq!(
        waits.lines,
        [],
        "a faster upload waits as long for the device"
    );

    let works = found(0.2);
    assert_eq!(works.lines.len(), 1);
    assert_eq!(
        bottleneck_limit(&works),
        Some(Limit::Stage("fetch".to_owned()))
    );
    assert!(remedy(&works, "more_workers").is_some(), "{works:?}");
}

#[test]
fn a_line_of_a_stage_does_not_take_the_time_of_the_stages_within_it() {
    let read = LineShare {
        place: Place::Stage("fetch".to_owned()),
        frame: Frame {
            file: Arc::from("train.py"),
            line: 12,
            function: Arc::from("read"),
            origin: Origin::Own,
        },
        activity: Activity::Wait(WaitFor::File),
        share: 0.8,
        proportional_share: 0.8,
        work_share: 0.0,
        wait_share: 1.0,
        own_share: 0.8,
    };
    let collate = StageSummary {
        within: Some("fetch".to_owned()),
        ..stage_summary("collate", 1.0, 1.0, 14.0, 10.0)
    };
    let found = attribute(&PipelineFacts {
        stages: vec![stage_summary("fetch", 1.0, 1.0, 24.0, 40.0), collate],
        step_ms: 40.0,
        wait_ms: 24.0,
        lines: vec![read],
        loader: LoaderRecord {
            workers: Some(0),
            ..LoaderRecord::default()
        },
        ..PipelineFacts::default()
    });

    // The line takes 80 % of 24 - 14 ms. Half of this is saved.
    let line = found.lines.first().unwrap();
    assert!((line.predicted_step_ms - 36.0).abs() < 0.5, "{line:?}");
}

#[test]
fn a_line_of_the_loop_does_not_shorten_the_wait_for_a_loader_without_stages() {
    let work = LineShare {
        place: Place::Loop("train".to_owned()),
        frame: Frame {
            file: Arc::from("train.py"),
            line: 12,
            function: Arc::from("main"),
            origin: Origin::Own,
        },
        activity: Activity::Python,
        share: 1.0,
        proportional_share: 1.0,
        work_share: 1.0,
        wait_share: 0.0,
        own_share: 1.0,
    };
    let found = attribute(&PipelineFacts {
        step_ms: 40.0,
        wait_ms: 24.0,
        lines: vec![work],
        ..PipelineFacts::default()
    });

    // Half of the 40 - 24 ms outside the wait is saved.
    let line = found.lines.first().unwrap();
    assert!((line.predicted_step_ms - 32.0).abs() < 0.1, "{line:?}");
}

#[test]
fn the_gain_of_more_calls_is_less_certain_if_processes_outside_the_stages_work_too() {
    // Measured with Ray Data: its processes outside the stages use 0.4 of the 1.1 cores in use.
    let confidence = |children_cores: f64| {
        let mut facts = loop_with_large_workers(1, 100.0);
        facts.stages[0] = stage_summary("fetch", 1.0, 1.0, 40.0, 10.0);
        facts.wait_ms = 22.0;
        facts.resources.cores_used = Some(1.1);
        facts.resources.children_cores = Some(children_cores);
        remedy(&attribute(&facts), "more_workers")
            .unwrap()
            .confidence
    };
    assert!(confidence(0.1) >= 0.7);
    assert!(confidence(0.5) < 0.7);
}

#[test]
fn with_more_threads_than_cores_the_cores_are_the_bottleneck_and_no_threads_are_proposed() {
    let mut line = Line::of(vec![Stage::of("decode", 8, Part::Cpu, 20.0, 4)], 10.0);
    (line.cores, line.compute_cores) = (2.0, 1.0);
    let found = attribute_line(&line);

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Cores))
    );
    assert!(remedy(&found, "more_workers").is_none(), "{found:?}");
    for remedy in &found.remedies {
        assert!(error_pct(&line, remedy) < 5.0, "{remedy:?}");
    }

    line.quota = true;
    let found = attribute_line(&line);
    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Quota))
    );
    assert!(remedy(&found, "quota").is_some());
}

#[test]
fn threads_that_hold_the_interpreter_lock_get_a_subprocess_as_remedy() {
    let mut line = Line::of(vec![Stage::of("transform", 4, Part::Gil, 20.0, 4)], 8.0);
    line.cores = 16.0;
    let found = attribute_line(&line);

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Gil))
    );
    assert_eq!(found.remedies[0].action.code(), RemedyCode::Subprocess);
    assert!(error_pct(&line, &found.remedies[0]) < 5.0);
    assert!(remedy(&found, "more_workers").is_none());
}

#[test]
fn the_calls_that_hold_the_interpreter_lock_should_become_cheaper() {
    let stages = vec![
        Stage::of("transform", 4, Part::Gil, 20.0, 4),
        Stage::of("normalise", 4, Part::Gil, 8.0, 4),
    ];
    let mut line = Line::of(stages, 8.0);
    line.cores = 16.0;
    let mut facts = facts(&line, &run(&line, STEPS, 1), false, Blind::default());
    let mut halved = |holder: Option<&str>| {
        facts.gil_holder = holder.map(|stage| GilHolderRecord {
            stage: Some(stage.to_owned()),
            share_pct: 19.0,
            ..GilHolderRecord::default()
        });
        let found = attribute(&facts);
        assert_eq!(
            bottleneck_limit(&found),
            Some(Limit::Resource(Resource::Gil))
        );
        remedy_text(remedy(&found, "cheaper_calls").unwrap())
    };

    assert!(halved(None).contains("`transform`"));
    assert!(halved(Some("normalise")).contains("`normalise`"));
}

#[test]
fn a_busy_disk_is_the_bottleneck_and_no_readers_are_proposed() {
    let mut read = Stage::of("read", 6, Part::Disk, 10.0, 4);
    read.parts.push((Part::Cpu, 4.0));
    let mut line = Line::of(vec![read], 5.0);
    (line.disk, line.cores) = (1.0, 16.0);
    let found = attribute_line(&line);

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Disk))
    );
    assert!(remedy(&found, "more_workers").is_none());
    assert!(error_pct(&line, remedy(&found, "page_cache").unwrap()) < 5.0);
}

#[test]
fn the_gain_of_collecting_garbage_between_epochs_is_predicted() {
    let mut line = Line::of(vec![stage("load", 1, 10.0, 4)], 30.0);
    line.gc = 0.1;
    let found = attribute_line(&line);

    assert!(
        error_pct(&line, remedy(&found, "gc_between_epochs").unwrap()) < 3.0,
        "{found:?}"
    );
}

// The case study: R3D-18 on eight GPUs, Kinetics.

/// The summary of a stage.
fn stage_summary(
    name: &str,
    concurrency: f64,
    calls: f64,
    mean_ms: f64,
    cpu_pct: f64,
) -> StageSummary {
    StageSummary {
        name: name.to_owned(),
        processes: 1,
        concurrency: Some(concurrency),
        concurrency_known: true,
        calls_per_batch: Some(calls),
        out_per_in: Some(1.0),
        mean_ms: Some(mean_ms),
        p50_ms: Some(0.97 * mean_ms),
        p95_ms: Some(1.3 * mean_ms),
        p99_ms: Some(1.5 * mean_ms),
        cpu_pct: Some(cpu_pct),
        ..StageSummary::default()
    }
}

fn sink(capacity: u32, empty_pct: f64) -> QueueSummary {
    QueueSummary {
        name: "sink".to_owned(),
        capacity: Some(capacity),
        last: true,
        empty_pct: Some(empty_pct),
        ..QueueSummary::default()
    }
}

fn estimate_around(ms: f64) -> Estimate {
    Estimate {
        value: ms,
        low: 0.99 * ms,
        high: 1.01 * ms,
    }
}

/// `at_once` concurrent decodes on 7 decoders, with 8 clips per batch and `item_ms` per clip.
fn nvdec(at_once: u32, item_ms: f64) -> PipelineFacts {
    let busy = f64::from(at_once.min(7));
    PipelineFacts {
        stages: vec![stage_summary(
            "decode",
            f64::from(at_once),
            8.0,
            item_ms,
            3.0,
        )],
        queues: vec![sink(24, 95.0)],
        step_ms: 8.0 * item_ms / f64::from(at_once),
        wait_ms: 8.0 * item_ms / f64::from(at_once) - 29.8,
        floor_ms: Some(estimate_around(29.8)),
        resources: ResourcesRecord {
            gpus: vec![GpuUse {
                nvdec_busy: Some(0.99 * busy),
                nvdec_engines: Some(7),
                sm_pct: Some(8.0),
                ..GpuUse::default()
            }],
            cores_used: Some(4.0),
            cores_usable: Some(96.0),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn a_step_of_426_ms_over_a_floor_of_29_8_has_the_decoder_as_bottleneck() {
    let baseline = PipelineFacts {
        stages: vec![
            stage_summary("fetch", 8.0, 32.0, 6.0, 10.0),
            stage_summary("decode", 8.0, 32.0, 106.0, 97.0),
        ],
        step_ms: 426.0,
        wait_ms: 396.0,
        floor_ms: Some(estimate_around(29.8)),
        resources: ResourcesRecord {
            gpus: vec![GpuUse {
                sm_pct: Some(5.75),
                ..GpuUse::default()
            }],
            cores_used: Some(8.5),
            cores_usable: Some(24.0),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    };
    let found = attribute(&baseline);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("decode")));
    assert!(
        remedy(&found, "stop").is_none(),
        "compute is 7 % of the step"
    );
    let best = &found.remedies[0];
    assert!(best.predicted_gain_pct > 40.0, "{best:?}");
    assert!(
        found.remedies.iter().all(|r| r.predicted_step_ms >= 29.8),
        "{found:?}"
    );
    // Larger batches do not help: the same decoder decodes twice as many clips.
    let mut bigger = baseline;
    for stage in &mut bigger.stages {
        stage.calls_per_batch = Some(64.0);
    }
    (bigger.step_ms, bigger.wait_ms, bigger.floor_ms) = (850.0, 795.0, Some(estimate_around(55.0)));
    let limit = attribute(&bigger).bottleneck.unwrap().limit_ms.unwrap();
    assert!((limit - 848.0).abs() < 1.0, "{limit}");
}

#[test]
fn for_fourteen_decodes_on_seven_engines_the_remedy_is_seven() {
    let found = attribute(&nvdec(14, 540.0));

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Nvdec))
    );
    let fewer = remedy(&found, "fewer_workers").unwrap();
    assert_eq!(fewer.change.as_ref().unwrap().to, "7");
    assert!(
        fewer.at_least,
        "what sharing an engine costs is not among the facts"
    );
    assert!(
        fewer.predicted_step_ms >= nvdec(7, 245.0).step_ms,
        "the bound holds"
    );
    assert!(remedy(&found, "more_workers").is_none());
}

#[test]
fn only_the_gpu_of_this_rank_counts_among_eight() {
    let mut facts = nvdec(7, 245.0);
    let own = facts.resources.gpus[0].clone();
    facts.resources.gpus = (0..8)
        .map(|ordinal| GpuUse {
            ordinal,
            ..own.clone()
        })
        .collect();
    assert_ne!(
        bottleneck_limit(&attribute(&facts)),
        Some(Limit::Resource(Resource::Nvdec))
    );

    facts.resources.compute_gpu = Some(ComputeGpu {
        ordinal: 3,
        rule: GpuRule::LocalRank,
    });
    let found = attribute(&facts);

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Nvdec))
    );
    assert!(remedy(&found, "cheaper_calls").is_some(), "{found:?}");
}

#[test]
fn for_seven_decodes_on_seven_engines_the_remedy_is_shorter_clips() {
    let found = attribute(&nvdec(7, 245.0));

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Nvdec))
    );
    assert!(remedy(&found, "more_workers").is_none());
    assert!(remedy(&found, "fewer_workers").is_none());
    let cheaper = remedy(&found, "cheaper_calls").unwrap();
    assert!(
        remedy_text(cheaper).contains("shorter clips"),
        "{cheaper:?}"
    );
    assert!(
        (cheaper.predicted_step_ms - 140.0).abs() < 7.0,
        "{cheaper:?}"
    );
}

#[test]
fn for_four_decodes_on_seven_engines_the_remedy_is_seven() {
    let found = attribute(&nvdec(4, 245.0));

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("decode")));
    let more = remedy(&found, "more_workers").unwrap();
    assert_eq!(more.change.as_ref().unwrap().to, "7");
    assert!((more.predicted_step_ms - 280.0).abs() < 15.0, "{more:?}");
}

/// A demux stage with `threads` threads that slows the model by `contention_ms`.
fn demux(threads: f64, call_ms: f64, contention_ms: f64, ipc: f64) -> PipelineFacts {
    let step = 8.0 * call_ms / threads;
    PipelineFacts {
        stages: vec![stage_summary("demux", threads, 8.0, call_ms, 99.0)],
        queues: vec![sink(3, 96.0)],
        step_ms: step,
        wait_ms: step - 30.0 - contention_ms,
        floor_ms: Some(estimate_around(30.0)),
        contention_ms: Some(contention_ms),
        resources: ResourcesRecord {
            cores_used: Some(threads + 2.0),
            cores_usable: Some(96.0),
            consumer_ipc: Some(ipc),
            gil_wait_ms: Some(0.05),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn for_eight_demux_threads_short_of_memory_bandwidth_the_remedy_is_fewer_threads() {
    let found = attribute(&demux(8.0, 340.0, 12.0, 0.5));

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Memory))
    );
    let fewer = remedy(&found, "fewer_workers").unwrap();
    let change = fewer.change.as_ref().unwrap();
    assert_eq!((change.from.as_str(), change.to.as_str()), ("8", "4"));
    assert!(fewer.at_least && fewer.confidence < 0.5, "{fewer:?}");
    assert!(remedy(&found, "more_workers").is_none());
}

#[test]
fn three_demux_threads_with_free_memory_bandwidth_are_limited_by_their_number() {
    let found = attribute(&demux(3.0, 37.5, 1.0, 1.3));

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("demux")));
    assert!(remedy(&found, "fewer_workers").is_none());
}

/// Eight threads that demux, with the same number of calls in progress at all times.
fn many_demux_threads() -> PipelineFacts {
    let mut facts = demux(8.0, 226.0, 0.0, 1.3);
    (facts.floor_ms, facts.contention_ms) = (None, None);
    // The queue is large enough for the threads to work while the loop computes.
    (facts.queues[0].empty_pct, facts.queues[0].capacity) = (Some(98.0), Some(64));
    facts
}

/// The answer of a what-if that allows `calls` concurrent calls of `demux` and makes the step shorter by `gain_pct`.
fn gate(facts: &PipelineFacts, calls: f64, gain_pct: f64) -> WhatIfRecord {
    let step_ms = |gain_pct: f64| facts.step_ms * (1.0 - gain_pct / 100.0);
    WhatIfRecord {
        stage: Some("demux".to_owned()),
        intervention: InterventionKind::Gate,
        amount: calls,
        step_ms: step_ms(gain_pct),
        step_ci_ms: (step_ms(gain_pct + 2.0), step_ms(gain_pct - 2.0)),
        modelled_step_ms: None,
        gain_pct,
        gain_ci_pct: (gain_pct - 2.0, gain_pct + 2.0),
        steps: 100,
        inputs_not_trained_on: 0,
    }
}

#[test]
fn for_calls_that_take_more_than_in_proportion_longer_the_remedy_is_the_number_that_delivers_most()
{
    let mut facts = many_demux_threads();
    // Two concurrent calls have the highest throughput: 2 results in 11 ms.
    let times = [(1, 10.0), (2, 11.0), (3, 45.0), (4, 80.0), (8, 226.0)];
    facts.stages[0].call_ms_by_calls = times
        .into_iter()
        .map(|(calls, mean_ms)| CallsAtOnce {
            calls,
            count: 200,
            mean_ms,
            sd_ms: 0.05 * mean_ms,
        })
        .collect();

    let found = attribute(&facts);

    let fewer = remedy(&found, "fewer_workers").unwrap();
    assert_eq!(fewer.change.as_ref().unwrap().to, "2");
    assert_eq!(
        remedy_text(fewer),
        "Run 2 concurrent calls of `demux` instead of 8: further calls only slow each other."
    );
    assert!(!fewer.at_least);
    let step_ms = 8.0 * 11.0 / 2.0;
    assert!(
        (fewer.predicted_step_ms / step_ms - 1.0).abs() < 0.1,
        "{fewer:?}"
    );
}

#[test]
fn without_measured_times_of_fewer_calls_no_number_is_proposed() {
    assert!(remedy(&attribute(&many_demux_threads()), "fewer_workers").is_none());
}

#[test]
fn the_step_that_a_what_if_measured_with_fewer_calls_is_that_of_the_remedy() {
    let mut facts = many_demux_threads();
    facts.what_if = vec![gate(&facts, 3.0, 40.0)];

    let found = attribute(&facts);

    let fewer = remedy(&found, "fewer_workers").unwrap();
    assert_eq!(fewer.change.as_ref().unwrap().to, "3");
    assert!(!fewer.at_least);
    assert!((fewer.predicted_step_ms / facts.step_ms - 0.6).abs() < 1e-9);
}

#[test]
fn of_several_measured_numbers_of_calls_the_smallest_that_suffices_is_proposed_and_not_more_calls()
{
    let mut facts = many_demux_threads();
    assert!(remedy(&attribute(&facts), "more_workers").is_some());
    let measured = [(4.0, 41.0), (2.0, 40.0), (1.0, 10.0)];
    facts.what_if = measured
        .map(|(calls, gain_pct)| gate(&facts, calls, gain_pct))
        .into();

    let found = attribute(&facts);

    let fewer = remedy(&found, "fewer_workers").unwrap();
    assert_eq!(fewer.change.as_ref().unwrap().to, "2");
    assert!(remedy(&found, "more_workers").is_none());
}

#[test]
fn fewer_calls_are_not_proposed_if_a_what_if_measured_a_longer_step_with_them() {
    let mut facts = demux(8.0, 340.0, 12.0, 0.5);
    assert!(remedy(&attribute(&facts), "fewer_workers").is_some());

    facts.what_if = vec![gate(&facts, 4.0, -30.0)];
    assert!(remedy(&attribute(&facts), "fewer_workers").is_none());
}

#[test]
fn threads_that_share_the_lock_of_a_child_process_get_fewer_threads_and_no_subprocess() {
    let mut facts = many_demux_threads();
    // Together they do the work of one core. The training process waits for its own lock.
    facts.stages[0].cpu_pct = Some(12.5);
    facts.stages[0].call_ms_by_calls = [(2, 120.0), (8, 226.0)]
        .into_iter()
        .map(|(calls, mean_ms)| CallsAtOnce {
            calls,
            count: 200,
            mean_ms,
            sd_ms: 10.0,
        })
        .collect();
    facts.resources.gil_wait_ms = Some(30.0);
    facts.resources.other_threads_cores = Some(1.0);
    let here = attribute(&facts);
    assert!(remedy(&here, "subprocess").is_some(), "{here:?}");

    facts.stages[0].in_child_processes = true;
    let found = attribute(&facts);

    assert!(remedy(&found, "subprocess").is_none(), "{found:?}");
    let fewer = remedy(&found, "fewer_workers").unwrap();
    assert!(fewer.at_least, "{fewer:?}");
    assert!(fewer.change.as_ref().unwrap().to.parse::<u32>().unwrap() < 8);
}

#[test]
fn nested_stages_count_once_and_the_inner_one_is_named() {
    let mut facts = nvdec(4, 245.0);
    facts.resources.gpus.clear();
    facts.stages[0].name = "clip".to_owned();
    let inner = StageSummary {
        within: Some("clip".to_owned()),
        ..stage_summary("resize", 4.0, 8.0, 180.0, 90.0)
    };
    facts.stages.push(inner);
    let found = attribute(&facts);

    assert_eq!(bottleneck_limit(&found), Some(stage_limit("clip")));
    let evidence = evidence(&found);
    assert!(
        evidence.contains("`resize` takes 73 % of its time"),
        "{evidence}"
    );
}

#[test]
fn without_stages_there_is_no_verdict_on_stages() {
    let facts = PipelineFacts {
        step_ms: 30.0,
        wait_ms: 20.0,
        ..PipelineFacts::default()
    };
    assert_eq!(attribute(&facts), Attribution::default());
    let hardly_waits = PipelineFacts {
        wait_ms: 0.1,
        ..facts
    };
    assert_eq!(
        bottleneck_limit(&attribute(&hardly_waits)),
        Some(Limit::Compute)
    );
    assert_eq!(attribute(&PipelineFacts::default()), Attribution::default());
}

#[test]
fn contention_of_the_loader_with_the_model_is_not_a_reason_to_stop() {
    let mut line = Line::of(vec![stage("decode", 4, 60.0, 8)], 30.0);
    line.contention = 0.1;
    let totals = run(&line, STEPS, 1);
    let found = attribute(&facts(&line, &totals, true, Blind::default()));

    assert_eq!(bottleneck_limit(&found), Some(Limit::Compute));
    assert!(remedy(&found, "stop").is_none(), "{found:?}");
    // The gain of avoiding the contention is unknown.
    assert!(found.remedies.iter().all(|r| !r.at_least), "{found:?}");
}

#[test]
fn the_stage_after_a_full_queue_is_the_bottleneck_of_two_similar_stages() {
    let line = Line::of(
        vec![stage("read", 4, 41.0, 2), stage("decode", 4, 42.0, 4)],
        4.0,
    );
    assert_eq!(
        bottleneck_limit(&attribute_line(&line)),
        Some(stage_limit("decode"))
    );
}

/// A queue behind a stage, and the shares of time that it is empty and full.
fn queue_after(stage: &str, last: bool, (empty_pct, full_pct): (f64, f64)) -> QueueSummary {
    QueueSummary {
        name: format!("after {stage}"),
        capacity: Some(if last { 3 } else { 4 }),
        last,
        empty_pct: Some(empty_pct),
        full_pct: Some(full_pct),
        ..QueueSummary::default()
    }
}

/// Measured with `make demo` on two cores, except for the number of cores in use.
fn video_pipeline(cores_used: f64) -> PipelineFacts {
    PipelineFacts {
        stages: vec![
            stage_summary("fetch", 1.0, 3.0, 1.17, 23.5),
            stage_summary("demux", 1.0, 3.0, 4.08, 45.0),
            stage_summary("decode", 1.0, 3.0, 19.65, 91.2),
            stage_summary("resize", 1.0, 3.0, 4.92, 19.6),
            stage_summary("collate", 1.0, 1.0, 0.11, 91.7),
        ],
        queues: vec![
            queue_after("fetch", false, (0.0, 99.1)),
            queue_after("demux", false, (0.0, 99.0)),
            queue_after("decode", false, (100.0, 0.0)),
            queue_after("resize", false, (96.1, 0.0)),
            queue_after("collate", true, (95.4, 4.2)),
        ],
        step_ms: 62.2,
        wait_ms: 19.7,
        floor_ms: Some(estimate_around(28.3)),
        resources: ResourcesRecord {
            cores_used: Some(cores_used),
            cores_usable: Some(2.0),
            others_cores: Some(0.02),
            runnable_threads: Some(3.97),
            consumer_run_queue_pct: Some(7.9),
            cpu_pressure_pct: Some(25.5),
            gil_wait_ms: Some(0.08),
            other_threads_cores: Some(0.96),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn a_stage_between_a_full_and_an_empty_queue_is_the_bottleneck_while_cores_are_free() {
    let found = attribute(&video_pipeline(1.682));

    assert_eq!(
        bottleneck_limit(&found),
        Some(stage_limit("decode")),
        "{found:?}"
    );
}

#[test]
fn exhausted_cores_are_the_bottleneck_and_name_the_stage_for_which_items_wait() {
    let found = attribute(&video_pipeline(1.95));

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Cores))
    );
    let text = evidence(&found);
    let expected = "of them by `decode` (its input queue is full 99 % of the time)";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn facts_that_do_not_explain_the_step_name_no_stage() {
    let mut facts = nvdec(4, 245.0);
    facts.stages[0].mean_ms = Some(60.0);
    let found = attribute(&facts);
    assert_eq!(found.bottleneck, None, "{found:?}");
}

// Regression tests: a review found wrong verdicts in these cases.

/// A loop that hardly waits, with threads beside it.
fn hardly_waits(resources: ResourcesRecord) -> PipelineFacts {
    PipelineFacts {
        stages: vec![stage_summary("transform", 2.0, 1.0, 40.0, 45.0)],
        queues: vec![sink(4, 1.0)],
        step_ms: 23.2,
        wait_ms: 0.3,
        resources,
        ..PipelineFacts::default()
    }
}

#[test]
fn a_loop_that_hardly_waits_gets_neither_a_larger_queue_nor_fewer_calls_that_only_wait() {
    let mut facts = hardly_waits(ResourcesRecord::default());
    // More concurrent calls have a lower throughput.
    facts.stages = vec![StageSummary {
        call_ms_by_calls: times_by_calls([10.0, 25.0, 60.0, 120.0]),
        ..stage_summary("transform", 4.0, 1.0, 90.0, 2.0)
    }];
    let found = attribute(&facts);
    assert!(remedy(&found, "fewer_workers").is_none(), "{found:?}");
    assert!(remedy(&found, "bigger_buffer").is_none(), "{found:?}");

    (facts.wait_ms, facts.queues) = (20.0, vec![sink(4, 90.0)]);
    assert!(remedy(&attribute(&facts), "fewer_workers").is_some());
}

#[test]
fn loading_on_the_training_thread_that_mostly_waits_should_run_several_times_at_once() {
    let found = |cpu_pct| {
        let facts = PipelineFacts {
            stages: vec![stage_summary("loader", 1.0, 1.0, 30.0, cpu_pct)],
            step_ms: 35.0,
            wait_ms: 30.0,
            training_thread_share: Some(1.0),
            resources: ResourcesRecord {
                cores_usable: Some(2.0),
                cores_used: Some(0.3),
                ..ResourcesRecord::default()
            },
            ..PipelineFacts::default()
        };
        let found = attribute(&facts);
        remedy(&found, "background").unwrap().clone()
    };

    let waits = found(3.0);
    let text = remedy_text(&waits);
    assert!(
        text.starts_with("Load 6 batches at once on separate threads"),
        "{text}"
    );
    assert!(waits.predicted_step_ms < 6.0, "{waits:?}");

    let works = found(95.0);
    let text = remedy_text(&works);
    assert!(
        text.starts_with("Load the next batch in a separate thread"),
        "{text}"
    );
    assert!(works.predicted_step_ms > 29.0, "{works:?}");
}

/// Two stages that run in turn on two threads that are always busy.
fn stages_on_two_threads() -> PipelineFacts {
    let threads = |stage: &str| StageThreads {
        stage: stage.to_owned(),
        // The list includes threads of an earlier epoch.
        threads: [3, 4, 7, 8].into_iter().collect(),
    };
    let stage = |name: &str, mean_ms, cpu_pct| StageSummary {
        concurrency_known: false,
        ..stage_summary(name, 2.0, 2.0, mean_ms, cpu_pct)
    };
    PipelineFacts {
        stages: vec![stage("fetch", 20.0, 1.0), stage("decode", 24.0, 3.0)],
        step_ms: 44.5,
        wait_ms: 40.0,
        stage_threads: vec![threads("fetch"), threads("decode")],
        training_thread_share: Some(0.0),
        resources: ResourcesRecord {
            cores_usable: Some(20.0),
            cores_used: Some(0.5),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn stages_that_share_busy_threads_are_limited_by_the_number_of_threads() {
    let found = attribute(&stages_on_two_threads());

    let pool = Limit::Pool("loader".to_owned());
    assert_eq!(bottleneck_limit(&found), Some(pool));
    assert_eq!(
        evidence(&found),
        "its 2 threads are busy 99 % of the time with `decode`, `fetch`"
    );
    let more = remedy(&found, "more_threads").unwrap();
    let text = remedy_text(more);
    assert_eq!(text, "Run the loader on 16 threads instead of 2.");
    assert!(more.predicted_step_ms < 12.0, "{more:?}");
    let cheaper = remedy(&found, "cheaper_calls").unwrap();
    assert!(remedy_text(cheaper).contains("`decode`"), "{cheaper:?}");
    assert!(remedy(&found, "more_workers").is_none(), "{found:?}");
}

#[test]
fn threads_do_not_limit_stages_with_threads_of_their_own_a_declared_concurrency_or_a_scarce_lock() {
    let mut apart = stages_on_two_threads();
    apart.stage_threads[1].threads = [9, 10].into_iter().collect();
    let mut declared = stages_on_two_threads();
    declared.stages[0].concurrency_known = true;
    let mut locked = stages_on_two_threads();
    locked.resources.gil_wait_ms = Some(20.0);
    locked.resources.other_threads_cores = Some(1.0);

    for facts in [apart, declared, locked] {
        let found = attribute(&facts);
        assert!(remedy(&found, "more_threads").is_none(), "{found:?}");
    }
}

#[test]
fn a_loader_on_another_thread_is_not_on_the_training_thread_although_the_loop_waits_as_long() {
    let found = |training_thread_share| {
        let facts = PipelineFacts {
            stages: vec![stage_summary("load", 1.0, 1.0, 30.0, 3.0)],
            step_ms: 30.5,
            wait_ms: 30.0,
            training_thread_share,
            ..PipelineFacts::default()
        };
        evidence(&attribute(&facts))
    };

    assert!(found(Some(1.0)).contains("on the training thread itself"));
    assert!(found(None).contains("on the training thread itself"));
    assert!(!found(Some(0.0)).contains("training thread itself"));
}

#[test]
fn a_loop_that_waits_for_a_core_has_the_cores_as_bottleneck() {
    let found = attribute(&hardly_waits(ResourcesRecord {
        cores_used: Some(0.8),
        cores_usable: Some(2.0),
        others_cores: Some(1.2),
        consumer_run_queue_pct: Some(61.0),
        ..ResourcesRecord::default()
    }));

    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Cores))
    );
    assert!(remedy(&found, "stop").is_none());
    let away = remedy(&found, "others_away").unwrap();
    assert!(remedy_text(away).contains("1.2 of 2 cores"), "{away:?}");
}

#[test]
fn a_loop_that_waits_for_the_interpreter_lock_has_the_lock_as_bottleneck() {
    let with = |others| ResourcesRecord {
        cores_used: Some(1.0),
        cores_usable: Some(8.0),
        gil_wait_ms: Some(18.0),
        other_threads_cores: Some(others),
        ..ResourcesRecord::default()
    };
    let found = attribute(&hardly_waits(with(0.6)));
    assert_eq!(
        bottleneck_limit(&found),
        Some(Limit::Resource(Resource::Gil))
    );
    assert!(remedy(&found, "stop").is_none());
    assert!(remedy(&found, "subprocess").is_some());

    // A single thread that computes in Python makes the GIL probe wait, but delays no other thread.
    let alone = attribute(&hardly_waits(with(0.0)));
    assert_eq!(bottleneck_limit(&alone), Some(Limit::Compute));
}

#[test]
fn halving_a_nested_stage_saves_half_of_its_own_time_only() {
    let inner = StageSummary {
        within: Some("load".to_owned()),
        ..stage_summary("parse", 1.0, 1.0, 24.0, 0.0)
    };
    let found = attribute(&PipelineFacts {
        stages: vec![stage_summary("load", 1.0, 1.0, 40.0, 0.0), inner],
        queues: vec![sink(4, 95.0)],
        step_ms: 40.2,
        wait_ms: 30.1,
        ..PipelineFacts::default()
    });
    let cheaper = remedy(&found, "cheaper_calls").unwrap();

    assert!(remedy_text(cheaper).contains("`parse`"), "{cheaper:?}");
    assert!(
        (cheaper.predicted_step_ms / 28.2 - 1.0).abs() < 0.03,
        "{cheaper:?}"
    );
}

#[test]
fn a_pool_without_waiting_tasks_gets_no_workers_as_remedy() {
    let pool = QueueSummary {
        name: "pool".to_owned(),
        empty_pct: Some(100.0),
        concurrency: Some(4),
        active: Some(3.95),
        ..QueueSummary::default()
    };
    let found = attribute(&PipelineFacts {
        stages: vec![stage_summary("decode", 4.0, 1.0, 60.0, 0.0)],
        queues: vec![pool],
        step_ms: 15.1,
        wait_ms: 5.0,
        ..PipelineFacts::default()
    });

    assert!(remedy(&found, "more_workers").is_none());
    assert!(remedy(&found, "submit_ahead").is_some());
}

#[test]
fn no_remedy_of_the_loader_predicts_less_than_the_compute_time() {
    let mut read = stage("read", 1, 28.0, 30);
    read.service = Service::new(1.0, 1.2, Shape::Rare, 0.0);
    let line = Line::of(vec![read], 30.2);
    let totals = run(&line, 500, 1);
    let facts = facts(&line, &totals, false, Blind::default());
    let own = facts.step_ms - facts.wait_ms;

    for remedy in attribute(&facts).remedies {
        assert!(remedy.predicted_step_ms >= 0.999 * own, "{remedy:?} {own}");
    }
}

#[test]
fn a_remedy_counts_from_the_declared_concurrency_of_a_stage() {
    let line = Line::of(vec![stage("decode", 3, 60.0, 4)], 10.0);
    let mut facts = facts(&line, &run(&line, STEPS, 1), false, Blind::default());
    facts.stages[0].concurrency = Some(1.0);

    let found = attribute(&facts);
    let remedy = remedy(&found, "more_workers").unwrap();

    let change = remedy.change.as_ref().unwrap();
    assert_eq!(change.from, "1");
    assert_eq!(
        remedy_text(remedy),
        format!(
            "Run {} concurrent calls of `decode` instead of 1.",
            change.to
        )
    );
    // The program declares 1 concurrent call, but 3 are in progress. The remedy adds to the real 3.
    let threads: u32 = change.to.parse().unwrap();
    let with = Line::of(vec![stage("decode", threads + 2, 60.0, 4)], 10.0);
    let really = run(&with, STEPS, 2).step_ms();
    assert!((remedy.predicted_step_ms / really - 1.0).abs() < 0.05);
}

#[test]
fn half_the_cost_of_a_line_at_most_halves_the_step() {
    let frame = Frame {
        file: "train.py".into(),
        line: 10,
        function: "parse".into(),
        origin: Origin::Own,
    };
    // In the first case, all other waits of the calls are for the interpreter lock. In the second case, they are at
    // this line too.
    for wait_share in [0.0, 0.99] {
        let found = attribute(&PipelineFacts {
            stages: vec![stage_summary("parse", 16.0, 1.0, 14.28, 16.9)],
            queues: vec![QueueSummary {
                full_pct: Some(53.0),
                filled_by: Some("parse".to_owned()),
                ..sink(4, 15.0)
            }],
            step_ms: 1.4645,
            wait_ms: 1.4507,
            lines: vec![LineShare {
                place: Place::Stage("parse".to_owned()),
                frame: frame.clone(),
                activity: Activity::Wait(WaitFor::InterpreterLock),
                share: 0.99,
                proportional_share: 0.99,
                work_share: 0.99,
                wait_share,
                own_share: 0.99,
            }],
            resources: ResourcesRecord {
                cores_used: Some(1.72),
                cores_usable: Some(2.0),
                others_cores: Some(0.04),
                runnable_threads: Some(8.0),
                consumer_run_queue_pct: Some(38.0),
                gil_wait_ms: Some(3.0),
                other_threads_cores: Some(1.69),
                ..ResourcesRecord::default()
            },
            ..PipelineFacts::default()
        });

        let ms = found.lines.first().unwrap().predicted_step_ms;
        assert!(ms > 0.49 * 1.4645, "{wait_share}: {ms}");
    }
}
