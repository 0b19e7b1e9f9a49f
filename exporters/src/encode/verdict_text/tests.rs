//! Tests whole verdicts as the user reads them.

use headspace_agent::model::Mode;
use headspace_agent::model::OptionsFrom;
use headspace_agent::model::record::{
    BottleneckKind, BottleneckRecord, ChangeRecord, ComputeGpu, Dropped, EndCause, EndRecord,
    Estimate, FindingCode, FindingRecord, GpuRule, GpuUse, PeriodRecord, ProbeRecord, QueueSummary,
    RemedyRecord, ResourcesRecord, RunRecord, RunTimeRecord, StageSummary, SummaryRecord,
};

use headspace_agent::wording::section::SectionId;

use super::*;

const PLACE: &str = "headspace-runs/2026-11-21T09-30-12-4711";

fn measured() -> SummaryRecord {
    SummaryRecord {
        mode: Some(Mode::Measure),
        loop_name: Some("loader".to_owned()),
        steps: 640,
        steady_steps: 620,
        steady_s: 19.2,
        steady_step_mean_ms: Some(30.0),
        wait_ms: Some(20.1),
        compute_ms: Some(9.9),
        wait_pct: Some(67.0),
        headspace_upper_bound_pct: Some(67.0),
        overhead_pct: Some(0.02),
        ..SummaryRecord::default()
    }
}

fn probed() -> SummaryRecord {
    SummaryRecord {
        mode: Some(Mode::Probe),
        floor_step_ms: Some(10.0),
        headspace_pct: Some(66.7),
        headspace_ci_pct: Some((65.6, 67.8)),
        max_speedup: Some(3.0),
        exposed_wait_ms: Some(19.8),
        contention_ms: Some(0.2),
        headspace_upper_bound_pct: None,
        ..measured()
    }
}

fn verdict_of(summary: &SummaryRecord) -> String {
    verdict_text(&Verdict {
        location: Some(PLACE),
        ..Verdict::new(summary)
    })
}

/// A run of 9 epochs on 8 GPUs, of which half the steps are taken.
fn run_time() -> RunTimeRecord {
    let period = |steps: u64, seconds: f64| PeriodRecord {
        steps,
        duration_s: Estimate::around(seconds, 0.02 * seconds),
        saved_by_free_data_s: Some(Estimate::around(0.5 * seconds, 0.03 * seconds)),
        saved_by_remedy_s: Some(0.25 * seconds),
        saved_by_remedy_ci_s: None,
    };
    RunTimeRecord {
        gpus: Some(8),
        epochs: Some(9),
        epoch: Some(period(45_333, 1360.0)),
        run: Some(period(408_000, 12_240.0)),
        remaining: Some(period(204_000, 6120.0)),
    }
}

/// The lines of a verdict with that label, and those that continue it.
fn lines_of(verdict: &Verdict<'_>, label: &str) -> Vec<String> {
    let text = verdict_text(verdict);
    let lines = text.lines().skip_while(|line| !line.starts_with(label));
    let (first, rest): (Vec<_>, Vec<_>) = lines.enumerate().partition(|(at, _)| *at == 0);
    let rest = (rest.into_iter()).take_while(|(_, line)| line.starts_with(' '));
    let all = first.into_iter().chain(rest);
    all.map(|(_, line)| line.chars().skip(LABEL).collect())
        .collect()
}

#[test]
fn verdict_states_how_long_an_epoch_and_the_run_take_and_what_changes_would_save() {
    let summary = SummaryRecord {
        run_time: Some(run_time()),
        ..probed()
    };
    let running = Verdict::new(&summary);
    assert_eq!(
        lines_of(&running, "time"),
        [
            "run 3 h 24 min (9 epochs of 22 min 40 s)   free data saves 102 min 0 s (13.6 GPU-hours)",
            "the first remedy saves 51 min 0 s (6.8 GPU-hours)",
            "remaining 102 min 0 s ± 122 s (76 min 30 s with the first remedy)",
        ]
    );

    let killed = Verdict {
        unfinished_s: Some(4.0),
        ..running
    };
    let text = lines_of(&killed, "time").join(" ");
    assert!(!text.contains("remaining"), "{text}");
}

