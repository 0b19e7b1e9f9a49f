//! Resources of runs whose readings are known.

use std::time::Duration;

use super::*;
use crate::model::Reading;
use crate::model::attributes;
use crate::model::metric::{
    CGROUP_MEMORY_LIMIT, GPU_ENGINE_UTILIZATION, GPU_MEMORY_USAGE, GPU_SM_UTILIZATION,
    GPU_UTILIZATION, HOST_MEMORY_AVAILABLE, PROCESS_CPU_TIME, PROCESS_MEMORY_ANONYMOUS,
};
use crate::model::record::{GpuRule, MemoryScope};

const SECOND: Duration = Duration::from_secs(1);

/// A run of that many seconds with one tick a second, of what `readings` says for each.
fn run(seconds: u32, readings: impl Fn(f64) -> Vec<Reading>) -> ResourcesRecord {
    let mut history = ReadingSeries::default();
    for i in 1..=seconds {
        history.push(SECOND * i, SECOND, false, &readings(f64::from(i)));
    }
    let part = Part {
        from_s: 0.0,
        to_s: f64::from(seconds),
        steps_per_s: Some(100.0),
    };
    let gpus = [GpuRecord {
        nvdec_engines: Some(7),
        ..GpuRecord::default()
    }];
    let node = RankNode {
        gpus: &gpus,
        ranks: RankCounts {
            in_run: 2,
            on_node: Some(2),
        },
        ..RankNode::default()
    };
    resources(&history, part, node)
}

/// Readings of CPU time that add up to `seconds`: three quarters in user mode, one quarter in the kernel.
fn cpu(scope: &Scope, seconds: f64) -> Vec<Reading> {
    [
        (attributes::CPU_USER, 0.75 * seconds),
        (attributes::CPU_SYSTEM, 0.25 * seconds),
    ]
    .map(|(mode, seconds)| Reading::with(&PROCESS_CPU_TIME, scope.clone(), mode, seconds))
    .into()
}

fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-6)
}

#[test]
fn without_readings_all_values_are_absent() {
    let empty = run(10, |_| vec![]);

    assert_eq!(
        empty,
        ResourcesRecord {
            seconds: 10.0,
            ..ResourcesRecord::default()
        }
    );
}

#[test]
fn engines_of_one_kind_add_up_and_sm_utilization_has_its_source() {
    const ENGINES: [Attributes; 3] = [
        &[("engine", "nvdec0")],
        &[("engine", "nvdec1")],
        &[("engine", "nvjpg0")],
    ];
    let seen = run(10, |_| {
        let gpu = Scope::Gpu(0);
        let mut readings: Vec<Reading> = ENGINES
            .into_iter()
            .map(|engine| Reading::with(&GPU_ENGINE_UTILIZATION, gpu.clone(), engine, 0.75))
            .collect();
        readings.push(Reading::with(
            &GPU_SM_UTILIZATION,
            gpu.clone(),
            &[("source", "gpm")],
            0.0575,
        ));
        readings.push(Reading::new(&GPU_MEMORY_USAGE, gpu, 5e9));
        readings
    });

    let [gpu] = &seen.gpus[..] else {
        panic!("{seen:?}")
    };
    assert!(near(gpu.nvdec_busy, 1.5));
    assert_eq!(gpu.nvdec_engines, Some(7));
    assert!(near(gpu.sm_pct, 5.75));
    assert_eq!(gpu.sm_source.as_deref(), Some("gpm"));
    assert_eq!(gpu.memory_peak_bytes, Some(5e9));
}

#[test]
fn utilization_by_any_kernel_is_not_reported_as_sm_utilization() {
    let seen = run(10, |_| {
        vec![Reading::with(
            &GPU_UTILIZATION,
            Scope::Gpu(0),
            &[("hw.gpu.task", "general")],
            1.0,
        )]
    });

    assert!(near(seen.gpus[0].any_kernel_pct, 100.0));
    assert_eq!(seen.gpus[0].sm_pct, None);
}

#[test]
fn other_ranks_use_as_many_cores_as_this_one_and_other_programs_use_the_rest() {
    let seen = run(10, |at_s| {
        let mut readings = vec![
            Reading::new(&HOST_CPU_USABLE, Scope::Host, 4.0),
            Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 0.75),
        ];
        readings.extend(cpu(&Scope::Process, at_s));
        readings.extend(cpu(&Scope::Tree, at_s));
        readings
    });

    assert!(near(seen.cores_used, 1.0));
    assert!(near(seen.other_ranks_cores, 1.0));
    assert!(near(seen.others_cores, 1.0));
}

