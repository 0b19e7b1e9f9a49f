//! Moves items through the queues into calls.

use super::super::Stage;
use super::{Engine, Line};

impl Engine<'_> {
    /// Starts the next task of each idle worker process, if the loop has sent one.
    pub(super) fn dispatch(&mut self, s: usize) -> bool {
        let spec = &self.stages[s];
        let sent = self.states[s].taken + u64::from(spec.threads * spec.ahead.unwrap_or(1));
        let threads = u64::from(spec.threads);
        let mut moved = false;
        for worker in 0..spec.threads as usize {
            let state = &mut self.states[s];
            if !state.busy[worker] && state.done[worker] * threads + (worker as u64) < sent {
                state.busy[worker] = true;
                self.start(s, worker);
                moved = true;
            }
        }
        moved
    }

    pub(super) fn move_items(&mut self, s: usize) -> bool {
        let mut moved = false;
        let room = room(&self.stages[s]);
        let state = &mut self.states[s];
        while state.level < room
            && let Some(left) = state.blocked.front_mut()
        {
            let put = (*left).min(room - state.level);
            *left -= put;
            state.level += put;
            moved = true;
            if *left == 0 {
                state.blocked.pop_front();
                state.idle += 1;
            }
        }
        while self.states[s].idle > 0 {
            let wanted = self.stages[s].takes - self.states[s].held;
            let got = if s == 0 {
                let got = wanted.min(self.left);
                self.left -= if self.line.epoch.is_some() { got } else { 0 };
                got
            } else {
                let before = &mut self.states[s - 1];
                let got = wanted.min(before.level);
                before.level -= got;
                before.taken += u64::from(got);
                got
            };
            self.states[s].held += got;
            moved |= got > 0;
            if self.states[s].held < self.stages[s].takes {
                break;
            }
            self.states[s].held = 0;
            self.states[s].idle -= 1;
            self.start(s, 0);
        }
        moved
    }
}

/// Items that the source gives in an epoch.
pub(super) fn items_of_epoch(line: &Line) -> u32 {
    let items = |epoch: u32| f64::from(epoch) * line.calls(0) * f64::from(line.stages[0].takes);
    line.epoch
        .map_or(u32::MAX, |epoch| items(epoch).round() as u32)
}

pub(super) fn room(stage: &Stage) -> u32 {
    stage
        .ahead
        .map_or(stage.room, |ahead| ahead * stage.threads)
}
