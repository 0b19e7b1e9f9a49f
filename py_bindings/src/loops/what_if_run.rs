//! A what-if of a loop: sets the switches of the stages and of the requests as the agent's state machine says.
//!
//! While the loop does not iterate, and while another loop of the process does (an evaluation), all stages are
//! unchanged. If the loop stops requesting batches without an end, changes lose their validity after some steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use headspace_agent::batch_source::WhatIfPlan;
use headspace_agent::batch_source::what_if::{Change, Pipeline, SwitchedStage, WhatIf};
use headspace_agent::lock::lock;
use headspace_agent::model::record::Phase;
use headspace_agent::model::{Intervention, InterventionKind, WhatIfWindow};
use headspace_agent::notice::NoWhatIf;
use headspace_agent::port::clock::monotonic_ns;
use headspace_agent::recording::stage::{Setting, Switch, Switches};
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::LoopEntry;

use crate::loops::batch_requests::BatchRequests;
use crate::stages::loop_body::set_in_loop_body;
use crate::stages::process_slots;

/// The what-if of this process that is not over. Two of them would change the same stages.
static CURRENT: Mutex<Weak<WhatIfRun>> = Mutex::new(Weak::new());

/// A change stays valid after a request for this time in nanoseconds, and then for [`VALID_STEPS`] steps.
const VALID_NS: u64 = 2_000_000_000;
/// See [`VALID_NS`].
const VALID_STEPS: u64 = 20;

/// A window counts if at least this share of the calls that should do no work did none.
const LEAST_REPLACED: f64 = 0.9;

/// The what-if of one loop. It outlives the epochs.
pub(crate) struct WhatIfRun {
    switches: &'static Switches,
    requests: BatchRequests,
    state: Mutex<State>,
    is_over: AtomicBool,
    keep_data: bool,
    /// Counts when it began. Those of an earlier what-if are in the same memory.
    at_begin: CallCounts,
    /// In a forked child, it changes nothing.
    owner: Owner,
}

struct State {
    machine: WhatIf,
    /// The setting of the stages that are not changed.
    unchanged: Setting,
    /// The intervention of this window, and the stages that it changes.
    changed: Option<(Intervention, Vec<String>)>,
    /// Whether stages are unchanged only because the loop does not iterate.
    is_paused: bool,
    /// Counts when the last window ended.
    before: CallCounts,
    /// Time of the last request.
    requested_ns: u64,
}

/// Numbers of calls that the processes have counted, over all stages.
#[derive(Clone, Copy, Default)]
struct CallCounts {
    /// Returned a kept result.
    replaced: u64,
    /// Did their work although the stage was free.
    worked: u64,
    /// Waited too long at a gate.
    timed_out: u64,
}

impl CallCounts {
    fn read(switches: &Switches) -> Self {
        let sum = |counter: fn(&Switch) -> u64| switches.in_use().map(counter).sum();
        Self {
            replaced: sum(|switch| switch.replaced_calls.load(Ordering::Relaxed)),
            worked: sum(|switch| switch.worked_calls.load(Ordering::Relaxed)),
            timed_out: sum(|switch| switch.timed_out_calls.load(Ordering::Relaxed)),
        }
    }

    /// Whether the calls since `before` behaved as the intervention says.
    fn are_valid_for(self, intervention: &Intervention, before: Self) -> bool {
        let replaced = (self.replaced - before.replaced) as f64;
        let worked = (self.worked - before.worked) as f64;
        let is_replaced = !intervention.kind.replaces_results()
            || replaced >= LEAST_REPLACED * intervention.amount * (replaced + worked);
        is_replaced && self.timed_out == before.timed_out
    }
}

