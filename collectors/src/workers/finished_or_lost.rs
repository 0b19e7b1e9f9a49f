//! Decides whether a worker process that no longer exists finished normally or is lost.

use std::sync::atomic::Ordering;

use headspace_agent::recording::stage::WorkerState;

use super::layout::File;

/// The end of the worker process of this file. It finished normally if it marked its end. It also did if its pool ends
/// idle workers, and it was in no stage. Otherwise it is lost.
pub(super) fn finished_or_lost(file: &File) -> WorkerState {
    let header = &file.header;
    if header.is_finished() || (header.is_ended_while_idle() && is_in_no_stage(file)) {
        WorkerState::Finished
    } else {
        WorkerState::Lost
    }
}

fn is_in_no_stage(file: &File) -> bool {
    let stages = file.region.stages.iter();
    let mut named = stages.take_while(|stage| stage.name.get().is_some());
    named.all(|stage| stage.entered.load(Ordering::Relaxed) == stage.exited.load(Ordering::Relaxed))
}