#[test]
fn the_memory_of_workers_counts_even_if_the_last_reading_before_their_end_precedes_the_steady_state()
 {
    let mut history = ReadingSeries::default();
    let memory = |scope, bytes| Reading::new(&PROCESS_MEMORY_PROPORTIONAL, scope, bytes);
    let read = [memory(Scope::Process, 1e9), memory(Scope::Tree, 3e9)];
    history.push(SECOND * 5, SECOND, false, &read);
    history.push(SECOND * 19, SECOND, false, &[]);
    let read = [memory(Scope::Process, 1e9), memory(Scope::Tree, 1e9)];
    history.push(SECOND * 20, SECOND, false, &read);
    let part = Part {
        from_s: 8.0,
        to_s: 20.0,
        steps_per_s: None,
    };

    let seen = resources(&history, part, RankNode::default());

    assert!(near(seen.children_memory_bytes, 2e9));
}

/// Proportional memory of a process with 1 GB, and of it and its children together.
fn proportional_memory(tree: f64) -> Vec<Reading> {
    vec![
        Reading::new(&PROCESS_MEMORY_PROPORTIONAL, Scope::Process, 1e9),
        Reading::new(&PROCESS_MEMORY_PROPORTIONAL, Scope::Tree, tree),
    ]
}

#[test]
fn the_memory_of_workers_is_not_that_of_the_fork_server_that_runs_after_their_end() {
    let seen = run(10, |at_s| {
        proportional_memory(if at_s < 9.0 { 3.5e9 } else { 1.4e9 })
    });

    assert!(near(seen.children_memory_bytes, 2.5e9));
    assert!(near(seen.memory_proportional_bytes, 3.5e9));
}

#[test]
fn processes_with_more_memory_that_ended_long_ago_do_not_count() {
    let seen = run(10, |at_s| {
        proportional_memory(if at_s < 3.0 { 9e9 } else { 3e9 })
    });

    assert!(near(seen.children_memory_bytes, 2e9));
}

#[test]
fn memory_includes_the_workers_although_they_have_ended_at_the_last_reading() {
    let seen = run(10, |at_s| {
        let tree = if at_s < 10.0 { 3e9 } else { 1e9 };
        vec![
            Reading::new(&PROCESS_MEMORY_PROPORTIONAL, Scope::Process, 1e9),
            Reading::new(&PROCESS_MEMORY_PROPORTIONAL, Scope::Tree, tree),
            Reading::new(&PROCESS_MEMORY_USAGE, Scope::Process, 2e9),
            Reading::new(&PROCESS_MEMORY_USAGE, Scope::Tree, 2.0 * tree),
            Reading::new(&HOST_MEMORY_AVAILABLE, Scope::Host, 50e9),
            Reading::new(&CGROUP_MEMORY_LIMIT, Scope::Cgroup, 10e9),
        ]
    });

    assert!(near(seen.memory_proportional_bytes, 3e9));
    assert!(near(seen.memory_bytes, 6e9));
    // The limit is for two ranks.
    assert!(near(seen.memory_available_bytes, 2e9));
}

#[test]
fn without_readings_of_the_ranks_gpu_no_other_gpu_replaces_it() {
    let mut history = ReadingSeries::default();
    for i in 1..=10 {
        let sm = Reading::with(
            &GPU_SM_UTILIZATION,
            Scope::Gpu(1),
            &[("source", "gpm")],
            0.5,
        );
        history.push(SECOND * i, SECOND, false, &[sm]);
    }
    let computes_on = |ordinal| {
        Some(ComputeGpu {
            ordinal,
            rule: GpuRule::LocalRank,
        })
    };
    let sm_pct = |compute_gpu| sm_utilization_pct(&history, (0.0, 10.0), compute_gpu);

    assert!(near(sm_pct(computes_on(1)), 50.0));
    assert!(near(sm_pct(None), 50.0));
    assert_eq!(sm_pct(computes_on(0)), None);

    let part = Part {
        from_s: 0.0,
        to_s: 10.0,
        steps_per_s: None,
    };
    let own = |compute_gpu| {
        let node = RankNode {
            compute_gpu,
            ..RankNode::default()
        };
        let seen = resources(&history, part, node);
        seen.own_gpus().map(|gpu| gpu.ordinal).collect::<Vec<_>>()
    };
    assert_eq!(own(computes_on(1)), [1]);
    assert_eq!(own(None), [1]);
    assert_eq!(own(computes_on(0)), [0_u32; 0]);
}

