//! A what-if of a loop: sets the switches of the stages as the agent's state machine says.
//!
//! While the loop does not iterate, all stages are unchanged, because another loop (an evaluation) may use them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use headspace_agent::batch_source::WhatIfPlan;
use headspace_agent::batch_source::what_if::{Change, SwitchedStage, WhatIf};
use headspace_agent::lock::lock;
use headspace_agent::model::record::Phase;
use headspace_agent::model::{Intervention, InterventionKind, WhatIfWindow};
use headspace_agent::notice::NoWhatIf;
use headspace_agent::recording::stage::{Setting, Switch, Switches};
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::LoopEntry;

use crate::stages::process_slots;

/// Whether a loop of this process has a what-if that is not over. Two of them would change the same stages.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The what-if of one loop. It outlives the epochs.
pub(crate) struct WhatIfRun {
    switches: &'static Switches,
    state: Mutex<State>,
    is_over: AtomicBool,
    /// In a forked child, it changes nothing.
    owner: Owner,
}

struct State {
    machine: WhatIf,
    /// The intervention of this window, and the stages that it changes.
    changed: Option<(Intervention, Vec<String>)>,
    /// Whether stages are unchanged only because the loop does not iterate.
    is_paused: bool,
    /// Counts when the last window ended.
    before: Counts,
}

/// What the processes have counted, over all stages.
#[derive(Clone, Copy, Default)]
struct Counts {
    replaced_calls: u64,
    impatient_calls: u64,
}

impl Counts {
    fn of(switches: &Switches) -> Self {
        let sum = |counter: fn(&Switch) -> u64| switches.in_use().map(|(_, s)| counter(s)).sum();
        Self {
            replaced_calls: sum(|switch| switch.replaced_calls.load(Ordering::Relaxed)),
            impatient_calls: sum(|switch| switch.impatient_calls.load(Ordering::Relaxed)),
        }
    }
}

impl WhatIfRun {
    /// Begins a what-if in this process, which must be a trainer.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn begin(plan: WhatIfPlan) -> Result<Self, NoWhatIf> {
        if IS_TAKEN.swap(true, Ordering::Relaxed) {
            return Err(NoWhatIf::OtherLoop);
        }
        let switches = process_slots::make_switches().map_err(|error| {
            IS_TAKEN.store(false, Ordering::Relaxed);
            NoWhatIf::NoSharedMemory(error.to_string())
        })?;
        Ok(Self {
            switches,
            state: Mutex::new(State {
                machine: WhatIf::new(plan),
                changed: None,
                is_paused: false,
                before: Counts::default(),
            }),
            is_over: AtomicBool::new(false),
            owner: Owner::here(),
        })
    }

    /// Whether there is nothing left to do.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The loop requests a batch. Sets the switches, and returns the window that has ended, if one has, and the phase of
    /// the batch.
    pub(crate) fn request(&self, entry: &LoopEntry) -> (Option<WhatIfWindow>, Phase) {
        let mut state = lock(&self.state);
        let turn = (state.machine).request(|| stages(self.switches, entry));
        let was_paused = std::mem::take(&mut state.is_paused);
        match turn.change {
            Some(change) => state.changed = self.set_switches(change),
            None if was_paused => {
                if let Some((intervention, stages)) = &state.changed {
                    self.apply(intervention, stages);
                }
            }
            None => {}
        }
        let window = turn.window.map(|window| {
            let now = Counts::of(self.switches);
            let before = std::mem::replace(&mut state.before, now);
            let is_spoiled = now.impatient_calls > before.impatient_calls;
            WhatIfWindow {
                steps: if is_spoiled { Vec::new() } else { window.steps },
                inputs_not_trained_on: now.replaced_calls - before.replaced_calls,
                ..window
            }
        });
        (window, state.machine.phase())
    }

    /// Sets the switches. Returns the intervention that begins, and the stages that it changes.
    fn set_switches(&self, change: Change) -> Option<(Intervention, Vec<String>)> {
        match change {
            Change::Watch => self.switches.set_all(Setting::Watch),
            Change::Restore => self.switches.set_all(Setting::Keep),
            Change::Finish => self.switches.set_all(Setting::Release),
            Change::Begin {
                intervention,
                stages,
            } => {
                self.apply(&intervention, &stages);
                return Some((intervention, stages));
            }
        }
        None
    }

    fn apply(&self, intervention: &Intervention, stages: &[String]) {
        let setting = setting(intervention);
        for (name, switch) in self.switches.in_use() {
            if stages.contains(&name) {
                switch.set(setting);
            }
        }
    }

    /// A batch was delivered. `step` is the compute before it and the wait for it in nanoseconds, if it ends a step.
    pub(crate) fn delivered(&self, step: Option<(u64, u64)>) {
        let mut state = lock(&self.state);
        state.machine.delivered();
        match step {
            Some((compute_ns, wait_ns)) => state.machine.timed(compute_ns, wait_ns),
            None => state.machine.begin_epoch(),
        }
        if state.machine.is_over() && !self.is_over.swap(true, Ordering::Relaxed) {
            IS_TAKEN.store(false, Ordering::Relaxed);
        }
    }

    /// The loop does not iterate for now: all stages are unchanged until its next request.
    pub(crate) fn pause(&self) {
        if !self.owner.is_here() {
            return;
        }
        let mut state = lock(&self.state);
        state.machine.begin_epoch();
        if let Some((_, stages)) = &state.changed {
            // Results that are kept stay: `Watch` and `Keep` would replace them.
            for (name, switch) in self.switches.in_use() {
                if stages.contains(&name) {
                    switch.set(Setting::Unchanged);
                }
            }
            state.is_paused = true;
        }
    }
}

impl Drop for WhatIfRun {
    fn drop(&mut self) {
        if self.owner.is_here() && !self.is_over() {
            self.switches.set_all(Setting::Release);
            IS_TAKEN.store(false, Ordering::Relaxed);
        }
    }
}

fn setting(intervention: &Intervention) -> Setting {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number"
    )]
    match intervention.kind {
        InterventionKind::Free | InterventionKind::Cut => Setting::Replace { every: 1 },
        InterventionKind::Half => Setting::Replace { every: 2 },
        InterventionKind::Gate => Setting::Gate {
            calls: intervention.amount as u32,
        },
        InterventionKind::Delay => Setting::Delay {
            nanos: (intervention.amount * 1e6) as u64,
        },
    }
}

/// The stages that were called during the warm-up.
fn stages(switches: &Switches, entry: &LoopEntry) -> Vec<SwitchedStage> {
    let stage = |(name, switch): (String, &Switch)| SwitchedStage {
        proposed_calls: entry.proposed_calls(&name),
        name,
        is_replaceable: switch.not_replaceable.load(Ordering::Relaxed) == 0
            && switch.kept.load(Ordering::Relaxed) > 0,
        is_delayable: switch.not_delayable.load(Ordering::Relaxed) == 0,
        calls_at_once: switch.most_active.load(Ordering::Relaxed),
        calls: switch.watched_calls.load(Ordering::Relaxed),
        busy_ns: switch.watched_ns.load(Ordering::Relaxed),
    };
    switches.in_use().map(stage).collect()
}
