//! How long the probe looks, counted in steps.
//!
//! The defaults suit steps of 10 to 100 ms and a user who wants a number in a minute or two. A
//! loop that settles quickly is done in 600 to 1000 steps; one whose queue drains slowly, or whose
//! steps vary much, takes up to [`ProbePlan::total_steps`].

use thiserror::Error;

/// Deepest queue assumed where the loader does not say, in batches.
const UNKNOWN_DEPTH: u32 = 64;
/// Batches a loader holds beyond its queues: each thread may hold a finished one.
const IN_HAND: u32 = 16;
/// Steps a window needs, at least, to say something.
const LEAST_LIVE: u32 = 32;
/// The same for a short replay window.
const LEAST_REPLAY: u32 = 20;
/// The same for the last replay window.
const LEAST_LAST_REPLAY: u32 = 48;
/// The same for settling.
const LEAST_SETTLE: u32 = 16;
/// Fewest live-and-replay pairs.
const LEAST_CYCLES: u32 = 2;

/// How long each part of the probe lasts, in steps.
///
/// Longer windows narrow the interval; longer budgets let slower loops settle. Both make the probe
/// longer, and `replay` and `last_replay` make more steps train on repeated batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePlan {
    /// First steps of the loop that never count: compilation, allocation, caches.
    pub warmup: u32,
    /// Longest time the first window waits for the loop to settle, `warmup` included. A loop that
    /// never waits uses all of it, since its queue may still be draining.
    pub warmup_budget: u32,
    /// Pairs of a live and a replay window. At least 2.
    pub cycles: u32,
    /// Settled steps of a live window.
    pub live: u32,
    /// Steps that may be added to the last live window where the steps vary much.
    pub extra_live: u32,
    /// Steps of a replay window but the last. Short, since the loader refills its queue meanwhile
    /// and the loop must drain it again.
    pub replay: u32,
    /// Steps of the last replay window. Long, so that the loader has filled its queue and is idle
    /// in most of it; nothing need settle afterwards.
    pub last_replay: u32,
    /// Longest the last replay window becomes where the loader is slow to fill its queue.
    pub last_replay_budget: u32,
    /// Longest time a live window waits for the loop to settle after a replay.
    pub settle_budget: u32,
    /// Batches held for replay. Each is kept alive until the probe ends.
    pub num_caches: u32,
    /// Batches the loader may hold ready, where it says.
    pub prefetch_depth: Option<u32>,
    /// Whether windows end when the loop has settled and enough is known. Where several ranks must
    /// switch at the same step, the schedule depends on this plan alone.
    pub adaptive: bool,
    /// Most steps the probe may take.
    pub limit: u32,
}

/// A probe of so few steps gives no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "`probe_steps` is too small: `{given}` (a probe needs at least {least} steps to give a number)"
)]
pub struct PlanTooShort {
    /// What was given.
    pub given: u64,
    /// The least that would do.
    pub least: u64,
}

impl Default for ProbePlan {
    fn default() -> Self {
        Self::for_loader(None, 1)
    }
}

impl ProbePlan {
    /// A plan for a loader that holds up to `prefetch_depth` batches ready (`None`: it does not
    /// say) and a run of `world_size` processes.
    #[must_use]
    pub fn for_loader(prefetch_depth: Option<u32>, world_size: u32) -> Self {
        let held = prefetch_depth
            .unwrap_or(UNKNOWN_DEPTH)
            .saturating_add(IN_HAND);
        let mut plan = Self {
            warmup: 20,
            // A queue of d batches takes d / (1 - compute/load) steps to drain: 24 d finds every
            // ratio up to 0.96.
            warmup_budget: prefetch_depth.map_or(500, |depth| {
                depth.saturating_add(4).saturating_mul(24).clamp(96, 640)
            }),
            cycles: 4,
            live: 64,
            extra_live: 800,
            replay: 24,
            last_replay: 128,
            last_replay_budget: 512,
            settle_budget: 300,
            num_caches: 10,
            prefetch_depth,
            adaptive: true,
            limit: u32::MAX,
        };
        if world_size > 1 {
            plan.adaptive = false;
            plan.cycles = 3;
            plan.warmup_budget = plan.warmup_budget.min(320);
            plan.settle_budget = held.saturating_mul(2).clamp(64, 192);
            plan.extra_live = 64;
            plan.last_replay = held.saturating_mul(2).saturating_add(64).clamp(128, 256);
            plan.last_replay_budget = plan.last_replay;
        }
        plan.limit = plan.unlimited();
        plan
    }