#[test]
fn the_pressure_of_the_container_has_priority() {
    const CPU: Attributes = &[("resource", "cpu"), ("stalled", "some")];
    let seen = |with_cgroup: bool| {
        run(10, |at| {
            let mut readings = vec![Reading::with(&PRESSURE_TIME, Scope::Host, CPU, 0.9 * at)];
            if with_cgroup {
                readings.push(Reading::with(&PRESSURE_TIME, Scope::Cgroup, CPU, 0.2 * at));
            }
            readings
        })
    };

    assert!(near(seen(true).cpu_pressure_pct, 20.0));
    assert!(near(seen(false).cpu_pressure_pct, 90.0));
}

#[test]
fn cores_used_include_children_if_they_are_read() {
    let seen = run(10, |at| {
        let mut readings = cpu(&Scope::Process, at);
        readings.extend(cpu(&Scope::Tree, 3.5 * at));
        readings.extend([
            Reading::new(&HOST_CPU_USABLE, Scope::Host, 4.0),
            Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 0.9),
        ]);
        readings
    });

    assert!(near(seen.cores_used, 3.5));
    assert!(near(seen.children_cores, 2.5));
    assert!(near(seen.cores_usable, 4.0));
}

#[test]
fn cores_used_without_sources_for_the_children_are_those_of_the_process() {
    let seen = run(10, |at| cpu(&Scope::Process, 0.5 * at));

    assert!(near(seen.cores_used, 0.5));
    assert_eq!(seen.children_cores, None);
}

#[test]
fn values_are_absent_if_children_were_read_too_rarely() {
    let seen = run(2, |at| {
        let mut readings = cpu(&Scope::Process, at);
        readings.extend([
            Reading::new(&HOST_CPU_USABLE, Scope::Host, 2.0),
            Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 0.8),
        ]);
        if at < 2.0 {
            readings.extend(cpu(&Scope::Tree, 1.5 * at));
        }
        readings
    });

    assert_eq!((seen.cores_used, seen.others_cores), (None, None));
}

#[test]
fn the_mean_wait_is_the_time_divided_by_the_number_of_waits() {
    let seen = run(10, |at| {
        vec![
            Reading::new(&GIL_WAITS, Scope::Process, 5.0 * at),
            Reading::new(&GIL_WAIT_TIME, Scope::Process, 0.02 * at),
        ]
    });

    assert!(near(seen.gil_wait_ms, 4.0));
}

#[test]
fn a_leak_of_a_mebibyte_in_100_steps_is_found_within_2000() {
    let seen = run(20, |at| {
        vec![Reading::new(
            &PROCESS_MEMORY_ANONYMOUS,
            Scope::Process,
            1e9 + at * 1_048_576.0,
        )]
    });

    let growth = seen.memory_growth_per_step.expect("a leak");
    assert!((growth.value - 10_485.76).abs() < 1.0, "{growth:?}");
    assert_eq!(seen.memory_growth_of, Some(MemoryScope::Process));
}

#[test]
fn memory_grows_in_the_children_only_if_their_own_memory_grows() {
    // The process has a large sawtooth, so its growth is not reported. The tree is only read where a tooth begins, so its
    // memory would look like a leak.
    let grown = |processes: f64, children_per_s: f64| {
        let seen = run(320, |at| {
            let own = 1e9 + 2e6 * at + 8e8 * (at / 20.0).fract();
            let tree = own + 2e9 + children_per_s * at;
            let mut readings = vec![(Scope::Process, own)];
            readings.extend((at % 20.0 == 0.0).then_some((Scope::Tree, tree)));
            let reading = |(scope, bytes)| Reading::new(&PROCESS_MEMORY_ANONYMOUS, scope, bytes);
            let count = Reading::new(&PROCESS_COUNT, Scope::Tree, processes);
            readings.into_iter().map(reading).chain([count]).collect()
        });
        let value = seen.memory_growth_per_step.map(|growth| growth.value);
        (seen.memory_growth_of, value)
    };

    assert_eq!(grown(2.0, 0.0), (None, None));
    assert_eq!(grown(1.0, 1e6), (None, None), "without children");
    let (scope, value) = grown(2.0, 1e6);
    assert_eq!(scope, Some(MemoryScope::Children));
    assert!(
        near(value, 1e4),
        "{value:?} bytes per step, at 100 steps per second"
    );
}