#[test]
fn the_epoch_of_a_run_of_one_epoch_and_savings_that_may_be_zero_are_left_out() {
    let mut time = RunTimeRecord {
        epochs: Some(1),
        remaining: None,
        ..run_time()
    };
    if let Some(run) = &mut time.run {
        run.saved_by_free_data_s = Some(Estimate::around(100.0, 200.0));
        run.saved_by_remedy_s = None;
        run.duration_s = Estimate::around(12_240.0, 0.0);
    }
    let summary = SummaryRecord {
        run_time: Some(time),
        ..probed()
    };
    assert_eq!(
        lines_of(&Verdict::new(&summary), "time"),
        ["run 3 h 24 min"]
    );
}

#[test]
fn verdict_without_a_probe_has_an_upper_bound_and_suggests_a_probe() {
    assert_eq!(
        verdict_of(&measured()),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      unknown   less waiting saves at most 67.0 % of the step
           The upper bound covers only the wait. If the device works during the wait, the saving is
           smaller. Only a probe shows whether the loader also slows the model's own code
           (contention): `HEADSPACE_MODE=probe`
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn verdict_of_a_loop_that_hardly_waits_does_not_say_that_its_loader_costs_nothing() {
    let waiting = |pct: f64| SummaryRecord {
        wait_ms: Some(0.3 * pct),
        compute_ms: Some(30.0 - 0.3 * pct),
        wait_pct: Some(pct),
        headspace_upper_bound_pct: Some(pct),
        ..measured()
    };

    assert_eq!(
        verdict_of(&waiting(0.4)),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 120 µs (0.4 %)   compute 29.9 ms
floor      unknown   less waiting saves at most 0.4 % of the step
           The loop hardly waits for data. Only a probe shows whether the loader slows the model's
           own code (contention): `HEADSPACE_MODE=probe`
cost       measuring used 0.02 % of one core
"
    );
    let text = verdict_of(&waiting(1.0));
    assert!(
        text.contains("The upper bound covers only the wait."),
        "{text}"
    );
}

#[test]
fn verdict_suggests_a_probe_by_the_users_own_interface() {
    for (from, way) in [
        (None, "`HEADSPACE_MODE=probe`"),
        (Some(OptionsFrom::Run), "`headspace run --mode probe`"),
        (
            Some(OptionsFrom::Wrap),
            "`headspace.wrap(..., mode=\"probe\")`",
        ),
    ] {
        let summary = SummaryRecord {
            options_from: from,
            ..measured()
        };

        let floor = Verdict::new(&summary).sections(Detail::Brief);
        let floor = floor.iter().find(|section| section.id == SectionId::Floor);
        let Some(Block::Sentence(last)) = floor.and_then(|section| section.blocks.last()) else {
            panic!("{floor:?}");
        };
        assert!(last.ends_with(way), "{last}");
    }
}

#[test]
fn verdict_counts_repeated_batches_and_names_what_ended_the_run() {
    let summary = SummaryRecord {
        replayed_steps: 104,
        ended_by: Some(EndRecord {
            cause: EndCause::Exception,
            name: "ValueError".to_owned(),
        }),
        ..probed()
    };

    assert_eq!(
        verdict_of(&summary),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
ended      An uncaught ValueError ended the run.
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      10.0 ms if data were free   headspace 66.7 % ± 1.1   up to 3.0x faster
free data  saves 19.8 ms of waiting and 200 µs of contention with the loader
repeated   104 of 640 steps trained on batches that were repeated
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn a_remedy_counts_the_workers_of_each_rank() {
    let summary = SummaryRecord {
        remedies: vec![RemedyRecord {
            what: "Load in 4 worker processes instead of 2.".to_owned(),
            change: Some(ChangeRecord {
                knob: "num_workers".to_owned(),
                from: "2".to_owned(),
                to: "4".to_owned(),
                ..ChangeRecord::default()
            }),
            predicted_step_ms: 15.0,
            predicted_gain_pct: 50.0,
            confidence: 0.8,
            ..RemedyRecord::default()
        }],
        ..measured()
    };
    let words = |world_size| {
        let run = RunRecord {
            world_size,
            ..RunRecord::default()
        };
        let verdict = Verdict {
            run: Some(&run),
            ..Verdict::new(&summary)
        };
        let text = verdict_text(&verdict);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };

    let ranks = words(8);
    assert!(
        ranks.contains("instead of 2 on each rank (likely)."),
        "{ranks}"
    );
    let alone = words(1);
    assert!(alone.contains("instead of 2 (likely)."), "{alone}");
}

#[test]
fn verdict_of_a_probe_has_the_floor_the_headspace_and_its_two_parts() {
    assert_eq!(
        verdict_of(&probed()),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      10.0 ms if data were free   headspace 66.7 % ± 1.1   up to 3.0x faster
free data  saves 19.8 ms of waiting and 200 µs of contention with the loader
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn verdict_names_no_speedup_that_rounds_to_one() {
    let summary = SummaryRecord {
        floor_step_ms: Some(29.4),
        headspace_pct: Some(2.1),
        headspace_ci_pct: Some((1.6, 2.6)),
        max_speedup: Some(1.02),
        ..probed()
    };

    let text = verdict_of(&summary);

    assert!(
        text.contains("headspace 2.1 % ± 0.5   almost nothing to gain\n"),
        "{text}"
    );
}

#[test]
fn verdict_promises_no_gain_if_the_interval_of_the_headspace_includes_zero() {
    let summary = SummaryRecord {
        floor_step_ms: Some(30.1),
        headspace_pct: Some(-0.3),
        headspace_ci_pct: Some((-1.4, 0.8)),
        max_speedup: Some(0.997),
        exposed_wait_ms: Some(0.1),
        contention_ms: Some(-0.2),
        ..probed()
    };

    assert_eq!(
        verdict_of(&summary),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      30.1 ms if data were free   headspace −0.3 % ± 1.1
           no measurable speed-up: the interval includes zero
free data  saves 100 µs of waiting and −200 µs of contention with the loader
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn verdict_of_a_refused_probe_has_the_reason_and_the_upper_bound() {
    let refused = "Live windows disagree: 28.1, 44.0 and 30.2 ms a step, so the floor has no \
                   number. Something else used the machine; probe again when it is quiet.";
    let summary = SummaryRecord {
        mode: Some(Mode::Probe),
        findings: vec![FindingRecord {
            code: "no_headspace".into(),
            text: refused.into(),
        }],
        ..measured()
    };
    let probe = ProbeRecord {
        reason: Some(refused.to_owned()),
        ..ProbeRecord::default()
    };
    let expected = "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      Not measured: Live windows disagree: 28.1, 44.0 and 30.2 ms a step, so the floor has no
           number. Something else used the machine; probe again when it is quiet.
           less waiting saves at most 67.0 % of the step
           The upper bound covers only the wait. How much the loader slows the model's own code
           (contention) is not known.
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
cost       measuring used 0.02 % of one core
";

    assert_eq!(verdict_of(&summary), expected);
    let with_probe = Verdict {
        location: Some(PLACE),
        probe: Some(&probe),
        ..Verdict::new(&summary)
    };
    assert_eq!(verdict_text(&with_probe), expected);
}

#[test]
fn verdict_of_an_unfinished_probe_asks_for_more_steps() {
    let summary = SummaryRecord {
        mode: Some(Mode::Probe),
        ..measured()
    };

    let text = verdict_of(&summary);
    assert!(
        text.contains("Not measured: the probe needs more steps than the loop took."),
        "{text}"
    );
}

#[test]
fn verdict_of_a_replay_says_that_the_step_is_the_floor() {
    let summary = SummaryRecord {
        mode: Some(Mode::Replay),
        replayed_steps: 640,
        steady_step_mean_ms: Some(10.0),
        wait_ms: Some(0.001),
        compute_ms: Some(9.999),
        wait_pct: Some(0.01),
        headspace_upper_bound_pct: None,
        ..measured()
    };

    assert_eq!(
        verdict_of(&summary),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       10.0 ms   waiting for data 1.0 µs (0 %)   compute 10.0 ms
floor      10.0 ms
           The step is the floor: only the steps on cached batches count. To know what free data
           would gain, compare with a run without replay, or run a probe: `HEADSPACE_MODE=probe`
repeated   640 of 640 steps trained on batches that were repeated
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn a_replay_without_a_step_on_a_cached_batch_has_no_floor() {
    let summary = SummaryRecord {
        mode: Some(Mode::Replay),
        replayed_steps: 0,
        ..measured()
    };

    let text = verdict_of(&summary);
    assert!(
        text.contains("Not measured: no step was on a cached batch yet."),
        "{text}"
    );
}

#[test]
fn too_few_steps_give_no_number() {
    let summary = SummaryRecord {
        mode: Some(Mode::Measure),
        steps: 12,
        step_time_ms: Some(40.0),
        overhead_pct: Some(0.004),
        ..SummaryRecord::default()
    };

    assert_eq!(
        verdict_of(&summary),
        "\
headspace  12 steps, no steady state      headspace-runs/2026-11-21T09-30-12-4711
step       12 steps are too few. The first 20 or more are warm-up. Train for at least 31 steps.
cost       measuring used less than 0.01 % of one core
"
    );
}

#[test]
fn verdict_of_a_run_without_steps_says_only_that() {
    assert_eq!(
        verdict_text(&Verdict::new(&SummaryRecord::default())),
        "headspace  no step was taken\n"
    );
}

#[test]
fn verdict_of_a_killed_run_says_that_it_did_not_end_and_the_age_of_its_numbers() {
    let summary = SummaryRecord {
        dropped: Dropped {
            steps: 1,
            records: 30,
        },
        findings: vec![FindingRecord {
            code: "x".into(),
            text: "Something was found.".into(),
        }],
        ..measured()
    };
    let run = RunRecord {
        world_size: 8,
        ..RunRecord::default()
    };
    let verdict = Verdict {
        run: Some(&run),
        location: Some(PLACE),
        unfinished_s: Some(4.0),
        ..Verdict::new(&summary)
    };

    assert_eq!(
        verdict_text(&verdict),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
ended      No end of the run is recorded: killed, or still running. The verdict was computed 4.00 s
           before the last record of the run.
rank       The numbers below, including workers and cores, are those of one rank of 8.
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      unknown   less waiting saves at most 67.0 % of the step
           The upper bound covers only the wait. If the device works during the wait, the saving is
           smaller. Only a probe shows whether the loader also slows the model's own code
           (contention): `HEADSPACE_MODE=probe`
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
found      Something was found.
dropped    1 step and 30 records
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn the_cost_says_which_part_samples_stacks() {
    let cost = |stack_sampling_pct| {
        let summary = SummaryRecord {
            overhead_pct: Some(0.62),
            stack_sampling_pct,
            ..measured()
        };
        let text = verdict_of(&summary);
        text.lines().last().unwrap().to_owned()
    };

    assert_eq!(
        cost(Some(0.41)),
        "cost       measuring used 0.62 % of one core (0.41 % for sampling stacks)"
    );
    assert_eq!(
        cost(Some(0.001)),
        "cost       measuring used 0.62 % of one core"
    );
}

#[test]
fn verdict_has_no_upper_bound_if_the_wait_was_not_measured() {
    let summary = SummaryRecord {
        wait_ms: None,
        compute_ms: None,
        wait_pct: None,
        headspace_upper_bound_pct: None,
        overhead_pct: None,
        ..measured()
    };

    assert_eq!(
        verdict_text(&Verdict::new(&summary)),
        "\
headspace  640 steps, 620 in steady state
step       30.0 ms
floor      Unknown: headspace did not see what this loop waits for. Wrap what it iterates in
           headspace.wrap(...), or name the function that returns a batch: headspace run
           --batch-from train:get_batch
"
    );
}

#[test]
fn no_line_is_longer_than_a_hundred_columns_and_none_moves_the_cursor() {
    let long = format!("/a/very/{}/long/path", "deep/".repeat(60));
    let summary = SummaryRecord {
        findings: vec![FindingRecord {
            code: "x".into(),
            text: "x\u{1b}[2J\n".repeat(50),
        }],
        ..probed()
    };
    let verdict = Verdict {
        location: Some(&long),
        ..Verdict::new(&summary)
    };

    for line in verdict_text(&verdict).lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    assert!(verdict_text(&verdict).contains("/long/path\n"));
}

#[test]
fn verdict_does_not_repeat_a_finding_that_is_the_bottleneck() {
    let limited_by = |name: &str| SummaryRecord {
        bottleneck: Some(BottleneckRecord {
            kind: BottleneckKind::Resource,
            name: Some(name.to_owned()),
            ..BottleneckRecord::default()
        }),
        findings: vec![FindingRecord {
            code: FindingCode::GilContended.as_str().to_owned(),
            text: "Threads wait for the lock.".to_owned(),
        }],
        ..measured()
    };
    let is_shown = |summary: &SummaryRecord| {
        verdict_text(&Verdict::new(summary)).contains("Threads wait for the lock.")
    };
    assert!(!is_shown(&limited_by("gil")));
    assert!(is_shown(&limited_by("cores")));
}

fn gpu_rows(summary: &SummaryRecord) -> Vec<String> {
    let text = verdict_text(&Verdict::new(summary));
    let rows = text.lines().filter(|line| line.starts_with("gpu"));
    rows.map(ToOwned::to_owned).collect()
}

#[test]
fn verdict_of_a_rank_shows_its_own_gpu() {
    let gpu = |ordinal| GpuUse {
        ordinal,
        sm_pct: Some(10.0 + f64::from(ordinal)),
        sm_source: Some("gpm".to_owned()),
        ..GpuUse::default()
    };
    let summary = SummaryRecord {
        resources: ResourcesRecord {
            gpus: (0..8).map(gpu).collect(),
            compute_gpu: Some(ComputeGpu {
                ordinal: 3,
                rule: GpuRule::TorchCurrentDevice,
            }),
            ..ResourcesRecord::default()
        },
        ..probed()
    };

    assert_eq!(
        gpu_rows(&summary),
        [
            "gpu        3: SMs busy 13 % (GPM)   GPU of this rank (torch's current device)",
            "gpu        and 7 more, in the records",
        ]
    );
}

#[test]
fn verdict_of_a_rank_whose_gpu_has_no_readings_shows_no_other_gpu() {
    let summary = SummaryRecord {
        resources: ResourcesRecord {
            gpus: vec![GpuUse {
                ordinal: 1,
                sm_pct: Some(50.0),
                ..GpuUse::default()
            }],
            compute_gpu: Some(ComputeGpu {
                ordinal: 0,
                rule: GpuRule::LocalRank,
            }),
            ..ResourcesRecord::default()
        },
        ..probed()
    };

    assert_eq!(
        gpu_rows(&summary),
        [
            "gpu        0: no readings   GPU of this rank (LOCAL_RANK)",
            "gpu        and 1 more, in the records",
        ]
    );
}

#[test]
fn the_usage_table_has_a_row_for_each_kind_that_was_measured() {
    let summary = SummaryRecord {
        resources: ResourcesRecord {
            gpus: vec![GpuUse {
                sm_pct: Some(5.75),
                sm_source: Some("gpm".to_owned()),
                any_kernel_pct: Some(43.0),
                nvdec_busy: Some(6.83),
                nvdec_engines: Some(7),
                memory_peak_bytes: Some(13e9),
                memory_bytes: Some(85.9e9),
                ..GpuUse::default()
            }],
            cores_used: Some(1.93),
            cores_usable: Some(2.0),
            throttled_pct: Some(0.0),
            consumer_run_queue_pct: Some(12.0),
            gil_wait_ms: Some(1.24),
            gc_pct: Some(0.4),
            memory_bytes: Some(1.3e9),
            requested_bytes_per_s: Some(340e6),
            disk_read_bytes_per_s: Some(12e6),
            disk_utilization_pct: Some(9.0),
            ..ResourcesRecord::default()
        },
        ..probed()
    };

    assert_eq!(
        verdict_of(&summary),
        "\
headspace  640 steps, 620 in steady state      headspace-runs/2026-11-21T09-30-12-4711
step       30.0 ms   waiting for data 20.1 ms (67 %)   compute 9.9 ms
floor      10.0 ms if data were free   headspace 66.7 % ± 1.1   up to 3.0x faster
free data  saves 19.8 ms of waiting and 200 µs of contention with the loader
bottleneck unknown   no stage of the loader is known, and no stacks were
                     sampled. Declare the stages (`headspace.stage`), or sample
                     stacks (`headspace doctor` shows whether this works here).
gpu        SMs busy 6 % (GPM)   NVDEC 6.8 of 7 engines busy   memory 12.1 GiB of 80.0 GiB
cpu        1.9 of 2 cores used   training thread waits for a core 12 %   mean GIL wait 1.2 ms
           GC 0.4 %
memory     1.21 GiB
data       reads 324 MiB/s, 11.4 MiB/s from storage   disk busy 9 %
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn each_gpu_has_its_number_and_kernel_activity_is_not_shown_as_sm_activity() {
    let gpu = |ordinal| GpuUse {
        ordinal,
        any_kernel_pct: Some(98.0),
        decoder_pct: Some(14.0),
        nvdec_engines: Some(7),
        ..GpuUse::default()
    };
    let summary = SummaryRecord {
        resources: ResourcesRecord {
            gpus: (0..9).map(gpu).collect(),
            ..ResourcesRecord::default()
        },
        ..measured()
    };

    let text = verdict_of(&summary);

    assert!(
        text.contains("gpu        1: GPU busy 98 % of the time   NVDEC 14 % over 7 engines\n"),
        "{text}"
    );
    assert!(
        text.contains("gpu        and 1 more, in the records\n"),
        "{text}"
    );
    assert!(!text.contains("SMs"), "{text}");
}

fn remedy(what: &str, step_ms: f64, gain: f64) -> RemedyRecord {
    RemedyRecord {
        what: what.to_owned(),
        predicted_step_ms: step_ms,
        predicted_gain_pct: gain,
        ..RemedyRecord::default()
    }
}

fn stage(name: &str, busy: f64, concurrency: f64, mean_ms: f64, p95_ms: f64) -> StageSummary {
    StageSummary {
        name: name.to_owned(),
        busy_pct: Some(busy),
        concurrency: Some(concurrency),
        mean_ms: Some(mean_ms),
        p95_ms: Some(p95_ms),
        calls_per_batch: Some(1.0),
        limit_ms: Some(mean_ms / concurrency),
        slow_pct: Some(0.1),
        ..StageSummary::default()
    }
}

fn with_pipeline() -> SummaryRecord {
    SummaryRecord {
        bottleneck: Some(BottleneckRecord {
            kind: BottleneckKind::Stage,
            name: Some("decode".to_owned()),
            evidence: "4 concurrent calls, busy 99 %, the queue after it empty 97 % of the time"
                .into(),
            ..BottleneckRecord::default()
        }),
        remedies: vec![
            RemedyRecord {
                confidence: 0.86,
                ..remedy(
                    "Run 8 concurrent calls of `decode` instead of 4.",
                    17.4,
                    42.0,
                )
            },
            RemedyRecord {
                at_least: true,
                confidence: 0.5,
                ..remedy(
                    "Let the queue `decoded` hold 16 items instead of 4: it absorbs slow calls.",
                    30.0,
                    0.0,
                )
            },
            RemedyRecord {
                at_least: true,
                ..remedy(
                    "Copy batches to the GPU from pinned memory: pin_memory=True.",
                    30.0,
                    0.0,
                )
            },
            remedy("Something else.", 29.0, 3.0),
        ],
        stages: vec![
            stage("read", 3.0, 1.0, 0.85, 1.1),
            StageSummary {
                slow_pct: Some(2.14),
                ..stage("decode", 99.2, 4.0, 119.0, 164.0)
            },
        ],
        queues: vec![
            QueueSummary {
                active: Some(0.94),
                concurrency: Some(4),
                ..queue("readers", None, 0.0, 98.0)
            },
            queue("read", Some(4), 3.96, 0.3),
            QueueSummary {
                last: true,
                ..queue("decoded", Some(4), 0.06, 97.0)
            },
        ],
        bottleneck_stage: Some("decode".to_owned()),
        data_readiness_pct: Some(3.0),
        ..measured()
    }
}

fn queue(name: &str, capacity: Option<u32>, depth: f64, empty_pct: f64) -> QueueSummary {
    QueueSummary {
        name: name.to_owned(),
        capacity,
        depth: Some(depth),
        empty_pct: Some(empty_pct),
        full_pct: capacity.map(|capacity| 100.0 * depth / f64::from(capacity)),
        ..QueueSummary::default()
    }
}

#[test]
fn verdict_shows_the_bottleneck_the_best_remedies_and_the_stages() {
    let text = verdict_of(&with_pipeline());
    let from = text.find("bottleneck").unwrap();

    assert_eq!(
        &text[from..],
        "\
bottleneck decode   4 concurrent calls, busy 99 %, the queue after it empty 97 %
                    of the time
remedies   17.4 ms (−42 %)   Run 8 concurrent calls of `decode` instead of 4
                             (likely).
           gain unknown      Let the queue `decoded` hold 16 items instead of 4:
                             it absorbs slow calls (plausible).
           gain unknown      Copy batches to the GPU from pinned memory:
                             pin_memory=True (a guess).
stages              busy   concurrency   a call      p95   > 3x p50
           read      3 %             1   850 µs   1.1 ms
           decode   99 %             4   119 ms   164 ms      2.1 %
queues                  depth   empty   full       busy
           readers          0    98 %          0.9 of 4
           read        4 of 4   0.3 %   99 %
           decoded   0.1 of 4    97 %    2 %
ready      a batch was ready 3 % of the time
cost       measuring used 0.02 % of one core
"
    );
}

#[test]
fn a_remedy_that_does_not_address_the_bottleneck_has_its_reason() {
    let mut summary = with_pipeline();
    let other = RemedyRecord {
        code: "more_workers".to_owned(),
        stage: Some("read".to_owned()),
        evidence: "busy 40 %".to_owned(),
        confidence: 0.8,
        ..remedy("Run 2 concurrent calls of `read` instead of 1.", 20.0, 33.0)
    };
    summary.remedies = vec![other];
    let advice = "Run 2 concurrent calls of `read` instead of 1 (likely; busy 40 %).";
    let text = |summary: &SummaryRecord| {
        verdict_of(summary)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };

    assert!(text(&summary).contains(advice), "{}", verdict_of(&summary));
    summary.bottleneck = None;
    assert!(text(&summary).contains(advice), "{}", verdict_of(&summary));
}

#[test]
fn verdict_of_a_compute_bound_loop_advises_to_stop() {
    let summary = SummaryRecord {
        bottleneck: Some(BottleneckRecord {
            kind: BottleneckKind::Compute,
            evidence: "a step takes 30.0 ms, and 29.8 ms with free data".into(),
            ..BottleneckRecord::default()
        }),
        remedies: vec![RemedyRecord {
            code: "stop".to_owned(),
            ..remedy("Make the model faster instead.", 30.0, 0.0)
        }],
        ..probed()
    };

    let text = verdict_of(&summary);

    assert!(
        text.contains(
            "\
bottleneck compute   a step takes 30.0 ms, and 29.8 ms with free data
remedies   compute-bound   Make the model faster instead.
"
        ),
        "{text}"
    );
}

#[test]
fn verdict_shows_the_stages_with_the_highest_limits() {
    let numbers = (1..=30).map(|n| stage(&format!("stage {n}"), 1.0, 1.0, f64::from(n), 1.0));
    let mut summary = with_pipeline();
    summary.stages = numbers.collect();
    summary.stages[29].name = "x".repeat(200);
    summary.stages[29].failures = 12;

    let text = verdict_of(&summary);

    assert_eq!(text.matches("stage 2").count(), 7, "{text}");
    assert!(
        text.contains("           and 22 more, in the records\n"),
        "{text}"
    );
    assert!(text.contains("xxx…"), "{text}");
    assert!(text.contains("failed"), "{text}");
    for line in text.lines().skip(1) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn verdict_shows_the_last_queue_those_around_the_bottleneck_and_those_of_pools() {
    let mut summary = with_pipeline();
    summary.stages = ["read", "decode", "join"]
        .map(|name| stage(name, 1.0, 1.0, 1.0, 1.0))
        .to_vec();
    summary.queues = (0..9)
        .map(|number| queue(&format!("queue {number}"), None, 1.0, 1.0))
        .collect();
    summary.queues[8].last = true;
    summary.queues[3].name = "after decode".to_owned();
    summary.queues[2].name = "after read".to_owned();
    for pool in [5, 6] {
        summary.queues[pool].active = Some(1.0);
        summary.queues[pool].concurrency = Some(1);
    }

    let verdict_of = |summary: &SummaryRecord| -> Vec<String> {
        let sections = Verdict::new(summary).sections(Detail::Brief);
        let queues = sections
            .iter()
            .find(|section| section.id == SectionId::Queues);
        match queues.map(|section| &section.blocks[..]) {
            Some([Block::Table(table)]) => {
                table.rows.iter().map(|row| row.cells[0].clone()).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let expected = ["after read", "after decode", "queue 5", "queue 8"];

    assert_eq!(verdict_of(&summary), expected);
    // Without a stage that binds, those around the slowest.
    summary.bottleneck_stage = None;
    summary.stages[1].limit_ms = Some(30.0);
    assert_eq!(verdict_of(&summary), expected);
}

#[test]
fn verdict_has_the_start_of_workers_but_no_delay_shorter_than_a_step() {
    let aside = |name: &str, mean_ms: f64| StageSummary {
        concurrency: None,
        busy_pct: None,
        calls_per_batch: None,
        limit_ms: None,
        slow_pct: Some(20.0),
        ..stage(name, 0.0, 1.0, mean_ms, mean_ms)
    };
    let mut summary = with_pipeline();
    summary.stages = vec![
        aside("worker start", 2100.0),
        stage("fetch", 50.0, 2.0, 10.0, 12.0),
        aside("reorder delay", 2.9),
    ];

    let text = verdict_of(&summary);

    assert!(
        text.contains(
            "\
stages                    busy   concurrency    a call       p95
           fetch          50 %             2   10.0 ms   12.0 ms
           worker start                         2.10 s    2.10 s
queues "
        ),
        "{text}"
    );
}
