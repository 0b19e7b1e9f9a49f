//! Loops whose GPU works while they wait for data. The numbers of the first loop were measured on an H100.

use headspace_agent::analysis::attribution::facts::PipelineFacts;
use headspace_agent::analysis::attribution::{Attribution, Limit, attribute};
use headspace_agent::model::record::{
    Estimate, GpuUse, LoaderRecord, QueueSummary, ResourcesRecord, StageSummary,
};
use headspace_agent::wording::bottleneck_record;

/// The stage `fetch`, with one call at a time in each process.
fn fetch(processes: u32, mean_ms: f64, cpu_pct: f64) -> StageSummary {
    StageSummary {
        name: "fetch".to_owned(),
        processes,
        concurrency: Some(f64::from(processes)),
        concurrency_known: true,
        calls_per_batch: Some(1.0),
        out_per_in: Some(1.0),
        mean_ms: Some(mean_ms),
        cpu_pct: Some(cpu_pct),
        ..StageSummary::default()
    }
}

/// A loop that loads on its training thread. Its loader uploads a batch in each call, so the call waits for the GPU
/// work that the loop launched before. The GPU works for 97 % of the step.
fn loop_that_uploads_in_its_loader(gpu: GpuUse) -> PipelineFacts {
    PipelineFacts {
        stages: vec![fetch(1, 30.0, 99.0)],
        step_ms: 36.0,
        wait_ms: 30.1,
        loader: LoaderRecord {
            workers: Some(0),
            ..LoaderRecord::default()
        },
        resources: ResourcesRecord {
            gpus: vec![gpu],
            cores_used: Some(3.9),
            cores_usable: Some(16.0),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

fn busy(pct: f64) -> GpuUse {
    GpuUse {
        any_kernel_pct: Some(pct),
        others_memory_pct: Some(0.0),
        ..GpuUse::default()
    }
}

fn limit(found: &Attribution) -> Option<&Limit> {
    found.bottleneck.as_ref().map(|found| &found.limit)
}

/// The shortest step that any remedy predicts.
fn shortest_ms(found: &Attribution) -> f64 {
    let predicted = found.remedies.iter().map(|remedy| remedy.predicted_step_ms);
    predicted.fold(f64::INFINITY, f64::min)
}

#[test]
fn a_loader_that_waits_for_a_busy_gpu_is_not_the_bottleneck_and_no_remedy_promises_less_than_the_gpus_time()
 {
    let found = attribute(&loop_that_uploads_in_its_loader(busy(97.0)));

    assert_eq!(limit(&found), Some(&Limit::Compute), "{found:?}");
    assert!(shortest_ms(&found) >= 0.97 * 36.0, "{found:?}");
    let evidence = found.bottleneck.as_ref().map(bottleneck_record);
    let evidence = evidence.map(|record| record.evidence).unwrap_or_default();
    assert!(
        evidence.contains("the GPU works for 34.9 ms of each step of 36.0 ms"),
        "{evidence}"
    );
}

#[test]
fn a_loader_whose_wait_stays_with_free_data_is_not_the_bottleneck() {
    let probed = |floor_ms| PipelineFacts {
        floor_ms: Some(Estimate {
            value: floor_ms,
            low: 0.99 * floor_ms,
            high: 1.01 * floor_ms,
        }),
        ..loop_that_uploads_in_its_loader(GpuUse::default())
    };
    // The probe measured a floor of 34.0 ms, and CUDA events measured 34.2 ms.
    let waits_for_device = attribute(&probed(34.0));
    let waits_for_data = attribute(&probed(12.0));

    assert_eq!(limit(&waits_for_device), Some(&Limit::Compute));
    assert_ne!(limit(&waits_for_data), Some(&Limit::Compute));
}

#[test]
fn a_loader_beside_an_idle_gpu_is_the_bottleneck_and_its_remedy_leaves_the_gpus_time() {
    let found = attribute(&loop_that_uploads_in_its_loader(busy(40.0)));

    let fetch = Limit::Stage("fetch".to_owned());
    assert_eq!(limit(&found), Some(&fetch), "{found:?}");
    let shortest_ms = shortest_ms(&found);
    assert!((0.4 * 36.0..0.7 * 36.0).contains(&shortest_ms), "{found:?}");
}

#[test]
fn a_gpu_whose_work_is_not_known_to_be_the_ranks_own_bounds_nothing() {
    let shared = GpuUse {
        others_memory_pct: Some(50.0),
        ..busy(97.0)
    };
    let with_ranks = PipelineFacts {
        ranks_in_run: 2,
        ..loop_that_uploads_in_its_loader(busy(97.0))
    };

    let unknown = GpuUse {
        others_memory_pct: None,
        ..busy(97.0)
    };

    let of_others = [shared, unknown].map(loop_that_uploads_in_its_loader);
    for facts in of_others.into_iter().chain([with_ranks]) {
        let found = attribute(&facts);
        assert_ne!(limit(&found), Some(&Limit::Compute), "{found:?}");
    }
}

/// A loop that launches work for `gpu_pct` of the step, and then waits for two workers.
fn loop_that_waits_for_workers(gpu_pct: f64) -> PipelineFacts {
    PipelineFacts {
        stages: vec![fetch(2, 60.0, 20.0)],
        queues: vec![QueueSummary {
            name: "prefetch".to_owned(),
            capacity: Some(4),
            last: true,
            empty_pct: Some(95.0),
            full_pct: Some(0.0),
            ..QueueSummary::default()
        }],
        step_ms: 30.0,
        wait_ms: 24.0,
        loader: LoaderRecord {
            workers: Some(2),
            ..LoaderRecord::default()
        },
        resources: ResourcesRecord {
            gpus: vec![busy(gpu_pct)],
            cores_used: Some(1.0),
            cores_usable: Some(16.0),
            ..ResourcesRecord::default()
        },
        ..PipelineFacts::default()
    }
}

#[test]
fn more_workers_are_predicted_to_gain_only_the_time_in_which_the_gpu_idles() {
    let asleep = shortest_ms(&attribute(&loop_that_waits_for_workers(0.0)));
    let half_busy = shortest_ms(&attribute(&loop_that_waits_for_workers(50.0)));
    let mostly_busy = shortest_ms(&attribute(&loop_that_waits_for_workers(90.0)));

    assert!(asleep < 9.0, "{asleep}");
    assert!((15.0..16.0).contains(&half_busy), "{half_busy}");
    assert!((27.0..28.0).contains(&mostly_busy), "{mostly_busy}");
}
