//! Which thread is where: the places of a process's threads before and after a reading of their stacks.
//!
//! A stack counts for a place only if its thread was there both before the reading and after it.

use std::time::Duration;

use crate::model::stack::{Activity, Place, ThreadStack, WaitFor};
use crate::port::thread::ThreadId;
use crate::recording::stage::{ThreadPosition, ThreadSlot};

use super::StackTarget;

/// Maximum time that a reading may spend off its core. In a longer one, a thread may have ended its call and begun
/// another one of the same stage, so its stack may belong to no stage. The number of changes alone does not decide: a
/// stage whose calls are shorter than a reading would have no samples. Chosen: the longest usual reading
/// (`docs/lines.md`, Cost). Its sensitivity was not measured.
const MAX_INTERRUPTION: Duration = Duration::from_millis(1);

/// How a reading of stacks went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadingSpan {
    Brief,
    /// The thread that reads waited long for a core or for the kernel.
    Interrupted,
}

impl ReadingSpan {
    /// `cpu` is the CPU time of the reading. If it is not known, the reading counts as brief.
    pub(super) fn new(duration: Duration, cpu: Option<Duration>) -> Self {
        match cpu {
            Some(cpu) if duration.saturating_sub(cpu) > MAX_INTERRUPTION => Self::Interrupted,
            _ => Self::Brief,
        }
    }
}

/// A thread and its place.
#[derive(Debug, Clone)]
pub(super) struct ThreadPlace {
    pub(super) thread: ThreadId,
    place: Place,
    /// Number of changes of its stage. 0 if the thread has no slot. The waits of the training loop are not counted, so a
    /// loop that waited and came back is not noticed.
    changes: u16,
}

/// The threads of interest of a process, and the place of each.
pub(super) fn find_thread_places(
    target: &StackTarget,
    stages_make_batches: bool,
) -> Vec<ThreadPlace> {
    let slots = target.region.map_or(&[][..], |region| &region.threads[..]);
    let mut places: Vec<_> = (slots.iter())
        .filter_map(ThreadSlot::get)
        .map(|position| ThreadPlace {
            thread: position.thread,
            place: stage_place(target, position),
            changes: position.changes,
        })
        .collect();
    if let Some(trainer) = &target.trainer
        && let Some(consumer) = trainer.consumer.thread()
    {
        let place = trainer.place(stages_make_batches);
        match places.iter_mut().find(|known| known.thread == consumer) {
            Some(known) if known.place == Place::Elsewhere => known.place = place,
            Some(_) => {}
            None => places.push(ThreadPlace {
                thread: consumer,
                place,
                changes: 0,
            }),
        }
    }
    places
}

/// The stage of a thread.
fn stage_place(target: &StackTarget, position: ThreadPosition) -> Place {
    let slot = (position.stage).and_then(|number| target.region?.stages.get(number));
    let name = slot.and_then(|slot| slot.name.get());
    name.map_or(Place::Elsewhere, Place::Stage)
}

/// The samples of the stacks. A thread that changed its place during the reading is left out, because its stack may belong
/// to either place. After an interrupted reading, a thread that left its stage and came back is also left out.
pub(super) fn match_stacks_with_places(
    stacks: Vec<ThreadStack>,
    before: &[ThreadPlace],
    after: &[ThreadPlace],
    span: ReadingSpan,
) -> Vec<(Place, ThreadStack)> {
    let place_and_changes = |places: &[ThreadPlace], tid| {
        let found = places.iter().find(|known| known.thread.tid == tid);
        found.map_or((Place::Elsewhere, 0), |known| {
            (known.place.clone(), known.changes)
        })
    };
    let sample = |stack: ThreadStack| {
        let (place_before, changes_before) = place_and_changes(before, stack.tid);
        let (place_after, changes_after) = place_and_changes(after, stack.tid);
        let stayed = place_before == place_after
            && (changes_before == changes_after || span == ReadingSpan::Brief);
        stayed.then_some((place_before, stack))
    };
    move_time_to_helpers(stacks.into_iter().filter_map(sample).collect())
}