#[test]
fn pages_of_files_and_a_few_mebibytes_are_no_leak() {
    let growing = |metric, bytes_per_s: f64| {
        run(40, move |at| {
            vec![Reading::new(metric, Scope::Process, 1e8 + bytes_per_s * at)]
        })
    };

    let files = growing(&PROCESS_MEMORY_USAGE, 1e6);
    let little = growing(&PROCESS_MEMORY_ANONYMOUS, 5e4);
    let leak = growing(&PROCESS_MEMORY_ANONYMOUS, 2e5);

    assert_eq!(files.memory_growth_per_step, None);
    assert_eq!(little.memory_growth_per_step, None);
    assert!(leak.memory_growth_per_step.is_some());
}

#[test]
fn cores_of_other_threads_exclude_the_training_thread_and_the_agent() {
    let seen = run(10, |at| {
        let thread = |name: &str, cores: f64| {
            Reading::new(&THREAD_CPU_TIME, Scope::Thread(name.into()), cores * at)
        };
        vec![
            Reading::new(&THREAD_CPU_TIME, Scope::Process, 1.5 * at),
            thread("consumer", 0.9),
            thread("headspace", 0.1),
            thread("decode", 0.5),
        ]
    });

    assert!(near(seen.other_threads_cores, 0.5));
}

/// A run of 96 s: 4 s live, 4 s of replay, and so on. The process uses 0.2 cores live, and 1 core in replay. It is read
/// each second. The tree is read each `tree_every` seconds, and its readings are `late` seconds old. The children use
/// `children` cores.
fn run_with_replays(tree_every: u32, late: u32, children: f64) -> ResourcesRecord {
    let replays = |second: u32| (second - 1) / 4 % 2 == 1;
    let own = |second| {
        let cores = (1..=second).map(|second| if replays(second) { 1.0 } else { 0.2 });
        cores.sum::<f64>()
    };
    let mut history = ReadingSeries::default();
    for second in 1..=96 {
        let mut readings = cpu(&Scope::Process, own(second));
        if second % tree_every == 0 {
            let read = second - late;
            readings.extend(cpu(&Scope::Tree, own(read) + children * f64::from(read)));
            let count = if children > 0.0 { 2.0 } else { 1.0 };
            readings.push(Reading::new(&PROCESS_COUNT, Scope::Tree, count));
        }
        history.push(SECOND * second, SECOND, replays(second), &readings);
    }
    let part = Part {
        from_s: 0.0,
        to_s: 96.0,
        steps_per_s: None,
    };
    resources(&history, part, RankNode::default())
}

#[test]
fn replays_between_readings_of_the_tree_do_not_change_the_cores_of_the_process() {
    // Two readings of the tree lie in one live part, or none do.
    for tree_every in [3, 5] {
        let seen = run_with_replays(tree_every, 0, 0.7);
        assert!(near(seen.cores_used, 0.9), "{:?}", seen.cores_used);
        assert!(near(seen.children_cores, 0.7), "{:?}", seen.children_cores);
    }
}

#[test]
fn without_children_late_readings_of_the_tree_do_not_change_the_cores_used() {
    for late in [0, 1] {
        let alone = run_with_replays(5, late, 0.0);
        assert!(near(alone.cores_used, 0.2), "{:?}", alone.cores_used);
        assert_eq!(alone.children_cores, Some(0.0));
    }
}

#[test]
fn cores_in_use_are_unknown_without_readings_of_the_children() {
    let cores = |with_tree: bool| {
        let mut history = ReadingSeries::default();
        for i in 1..=10_u32 {
            let at_s = f64::from(i);
            let thread = Scope::Thread(attributes::CONSUMER.into());
            let mut readings = vec![
                Reading::new(&THREAD_CPU_TIME, thread, 0.5 * at_s),
                Reading::new(&HOST_CPU_USABLE, Scope::Host, 4.0),
                Reading::new(&HOST_CPU_UTILIZATION, Scope::Host, 0.5),
            ];
            readings.extend(cpu(&Scope::Process, 0.6 * at_s));
            if with_tree {
                readings.extend(cpu(&Scope::Tree, 1.5 * at_s));
            }
            history.push(SECOND * i, SECOND, false, &readings);
        }
        cores_in_use(&history.all_between(0.0, 10.0))
    };

    assert_eq!(cores(false), None);
    let known = cores(true).unwrap();
    assert!(near(Some(known.own_beside_loop), 1.0) && near(Some(known.others), 0.5));
}

#[test]
fn a_quota_that_ran_out_in_half_of_its_periods_is_throttled_by_50_percent() {
    let seen = run(10, |at| {
        vec![
            Reading::new(&CGROUP_CPU_PERIODS, Scope::Cgroup, 10.0 * at),
            Reading::new(&CGROUP_CPU_THROTTLED_PERIODS, Scope::Cgroup, 5.0 * at),
        ]
    });

    assert!(near(seen.throttled_pct, 50.0));
}
