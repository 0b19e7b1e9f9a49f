//! `compare` on simulated runs with known truth: noise causes no alarm, and a slow-down is found.
//!
//! The step time varies in five ways: from step to step, by a slow wave (autoregressive over seconds), by
//! slow periods of several seconds, by a drift over the whole run, and from run to run. If other programs
//! use the machine, the step also contains the time in which the loop waits for a core. This time differs
//! between runs. In some tests the kernel counts this time, in others it does not.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use headspace_agent::analysis::compare::{Measured, Side, compare};
use headspace_agent::analysis::tick_series::TickSeries;
use headspace_agent::model::comparison::{ComparisonVerdict, Gate, JudgedBy};
use headspace_agent::model::record::{
    LoopTick, ResourcesRecord, RunState, SummaryRecord, TickRecord,
};
use headspace_agent::model::{Distribution, RecordBody};
use headspace_agent::statistics::bootstrap::Rng;

/// How a machine disturbs a run.
#[derive(Clone, Copy)]
struct Noise {
    /// Standard deviation of single steps, as a share of the step.
    step: f64,
    /// Standard deviation of the slow wave, and its autocorrelation after a second.
    wave: f64,
    memory: f64,
    /// Slow-down in a slow period, the share of time in slow periods, and their mean length in seconds.
    slow: f64,
    slow_share: f64,
    slow_s: f64,
    /// Largest drift over a run.
    drift: f64,
    /// Standard deviation from run to run.
    run: f64,
    others: Others,
}

/// The load of other programs.
#[derive(Clone, Copy)]
struct Others {
    /// Cores of the machine, cores that others use, and runnable threads.
    usable: f64,
    cores: f64,
    runnable: f64,
    /// Share of the time in which the loop waits for a core, and its standard deviation from run to
    /// run.
    waiting: f64,
    spread: f64,
    /// Whether that time is counted, and the standard deviation of the count.
    counted: bool,
    error: f64,
}

/// No other programs.
const ALONE: Others = Others {
    usable: 2.0,
    cores: 0.0,
    runnable: 0.5,
    waiting: 0.0,
    spread: 0.0,
    counted: true,
    error: 0.0,
};

/// Number of other threads at which the loop has about half its speed.
const OVERSUBSCRIBED: Others = Others {
    usable: 2.0,
    cores: 1.5,
    runnable: 5.0,
    waiting: 0.45,
    spread: 0.1,
    counted: true,
    error: 0.015,
};

/// Other programs use half of many cores, and the other half is idle.
const MANY_CORES: Others = Others {
    usable: 64.0,
    cores: 32.0,
    runnable: 33.0,
    ..ALONE
};

/// A machine with only the training job.
const QUIET: Noise = Noise {
    step: 0.05,
    wave: 0.005,
    memory: 0.8,
    slow: 0.03,
    slow_share: 0.05,
    slow_s: 4.0,
    drift: 0.005,
    run: 0.005,
    others: ALONE,
};

/// A shared machine with slow periods of several seconds, 5 % slower.
const SHARED: Noise = Noise {
    step: 0.1,
    wave: 0.015,
    memory: 0.9,
    slow: 0.05,
    slow_share: 0.3,
    slow_s: 8.0,
    drift: 0.01,
    run: 0.005,
    others: ALONE,
};

fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// A run of `ticks` seconds with a mean step of `step_ms`.
fn run(rng: &mut Rng, noise: Noise, ticks: u32, step_ms: f64) -> Measured {
    let others = noise.others;
    let waiting = (others.waiting + others.spread * normal(rng)).clamp(0.0, 0.9);
    let counted = (waiting + others.error * normal(rng)).clamp(0.0, 0.95);
    let of_run = (1.0 + noise.run * normal(rng)) / (1.0 - waiting);
    let drift = noise.drift * (2.0 * rng.unit() - 1.0);
    let mut wave = noise.wave * normal(rng);
    let mut slow = rng.unit() < noise.slow_share;
    let mut series = TickSeries::default();
    let mut steps_so_far = 0;
    for tick in 0..ticks {
        wave = noise.memory * wave + noise.wave * (1.0 - noise.memory.powi(2)).sqrt() * normal(rng);
        let leave = 1.0 / noise.slow_s;
        let enter = leave * noise.slow_share / (1.0 - noise.slow_share);
        slow = rng.unit() < if slow { 1.0 - leave } else { enter };
        let along = f64::from(tick) / f64::from(ticks) - 0.5;
        let level =
            step_ms * of_run * (1.0 + wave + drift * along + if slow { noise.slow } else { 0.0 });
        let [mut step, mut wait, mut compute] = [(); 3].map(|()| Distribution::default());
        let mut left_ms = 1000.0;
        while left_ms > 0.0 {
            let ms = level * (1.0 + noise.step * normal(rng)).max(0.2);
            left_ms -= ms;
            step.record(nanos(ms));
            wait.record(nanos(0.3 * ms));
            compute.record(nanos(0.7 * ms));
        }
        let steps = step.count();
        series.add_record(&RecordBody::Tick(TickRecord {
            loops: vec![LoopTick {
                name: "train".to_owned(),
                first_step: steps_so_far,
                steps,
                step: (&step).into(),
                wait: (&wait).into(),
                compute: (&compute).into(),
                ..LoopTick::default()
            }],
            ..TickRecord::default()
        }));
        steps_so_far += steps;
    }
    let summary = SummaryRecord {
        state: RunState::Finished,
        mode: Some(headspace_agent::model::Mode::Measure),
        loop_name: Some("train".to_owned()),
        steps: steps_so_far,
        steady_steps: steps_so_far - 20,
        resources: ResourcesRecord {
            others_cores: Some(others.cores),
            cores_used: Some(0.5),
            cores_usable: Some(others.usable),
            runnable_threads: Some(others.runnable),
            consumer_run_queue_pct: others.counted.then_some(100.0 * counted),
            ..ResourcesRecord::default()
        },
        ..SummaryRecord::default()
    };
    let mut measured = Measured::default();
    measured.add_rank(Some(&summary), &series);
    measured
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive duration of milliseconds"
)]
fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Results of many comparisons: alarms of `--fail-if-slower 5%`, verdicts `slower` and `faster`, and the
/// mean half-width of the interval.
struct Outcome {
    alarms: u32,
    slower: u32,
    faster: u32,
    half_pct: f64,
}

fn outcome(seed: u64, pairs: u32, noise: Noise, ticks: u32, runs: usize, slower: f64) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut all = Outcome {
        alarms: 0,
        slower: 0,
        faster: 0,
        half_pct: 0.0,
    };
    for _ in 0..pairs {
        let mut side = |step_ms: f64| Side {
            path: String::new(),
            runs: (0..runs)
                .map(|_| run(&mut rng, noise, ticks, step_ms))
                .collect(),
        };
        let found = compare(&side(20.0), &side(20.0 * (1.0 + slower)), Some(5.0)).record;
        let judged = match found.judged_by {
            JudgedBy::Step => found.step_ms,
            _ => found.undisturbed_ms,
        };
        let pct = judged.difference_pct.unwrap();
        all.alarms += u32::from(found.gate == Some(Gate::Failed));
        all.slower += u32::from(found.verdict == ComparisonVerdict::Slower);
        all.faster += u32::from(found.verdict == ComparisonVerdict::Faster);
        all.half_pct += (pct.high - pct.low) / 2.0 / f64::from(pairs);
    }
    all
}

#[test]
fn twenty_comparisons_of_equal_runs_raise_at_most_one_alarm() {
    for noise in [QUIET, SHARED] {
        let same = outcome(1, 20, noise, 120, 1, 0.0);

        assert!(same.alarms <= 1, "{} alarms", same.alarms);
        assert!(same.slower <= 1, "{} times slower than itself", same.slower);
    }
}