    /// The same plan, shortened so that the whole probe takes at most `probe_steps`; never
    /// lengthened.
    ///
    /// # Errors
    ///
    /// [`PlanTooShort`] where no number could come of so few steps.
    pub fn with_total(mut self, probe_steps: u64) -> Result<Self, PlanTooShort> {
        let least = Self {
            warmup_budget: self.warmup + LEAST_LIVE,
            cycles: LEAST_CYCLES,
            live: LEAST_LIVE,
            extra_live: 0,
            replay: LEAST_REPLAY,
            last_replay: LEAST_LAST_REPLAY,
            last_replay_budget: LEAST_LAST_REPLAY,
            settle_budget: LEAST_SETTLE,
            ..self
        };
        let too_short = PlanTooShort {
            given: probe_steps,
            least: least.unlimited().into(),
        };
        if probe_steps < too_short.least {
            return Err(too_short);
        }
        self.limit = self
            .limit
            .min(u32::try_from(probe_steps).unwrap_or(u32::MAX));
        // The schedule is made of what remains; shorten its parts until they fit.
        while self.unlimited() > self.limit
            && self
                != (Self {
                    limit: self.limit,
                    ..least
                })
        {
            let shorter = |part: u32, least: u32| (part - part.div_ceil(16)).max(least.min(part));
            self.warmup_budget = shorter(self.warmup_budget, least.warmup_budget);
            self.live = shorter(self.live, least.live);
            self.extra_live = shorter(self.extra_live, 0);
            self.replay = shorter(self.replay, least.replay);
            self.last_replay = shorter(self.last_replay, least.last_replay);
            self.last_replay_budget =
                shorter(self.last_replay_budget, least.last_replay_budget).max(self.last_replay);
            self.settle_budget = shorter(self.settle_budget, least.settle_budget);
            if self.settle_budget < 2 * self.live && self.cycles > LEAST_CYCLES {
                self.cycles -= 1;
            }
        }
        Ok(self)
    }

    /// Most steps the probe takes. Exact where the schedule is fixed.
    #[must_use]
    pub fn total_steps(&self) -> u64 {
        self.limit.into()
    }

    /// Most steps that are served from the cache. Exact where the schedule is fixed.
    #[must_use]
    pub fn replayed_steps(&self) -> u64 {
        u64::from(self.short_replays()) * u64::from(self.replay)
            + u64::from(self.last_replay.max(self.last_replay_budget))
    }

    /// Replay windows before the last.
    pub(super) fn short_replays(&self) -> u32 {
        self.cycles.saturating_sub(1)
    }

    /// Batches to fill until the loader is idle, and how many steps of replay that takes where a
    /// step at the floor is `ratio` of a live one.
    pub(super) fn steps_to_fill(&self, ratio: f64) -> f64 {
        let held = self
            .prefetch_depth
            .unwrap_or(UNKNOWN_DEPTH)
            .saturating_add(IN_HAND);
        f64::from(held) / ratio.clamp(0.1, 1.0)
    }

    /// The sum of all budgets.
    fn unlimited(&self) -> u32 {
        let later = self
            .replay
            .saturating_add(self.settle_budget)
            .saturating_add(self.live);
        self.warmup_budget
            .saturating_add(self.live)
            .saturating_add(later.saturating_mul(self.short_replays()))
            .saturating_add(self.extra_live)
            .saturating_add(self.last_replay.max(self.last_replay_budget))
    }
}
