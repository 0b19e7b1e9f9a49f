//! Ranks whose slowest is known.

use super::{RankEvidence, Ranks, RanksTogether};
use crate::analysis::tick_series::TickSeries;
use crate::model::record::{
    DataFileRecord, Estimate, LineRecord, LoopTick, RankCause, RanksRecord, RunState,
    SummaryRecord, TickRecord,
};
use crate::model::{Distribution, RecordBody};
use crate::statistics::bootstrap::Rng;

/// What a rank takes by itself, in milliseconds.
#[derive(Clone, Copy)]
struct Own {
    load: f64,
    compute: f64,
}

const USUAL: Own = Own {
    load: 2.0,
    compute: 10.0,
};

/// How the ranks hang together.
#[derive(Clone, Copy, PartialEq)]
enum Tie {
    /// They wait for each other in every step, within their compute.
    EveryStep,
    /// Each goes its own way.
    Never,
}

/// Ranks that train side by side for `ticks` ticks of 50 steps, each step noisy.
fn train(ranks: &[Own], tie: Tie, ticks: u32, noise: f64) -> RanksRecord {
    together(ranks, tie, ticks, noise).record
}

/// The same with what it was concluded from.
fn together(ranks: &[Own], tie: Tie, ticks: u32, noise: f64) -> RanksTogether {
    let mut rng = Rng::new(11);
    let mut all_series = vec![TickSeries::default(); ranks.len()];
    for _ in 0..ticks {
        let mut parts = vec![[(); 3].map(|()| Distribution::default()); ranks.len()];
        for _ in 0..50 {
            let own: Vec<Own> = ranks
                .iter()
                .map(|own| {
                    let mut vary = || 1.0 + noise * (rng.unit() - 0.5);
                    Own {
                        load: own.load * vary(),
                        compute: own.compute * vary(),
                    }
                })
                .collect();
            let longest = own.iter().map(|o| o.load + o.compute).fold(0.0, f64::max);
            for (own, [step, wait, compute]) in own.iter().zip(&mut parts) {
                let all = if tie == Tie::EveryStep {
                    longest
                } else {
                    own.load + own.compute
                };
                step.record(nanos(all));
                wait.record(nanos(own.load));
                compute.record(nanos(all - own.load));
            }
        }
        for (series, [step, wait, compute]) in all_series.iter_mut().zip(&parts) {
            series.add_record(&RecordBody::Tick(TickRecord {
                loops: vec![LoopTick {
                    name: "train".to_owned(),
                    steps: 50,
                    step: step.into(),
                    wait: wait.into(),
                    compute: compute.into(),
                    ..LoopTick::default()
                }],
                ..TickRecord::default()
            }));
        }
    }
    // As sampled stacks show it.
    let all_ms = ranks.iter().map(|own| own.load + own.compute);
    let longest = all_ms.fold(0.0, f64::max);
    let blocked_ms = |own: &Own| match tie {
        Tie::EveryStep => longest - own.load - own.compute,
        Tie::Never => 0.0,
    };
    let mut all = Ranks::default();
    let world = u32::try_from(ranks.len()).ok();
    for ((rank, series), own) in (0..).zip(&all_series).zip(ranks) {
        let summary = SummaryRecord {
            compute_ms: Some(own.compute + blocked_ms(own)),
            lines: lines(own.compute, own.compute + blocked_ms(own)),
            compute_blocked_ms: Some(Estimate::around(blocked_ms(own), 0.3)),
            ..summary(u64::from(ticks) * 50)
        };
        all.add(rank, world, Some(&summary), series);
    }
    all.finish().unwrap()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive duration of milliseconds"
)]
fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// The lines of a rank whose own compute takes `own_ms` of its compute. All ranks take the same time at line 1. A slow rank
/// takes the rest at line 2.
fn lines(own_ms: f64, compute_ms: f64) -> Vec<LineRecord> {
    let line = |line, ms: f64| LineRecord {
        line,
        share_pct: 100.0 * ms / compute_ms,
        ..LineRecord::default()
    };
    vec![line(1, USUAL.compute), line(2, own_ms - USUAL.compute)]
}

fn summary(steps: u64) -> SummaryRecord {
    SummaryRecord {
        state: RunState::Finished,
        mode: Some(crate::model::Mode::Measure),
        loop_name: Some("train".to_owned()),
        steps,
        steady_steps: steps.saturating_sub(20),
        ..SummaryRecord::default()
    }
}

fn with(rank: usize, own: Own) -> Vec<Own> {
    let mut ranks = vec![USUAL; 8];
    ranks[rank] = own;
    ranks
}

#[test]
fn a_rank_with_late_data_is_found_if_all_steps_are_equally_long() {
    let slow = Own { load: 8.0, ..USUAL };
    let found = train(&with(5, slow), Tie::EveryStep, 40, 0.2);

    assert_eq!((found.slowest, found.cause), (Some(5), RankCause::Data));
    let excess = found.excess_ms.unwrap();
    assert!((excess.value - 6.0).abs() < 0.2, "{excess:?}");
    let others = found.each[0].others_ms.unwrap();
    assert!((others - 6.0).abs() < 0.6, "{others}");
    assert!(found.each[5].others_ms.unwrap() < 1e-9);
}