#[test]
fn a_slow_down_of_ten_percent_is_found_in_nineteen_of_twenty_comparisons() {
    let found = outcome(2, 20, QUIET, 120, 1, 0.1);

    assert!(found.alarms >= 19, "{} of 20 beyond 5 %", found.alarms);
    let found = outcome(3, 20, SHARED, 120, 1, 0.1);
    assert!(found.slower >= 19, "{} of 20 slower at all", found.slower);
}

#[test]
fn on_an_oversubscribed_machine_steps_without_waiting_for_a_core_are_compared() {
    let oversubscribed = Noise {
        others: OVERSUBSCRIBED,
        ..SHARED
    };

    for (seed, runs) in [(4, 1), (5, 3)] {
        let same = outcome(seed, 200, oversubscribed, 60, runs, 0.0);
        assert!(same.alarms <= 8, "{} alarms of 200", same.alarms);
        let different = same.slower + same.faster;
        assert!(
            different <= 20,
            "{different} of 200 equal pairs called different, {runs} runs per side"
        );
    }
    let one = outcome(6, 20, oversubscribed, 60, 1, 0.33);
    assert!(one.slower >= 17, "{} of 20 slower", one.slower);
    let three = outcome(7, 20, oversubscribed, 60, 3, 0.33);
    assert!(three.alarms >= 19, "{} of 20 beyond 5 %", three.alarms);
    let tenth = outcome(8, 20, oversubscribed, 60, 3, 0.1);
    assert!(tenth.slower >= 14, "{} of 20 slower", tenth.slower);
}

#[test]
fn several_runs_per_side_replace_the_estimate_of_the_disturbance() {
    let unknown = Noise {
        others: Others {
            counted: false,
            spread: 0.02,
            ..OVERSUBSCRIBED
        },
        ..SHARED
    };

    let same = outcome(9, 40, unknown, 60, 1, 0.0);
    assert!(same.slower + same.faster <= 2);
    let one = outcome(10, 20, unknown, 60, 1, 0.33);
    let three = outcome(11, 20, unknown, 60, 3, 0.33);
    assert!(three.half_pct < one.half_pct / 3.0, "{}", three.half_pct);
    assert!(three.alarms >= 19, "{} of 20 beyond 5 %", three.alarms);
}

#[test]
fn cores_used_by_others_do_not_hide_a_slow_down_while_some_are_idle() {
    let beside = |others| Noise { others, ..QUIET };

    let found = outcome(12, 20, beside(MANY_CORES), 120, 1, 0.1);
    let uncounted = Others {
        counted: false,
        ..MANY_CORES
    };
    let without = outcome(12, 20, beside(uncounted), 120, 1, 0.1);

    assert!(found.alarms >= 18, "{} of 20 beyond 5 %", found.alarms);
    assert!(without.alarms >= 18, "{} of 20 beyond 5 %", without.alarms);
}

#[test]
#[ignore = "study"]
fn alarms_stay_below_five_percent_for_all_lengths_and_numbers_of_runs() {
    println!("machine  seconds  runs  slower by   alarms at 5 %  slower  faster  ± points");
    let oversubscribed = Noise {
        others: OVERSUBSCRIBED,
        ..SHARED
    };
    for (name, noise) in [
        ("quiet", QUIET),
        ("shared", SHARED),
        ("busy", oversubscribed),
    ] {
        for (ticks, runs) in [(30, 1), (120, 1), (600, 1), (120, 3), (120, 5)] {
            for slower in [0.0, 0.05, 0.1] {
                let pairs = 200;
                let found = outcome(7, pairs, noise, ticks, runs, slower);
                println!(
                    "{name:7} {ticks:8} {runs:5} {:8.0} % {:13.1} % {:5.1} % {:5.1} % {:9.1}",
                    100.0 * slower,
                    100.0 * f64::from(found.alarms) / f64::from(pairs),
                    100.0 * f64::from(found.slower) / f64::from(pairs),
                    100.0 * f64::from(found.faster) / f64::from(pairs),
                    found.half_pct
                );
                if slower <= 0.05 {
                    assert!(f64::from(found.alarms) <= 0.05 * f64::from(pairs));
                }
            }
        }
    }
}
