//! Texts of episodes: when the steps were slower, what that cost, and what changed with it.

use super::changed_readings::{changed_records, changed_resources, resource_phrase};
use super::units::{bytes, duration_ms, duration_s, percent};
use super::verdict::{does, place_in_file};
use crate::analysis::episodes::{Episode, EpisodeKind, Signal};
use crate::model::record::{EpisodeKindCode, EpisodeRecord, EpisodeSignal, LineKind};
use crate::model::stack::WaitFor;

/// The record of an episode.
pub(super) fn episode_record(episode: &Episode) -> EpisodeRecord {
    let (kind, period_steps) = match episode.kind {
        EpisodeKind::Periodic { period, .. } => (EpisodeKindCode::Periodic, Some(period)),
        EpisodeKind::Change { .. } => (EpisodeKindCode::Change, None),
        EpisodeKind::Drift { .. } => (EpisodeKindCode::Drift, None),
        EpisodeKind::Outliers { .. } => (EpisodeKindCode::Outliers, None),
    };
    let line = episode.signal.line.as_ref();
    let class = episode.signal.batch_class;
    EpisodeRecord {
        kind,
        from_step: episode.from_step,
        to_step: episode.to_step,
        period_steps,
        share_pct: 100.0 * episode.share,
        cost_s: episode.cost_s,
        predicted_step_ms: episode.predicted_step_ms,
        signal: episode.signal.kind,
        changed_readings: episode.signal.changed.as_deref().map(changed_records),
        file: line.map(|frame| frame.file.to_string()),
        line: line.map(|frame| frame.line),
        function: line.map(|frame| frame.function.to_string()),
        callee: episode.signal.callee.as_ref().map(ToString::to_string),
        waits_for: waits_for(&episode.signal),
        batch_bytes: class.map(|class| class.bytes),
        usual_batch_bytes: class.map(|class| class.usual_bytes),
        data_file: episode.signal.data_file.as_ref().map(ToString::to_string),
        text: text(episode),
    }
}

/// Which steps were slow, and what they cost.
fn slow_steps(episode: &Episode) -> String {
    let cost = duration_s(episode.cost_s);
    match episode.kind {
        EpisodeKind::Periodic {
            period,
            in_epoch,
            stall_ms,
            as_prefetched,
        } => {
            let counted = if in_epoch {
                ", counted from the start of each epoch"
            } else {
                ""
            };
            let prefetched = if as_prefetched {
                format!(" The loader prefetches {period} batches.")
            } else {
                String::new()
            };
            format!(
                "From step {} on, the loop stalls every {period} steps{counted}, each time for {} \
                 on average.{prefetched} These stalls cost {cost}.",
                episode.from_step,
                duration_ms(stall_ms)
            )
        }
        EpisodeKind::Change { usual_ms, slow_ms } => format!(
            "{}, a step takes {} instead of {} (+{} %). This cost {cost}.",
            range(episode),
            duration_ms(slow_ms),
            duration_ms(usual_ms),
            percent(100.0 * (slow_ms / usual_ms - 1.0), 0)
        ),
        EpisodeKind::Drift { begin_ms, end_ms } => format!(
            "The steps become slower and slower: from {} at step {} to {} at the end. This cost \
             {cost}.",
            duration_ms(begin_ms),
            episode.from_step,
            duration_ms(end_ms)
        ),
        EpisodeKind::Outliers { stall_ms } => format!(
            "{} % of the steps take on average {} longer than the others, without a \
             regular interval. They cost {cost}.",
            percent(100.0 * episode.share, 1),
            duration_ms(stall_ms)
        ),
    }
}

fn text(episode: &Episode) -> String {
    let without = duration_ms(episode.predicted_step_ms);
    let them = if is_of_stalls(episode.kind) {
        "them"
    } else {
        "this"
    };
    let what = format!(
        "{} Without {them}, a step would take {without} on average.",
        slow_steps(episode)
    );
    let changed = (episode.signal.kind)
        .map(|part| signal_text(part, &episode.signal, episode.kind))
        .into_iter();
    let class = episode.signal.batch_class.map(|class| {
        format!(
            "The batches of these steps have {}, other batches {}.",
            bytes(class.bytes as f64),
            bytes(class.usual_bytes as f64)
        )
    });
    let file = episode.signal.data_file.iter();
    let file = file.map(|path| format!("Meanwhile, loading has `{path}` open."));
    let resources = changed_resources(&episode.signal);
    let sentences = std::iter::once(what)
        .chain(changed)
        .chain(resources)
        .chain(class)
        .chain(file);
    sentences.collect::<Vec<_>>().join(" ")
}

fn is_of_stalls(kind: EpisodeKind) -> bool {
    matches!(
        kind,
        EpisodeKind::Periodic { .. } | EpisodeKind::Outliers { .. }
    )
}

/// The slow steps of a change.
fn range(episode: &Episode) -> String {
    match episode.to_step {
        None => format!("From step {} on", episode.from_step),
        Some(to) => format!("From step {} to step {to}", episode.from_step),
    }
}