/// If a stage's call waits for a lock, it is assumed that it waits for other threads of its process, and its time is moved
/// to them. Only threads outside of stages count. They are the first of these groups that is not empty:
///
/// 1. threads that execute a task of a pool, even if they wait, for example for a file,
/// 2. threads that work,
/// 3. threads of the program's own code that wait for a file, a pipe or a socket, and ran recently.
///
/// With several waiting calls, or if the loop's own code waits too, it is unknown who waits for them.
fn move_time_to_helpers(mut samples: Vec<(Place, ThreadStack)>) -> Vec<(Place, ThreadStack)> {
    let waits = |(place, stack): &(Place, ThreadStack)| {
        matches!(place, Place::Stage(_) | Place::Loop(_))
            && stack.activity == Activity::Wait(WaitFor::Lock)
    };
    let groups: [fn(&ThreadStack) -> bool; 3] = [
        |stack| stack.in_pool_task,
        |stack| stack.activity.is_work(),
        |stack| stack.activity.is_reading() && stack.ran_recently && stack.runs_own_code(),
    ];
    let is_free = |place: &Place| *place == Place::Elsewhere;
    let is_present = |group: &&fn(&ThreadStack) -> bool| {
        (samples.iter()).any(|(place, stack)| is_free(place) && group(stack))
    };
    let Some(group) = groups.iter().find(is_present) else {
        return samples;
    };
    let helps = |(place, stack): &(Place, ThreadStack)| is_free(place) && group(stack);
    let helpers = samples.iter().filter(|sample| helps(sample)).count();
    let mut waiting = samples
        .iter()
        .enumerate()
        .filter(|(_, sample)| waits(sample));
    let (Some((call, (stage, _))), None) = (waiting.next(), waiting.next()) else {
        return samples;
    };
    if stage.stage().is_none() {
        return samples;
    }
    let stage = stage.clone();
    for (place, stack) in samples.iter_mut().filter(|sample| helps(sample)) {
        *place = stage.clone();
        stack.helpers = u32::try_from(helpers).ok();
    }
    samples.remove(call);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::Frame;

    fn stack(tid: u32, function: &str, activity: Activity) -> ThreadStack {
        ThreadStack {
            tid,
            ..ThreadStack::doing(activity, vec![Frame::own("data.py", 1, function)])
        }
    }

    #[test]
    fn a_thread_that_left_its_stage_and_came_back_during_an_interrupted_reading_has_no_sample() {
        let in_fetch_after = |changes| {
            [ThreadPlace {
                thread: ThreadId { tid: 1, handle: 0 },
                place: Place::Stage("fetch".to_owned()),
                changes,
            }]
        };
        let count_samples = |changes, span| {
            let stacks = vec![stack(1, "read", Activity::Native)];
            let (before, after) = (in_fetch_after(5), in_fetch_after(changes));
            match_stacks_with_places(stacks, &before, &after, span).len()
        };

        assert_eq!(count_samples(7, ReadingSpan::Interrupted), 0);
        let stayed = count_samples(5, ReadingSpan::Interrupted);
        assert_eq!(stayed, 1, "it stayed in its call");
        let brief = count_samples(7, ReadingSpan::Brief);
        assert_eq!(brief, 1, "a stage with short calls needs its samples");
    }

    #[test]
    fn a_reading_is_interrupted_by_its_time_off_the_core() {
        let span = |off_core| {
            let cpu = Duration::from_millis(8);
            ReadingSpan::new(cpu + off_core, Some(cpu))
        };
        let longer = MAX_INTERRUPTION + Duration::from_nanos(1);
        assert_eq!(span(MAX_INTERRUPTION), ReadingSpan::Brief);
        assert_eq!(span(longer), ReadingSpan::Interrupted);
        assert_eq!(ReadingSpan::new(longer, None), ReadingSpan::Brief);
    }

    fn functions(samples: &[(Place, ThreadStack)]) -> Vec<(&Place, &str, Option<u32>)> {
        (samples.iter())
            .map(|(place, stack)| (place, &*stack.frames[0].function, stack.helpers))
            .collect()
    }

    #[test]
    fn the_time_of_a_call_that_waits_for_its_pool_belongs_to_the_threads_of_the_pool() {
        let fetch = || Place::Stage("fetch".to_owned());
        let call = || (fetch(), stack(1, "map", Activity::Wait(WaitFor::Lock)));
        let helper = |tid| (Place::Elsewhere, stack(tid, "decode", Activity::Native));

        let samples = move_time_to_helpers(vec![call(), helper(2), helper(3)]);
        let expected = (&fetch(), "decode", Some(2));
        assert_eq!(functions(&samples), [expected, expected]);

        // Threads in tasks of a pool also count while they wait, for example for a store.
        let reads = |tid| {
            let mut stack = stack(tid, "read", Activity::Wait(WaitFor::Connection));
            stack.in_pool_task = true;
            (Place::Elsewhere, stack)
        };
        let samples = move_time_to_helpers(vec![call(), reads(2), reads(3)]);
        let expected = (&fetch(), "read", Some(2));
        assert_eq!(functions(&samples), [expected, expected]);

        // A thread that reads helps only if no thread works.
        let downloads = || {
            let waits = Activity::Wait(WaitFor::Connection);
            (Place::Elsewhere, stack(2, "download", waits))
        };
        let samples = move_time_to_helpers(vec![call(), downloads()]);
        assert_eq!(functions(&samples), [(&fetch(), "download", Some(1))]);
        let mut idle = downloads();
        idle.1.ran_recently = false;
        let samples = move_time_to_helpers(vec![call(), idle]);
        assert_eq!(functions(&samples)[0], (&fetch(), "map", None));
        let samples = move_time_to_helpers(vec![call(), downloads(), helper(3)]);
        assert_eq!(
            functions(&samples)[1],
            (&fetch(), "decode", Some(1)),
            "the download may be another program part's"
        );

        // Alone, the call waits for something else. With a second one, it is unknown which of them waits for it.
        assert_eq!(
            functions(&move_time_to_helpers(vec![call()])),
            [(&fetch(), "map", None)]
        );
        let two = move_time_to_helpers(vec![call(), call(), helper(2)]);
        assert_eq!(two[0].1.frames[0].function, "map".into());
    }
}