impl WhatIfRun {
    /// Begins a what-if in this process, which must be a trainer.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn begin(plan: WhatIfPlan) -> Result<Arc<Self>, NoWhatIf> {
        // In a forked child, a thread of the parent may hold the lock for ever.
        let mut current = CURRENT.try_lock().map_err(|_| NoWhatIf::OtherLoop)?;
        let is_open = |other: &Arc<Self>| other.is_here() && !other.is_over();
        if current.upgrade().as_ref().is_some_and(is_open) {
            return Err(NoWhatIf::OtherLoop);
        }
        let switches = process_slots::make_switches()
            .map_err(|error| NoWhatIf::NoSharedMemory(error.to_string()))?;
        let at_begin = CallCounts::read(switches);
        let requests = BatchRequests::new(switches, plan.keep_data);
        let run = Arc::new(Self {
            switches,
            requests,
            state: Mutex::new(State {
                machine: WhatIf::new(plan),
                unchanged: Setting::Unchanged,
                changed: None,
                is_paused: false,
                before: at_begin,
                requested_ns: monotonic_ns(),
            }),
            is_over: AtomicBool::new(false),
            keep_data: plan.keep_data,
            at_begin,
            owner: Owner::here(),
        });
        *current = Arc::downgrade(&run);
        Ok(run)
    }

    /// Whether there is nothing left to do.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether each input is trained on.
    pub(crate) fn keeps_data(&self) -> bool {
        self.keep_data
    }

    /// Whether this process began it.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// The loop's requests for batches.
    pub(crate) fn requests(&self) -> &BatchRequests {
        &self.requests
    }

    /// Calls so far that returned an earlier result.
    pub(crate) fn replaced_calls(&self) -> u64 {
        CallCounts::read(self.switches).replaced - self.at_begin.replaced
    }

    /// The loop requests a batch. Sets the switches, and returns the window that has ended, if one has, and the phase of
    /// the batch.
    pub(crate) fn request(&self, entry: &LoopEntry) -> (Option<WhatIfWindow>, Phase) {
        let mut state = lock(&self.state);
        self.extend(&mut state);
        let pipeline = SwitchedPipeline {
            switches: self.switches,
            entry,
            requests: &self.requests,
            before: state.before,
        };
        let turn = state.machine.request(&pipeline);
        let was_paused = std::mem::take(&mut state.is_paused);
        match turn.change {
            Some(change) => self.set_switches(&mut state, change, entry),
            None if was_paused => match &state.changed {
                Some((intervention, stages)) => self.apply(intervention, stages),
                None => self.switches.set_all(state.unchanged),
            },
            None => {}
        }
        let window = turn.window.map(|window| {
            let now = CallCounts::read(self.switches);
            let before = std::mem::replace(&mut state.before, now);
            WhatIfWindow {
                inputs_not_trained_on: now.replaced - before.replaced,
                ..window
            }
        });
        (window, state.machine.phase())
    }

    /// Extends the validity of the change.
    fn extend(&self, state: &mut State) {
        let now = monotonic_ns();
        let step = now.saturating_sub(state.requested_ns);
        state.requested_ns = now;
        let valid = VALID_NS.saturating_add(step.saturating_mul(VALID_STEPS));
        self.switches.extend(now.saturating_add(valid));
    }

    /// Reports what the answers cannot say: what is called and cannot be replaced, and a limit of steps that is too low.
    fn report_limits(&self, state: &State, entry: &LoopEntry) {
        let works = |switch: &Switch| {
            switch.watched_calls.load(Ordering::Relaxed) > 0 && !is_replaceable(switch)
        };
        let stages = self.switches.of_stages();
        let stages = stages.filter(|(_, switch)| works(switch));
        let stages = stages.map(|(name, _)| name).collect();
        let is_kept = is_replaceable(&self.switches.requests);
        let steps_to_settle = state.machine.steps_to_settle();
        let steps = state.machine.most_steps();
        entry.set_what_if_status(|status| {
            status.steps = steps;
            status.steps_to_settle = steps_to_settle;
            if !self.keep_data {
                status.not_replaceable = stages;
                status.batches_not_repeatable = !is_kept;
            }
        });
    }

    fn set_switches(&self, state: &mut State, change: Change, entry: &LoopEntry) {
        state.changed = None;
        state.unchanged = match change {
            Change::Watch => {
                for switch in self.switches.in_use() {
                    switch.reset_counts();
                }
                Setting::Watch
            }
            Change::Restore => {
                self.report_limits(state, entry);
                Setting::Keep
            }
            Change::Finish => Setting::Release,
            Change::Begin {
                intervention,
                stages,
            } => {
                self.apply(&intervention, &stages);
                state.changed = Some((intervention, stages));
                return;
            }
        };
        self.switches.set_all(state.unchanged);
    }

    fn apply(&self, intervention: &Intervention, stages: &[String]) {
        let setting = setting(intervention);
        if intervention.stage.is_none() {
            self.switches.requests.set(setting);
        }
        for (name, switch) in self.switches.of_stages() {
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
        if state.machine.is_over() {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// The loop does not iterate for now: all stages are unchanged until its next request.
    pub(crate) fn pause(&self) {
        set_in_loop_body(false);
        if !self.is_here() || self.is_over() {
            return;
        }
        let mut state = lock(&self.state);
        state.machine.begin_epoch();
        if !std::mem::replace(&mut state.is_paused, true) {
            self.switches.set_all(Setting::Unchanged);
        }
    }
}

/// Pauses the what-if of this process, because another loop begins to iterate.
pub(crate) fn pause_current() {
    let current = CURRENT
        .try_lock()
        .ok()
        .and_then(|current| current.upgrade());
    if let Some(current) = current {
        current.pause();
    }
}

impl Drop for WhatIfRun {
    fn drop(&mut self) {
        if self.is_here() && !self.is_over() {
            self.switches.set_all(Setting::Release);
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

/// The stages of the loop, with the counts of their switches.
struct SwitchedPipeline<'a> {
    switches: &'static Switches,
    entry: &'a LoopEntry,
    requests: &'a BatchRequests,
    /// Counts when the last window ended.
    before: CallCounts,
}

impl Pipeline for SwitchedPipeline<'_> {
    fn stages(&self) -> Vec<SwitchedStage> {
        (self.switches.of_stages())
            .map(|(name, switch)| switched_stage(name, switch, self.entry))
            .collect()
    }

    fn cores(&self) -> u32 {
        let cores = std::thread::available_parallelism();
        cores.map_or(u32::MAX, |cores| {
            u32::try_from(cores.get()).unwrap_or(u32::MAX)
        })
    }

    fn can_repeat_batches(&self) -> bool {
        is_replaceable(&self.switches.requests)
    }

    fn keeps_epoch_length(&self) -> bool {
        self.requests.keeps_length()
    }

    fn batches_held(&self) -> Option<u32> {
        self.entry.batches_held()
    }

    fn behaves_as(&self, intervention: &Intervention) -> bool {
        CallCounts::read(self.switches).are_valid_for(intervention, self.before)
    }
}

/// Whether a kept result can be returned again.
fn is_replaceable(switch: &Switch) -> bool {
    switch.not_replaceable.load(Ordering::Relaxed) == 0 && switch.kept.load(Ordering::Relaxed) > 0
}

/// A stage as it was during the warm-up.
fn switched_stage(name: String, switch: &Switch, entry: &LoopEntry) -> SwitchedStage {
    SwitchedStage {
        proposed_calls: entry.proposed_calls(&name),
        name,
        is_replaceable: is_replaceable(switch),
        is_delayable: switch.not_delayable.load(Ordering::Relaxed) == 0,
        calls_at_once: switch.most_active.load(Ordering::Relaxed),
        calls: switch.watched_calls.load(Ordering::Relaxed),
        busy_ns: switch.watched_ns.load(Ordering::Relaxed),
    }
}