/// Which part of the step became longer. A resource is named by [`changed_resources`].
fn signal_text(part: EpisodeSignal, signal: &Signal, kind: EpisodeKind) -> String {
    let what = match (part, is_of_stalls(kind)) {
        (EpisodeSignal::Wait, true) => "In a stall, the loop waits for data".to_owned(),
        (EpisodeSignal::Compute, true) => "In a stall, the loop's own code runs longer".to_owned(),
        (EpisodeSignal::Wait, false) => "The loop waits longer for data".to_owned(),
        (EpisodeSignal::Compute, false) => "The loop's own code takes longer".to_owned(),
        _ => format!("At the same time, {}", resource_phrase(part, signal)),
    };
    let Some(line) = &signal.line else {
        return format!("{what}.");
    };
    let place = place_in_file(&line.file, line.line);
    let call = (signal.callee.iter()).map(|callee| format!("calls `{callee}`"));
    // A wait for a lock does not show what the holder of the lock does.
    let wait = waits_for(signal).filter(|what| !matches!(what, WaitFor::Lock | WaitFor::Other));
    let wait = wait.map(|what| does(LineKind::Wait, Some(what)).to_owned());
    let actions: Vec<String> = call.chain(wait).collect();
    let which = match actions.as_slice() {
        [] => String::new(),
        _ => format!(", which {}", actions.join(" and ")),
    };
    let is_wait = part == EpisodeSignal::Wait;
    let loading = if is_wait { " while loading is" } else { "," };
    format!(
        "{what}{loading} mostly at `{place}` ({}){which}.",
        line.function
    )
}

/// What threads mostly wait for at the line of a signal.
fn waits_for(signal: &Signal) -> Option<WaitFor> {
    LineKind::of(signal.activity?).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::episodes::BatchClass;
    use crate::model::stack::{Activity, Frame};

    fn episode(kind: EpisodeKind, signal: EpisodeSignal) -> Episode {
        Episode {
            kind,
            from_step: 32,
            to_step: None,
            share: 0.03,
            cost_s: 9.85,
            predicted_step_ms: 18.2,
            signal: Signal {
                kind: Some(signal),
                ..Signal::default()
            },
        }
    }

    #[test]
    fn a_periodic_stall_says_its_period_its_cost_and_its_line() {
        let kind = EpisodeKind::Periodic {
            period: 32,
            in_epoch: false,
            stall_ms: 821.0,
            as_prefetched: true,
        };
        let mut stalls = episode(kind, EpisodeSignal::Wait);
        stalls.signal.line = Some(Frame::own("/home/user/train.py", 49, "refill"));
        stalls.signal.callee = Some("recv".into());
        stalls.signal.activity = Some(Activity::Wait(WaitFor::Connection));

        let record = episode_record(&stalls);

        assert_eq!(
            record.text,
            "From step 32 on, the loop stalls every 32 steps, each time for 821 ms on average. The \
             loader prefetches 32 batches. These stalls cost 9.85 s. Without them, a step would take \
             18.2 ms on average. In a stall, the loop waits for data while loading is mostly at \
             `train.py:49` (refill), which calls `recv` and waits for a pipe or socket."
        );
        assert_eq!(record.period_steps, Some(32));
        assert_eq!(record.line, Some(49));
        assert_eq!(record.waits_for, Some(WaitFor::Connection));
        assert_eq!(record.data_file, None);
    }

    #[test]
    fn a_stall_says_how_its_batches_differ_from_others() {
        let mut stalls = episode(
            EpisodeKind::Outliers { stall_ms: 821.0 },
            EpisodeSignal::Wait,
        );
        stalls.signal.batch_class = Some(BatchClass {
            bytes: 1 << 20,
            usual_bytes: 1 << 18,
        });

        let record = episode_record(&stalls);

        let end = "The batches of these steps have 1.00 MiB, other batches 256 KiB.";
        assert!(record.text.ends_with(end), "{}", record.text);
        assert_eq!(record.batch_bytes, Some(1 << 20));
        assert_eq!(record.usual_batch_bytes, Some(1 << 18));
    }

    #[test]
    fn a_stall_says_which_data_file_is_open_meanwhile() {
        let mut stalls = episode(
            EpisodeKind::Outliers { stall_ms: 821.0 },
            EpisodeSignal::Wait,
        );
        stalls.signal.data_file = Some("/data/shard-7.tar".into());

        let record = episode_record(&stalls);

        let end = "In a stall, the loop waits for data. \
                   Meanwhile, loading has `/data/shard-7.tar` open.";
        assert!(record.text.ends_with(end), "{}", record.text);
        assert_eq!(record.data_file.as_deref(), Some("/data/shard-7.tar"));

        stalls.signal.kind = None;
        let end = "on average. Meanwhile, loading has `/data/shard-7.tar` open.";
        assert!(episode_record(&stalls).text.ends_with(end));
    }

    #[test]
    fn a_change_says_its_first_step_and_what_changed_with_it() {
        let kind = EpisodeKind::Change {
            usual_ms: 20.0,
            slow_ms: 50.0,
        };
        let change = episode(kind, EpisodeSignal::StorageReads);

        assert_eq!(
            episode_record(&change).text,
            "From step 32 on, a step takes 50.0 ms instead of 20.0 ms (+150 %). This cost 9.85 s. \
             Without this, a step would take 18.2 ms on average. \
             At the same time, more bytes come from storage."
        );
    }
}