#[test]
fn a_rank_with_slow_compute_is_found_by_how_little_it_waits_inside_its_compute() {
    let slow = Own {
        compute: 14.0,
        ..USUAL
    };
    let RanksTogether {
        record: found,
        evidence,
    } = together(&with(3, slow), Tie::EveryStep, 40, 0.2);

    assert_eq!((found.slowest, found.cause), (Some(3), RankCause::Compute));
    assert!((found.excess_ms.unwrap().value - 4.0).abs() < 0.1);
    assert!((found.predicted_step_ms.unwrap() - 12.0).abs() < 0.1);
    let RankEvidence::OwnComputeLonger { line, .. } = evidence else {
        panic!("{evidence:?}");
    };
    let line = line.unwrap();
    assert_eq!(line.line, 2);
    assert!((line.ms - 4.0).abs() < 0.1, "{line:?}");
}

#[test]
fn of_a_rank_with_a_longer_wait_and_one_with_a_longer_compute_the_others_wait_for_the_slower_one() {
    for (wait_longer, slowest, cause) in [(1.0, 3, RankCause::Compute), (9.0, 5, RankCause::Data)] {
        let mut ranks = vec![USUAL; 8];
        ranks[3].compute += 4.0;
        ranks[5].load += wait_longer;
        let found = train(&ranks, Tie::EveryStep, 40, 0.2);

        assert_eq!((found.slowest, found.cause), (Some(slowest), cause));
    }
}

#[test]
fn if_steps_differ_the_longest_step_shows_the_slowest_rank_and_the_cause() {
    for (slow, cause) in [
        (Own { load: 8.0, ..USUAL }, RankCause::Data),
        (
            Own {
                compute: 14.0,
                ..USUAL
            },
            RankCause::Compute,
        ),
    ] {
        let RanksTogether {
            record: found,
            evidence,
        } = together(&with(2, slow), Tie::Never, 40, 0.2);

        assert_eq!((found.slowest, found.cause), (Some(2), cause));
        assert!(
            matches!(evidence, RankEvidence::StepsDiffer { .. }),
            "{evidence:?}"
        );
        assert_eq!(found.each[0].others_ms, None);
    }
}

#[test]
fn several_slow_ranks_do_not_hide_each_other() {
    let slow = Own { load: 8.0, ..USUAL };
    let mut ranks = with(1, slow);
    for rank in [3, 4, 6] {
        ranks[rank] = Own { load: 7.5, ..USUAL };
    }

    let found = train(&ranks, Tie::EveryStep, 40, 0.2);

    assert_eq!((found.slowest, found.cause), (Some(1), RankCause::Data));
}

#[test]
fn equal_ranks_are_balanced_in_spite_of_noise() {
    for tie in [Tie::EveryStep, Tie::Never] {
        for ranks in [2, 8, 64] {
            let found = train(&vec![USUAL; ranks], tie, 40, 0.2);

            assert_eq!((found.slowest, found.cause), (None, RankCause::Balanced));
        }
    }
}

#[test]
fn few_ticks_or_much_noise_give_no_slowest_rank() {
    let slow = Own { load: 8.0, ..USUAL };
    let short = together(&with(5, slow), Tie::EveryStep, 3, 0.2);
    assert_eq!(
        (short.record.slowest, short.record.cause),
        (None, RankCause::Unknown)
    );
    assert_eq!(short.evidence, RankEvidence::TooShort);

    let alone = train(&[USUAL], Tie::Never, 40, 0.2);
    assert_eq!(alone.cause, RankCause::Unknown);
}

#[test]
fn missing_killed_and_shorter_ranks_are_reported() {
    let mut ranks = Ranks::default();
    for rank in [0, 1, 3] {
        let mut summary = summary(100 + u64::from(rank));
        if rank == 3 {
            summary.state = RunState::Running;
        }
        ranks.add(rank, Some(6), Some(&summary), &TickSeries::default());
    }
    ranks.add(4, None, None, &TickSeries::default());

    let found = ranks.finish().unwrap().record;

    assert_eq!((found.read, found.world_size), (3, Some(6)));
    assert_eq!((found.missing_count, found.missing), (3, vec![2, 4, 5]));
    assert_eq!((found.unfinished_count, found.unfinished), (1, vec![3]));
    assert_eq!(found.steps, Some((100, 103)));
    assert!(Ranks::default().finish().is_none());
}

#[test]
fn a_damaged_world_size_names_a_few_missing_ranks_and_counts_the_rest() {
    let mut ranks = Ranks::default();
    ranks.add(0, Some(u32::MAX), Some(&summary(9)), &TickSeries::default());

    let found = ranks.finish().unwrap().record;

    assert_eq!(
        (found.missing_count, found.missing.len()),
        (u32::MAX - 1, 16)
    );
}

#[test]
fn histograms_are_merged_and_not_averaged() {
    let slow = Own { load: 8.0, ..USUAL };
    let found = train(&with(5, slow), Tie::Never, 40, 0.0);

    let wait = found.wait.unwrap();
    assert!((wait.p50_ms - 2.0).abs() < 0.05, "{wait:?}");
    assert!((wait.p95_ms - 8.0).abs() < 0.1, "{wait:?}");
    assert!((wait.mean_ms - (7.0 * 2.0 + 8.0) / 8.0).abs() < 0.01);
}

#[test]
fn ranks_that_read_the_same_files_in_the_same_order_are_counted() {
    let summary = |folder: &str| SummaryRecord {
        data_files: (0..6)
            .map(|shard| DataFileRecord {
                path: format!("/{folder}/{shard}.tar"),
                first_s: f64::from(shard),
            })
            .collect(),
        ..summary(100)
    };
    let mut ranks = Ranks::default();
    for (rank, folder) in (0..).zip(["same", "other", "same"]) {
        ranks.add(
            rank,
            Some(3),
            Some(&summary(folder)),
            &TickSeries::default(),
        );
    }

    let record = ranks.finish().unwrap().record;

    assert_eq!(record.ranks_reading_same_files, Some(2));
}
