//! Live batches first, then the same few for ever: mode `replay`, `CacheDataLoader` and
//! `cache_iterator`.
//!
//! The order of batches within one iteration is that of SPDL's `cache_iterator` (SPDL 0.8). Two
//! things differ, both where SPDL's way costs the user a wrong number or an endless run:
//!
//! - The cache outlives the epoch. A later epoch does not warm up again: it replays from the first
//!   cached batch, or goes on live where the cache is not complete.
//! - A source with a length keeps it. An epoch ends after that many batches, unless `stop_after`
//!   says otherwise. An epoch that is still live ends where its source ends, since a length may be
//!   a guess.

use thiserror::Error;

use super::{Decision, EpochProgress};

/// How many batches to cache, and when to turn to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPlan {
    /// Batches to cache. At least 1.
    num_caches: usize,
    /// Live batches before the first cached one. At least `num_caches`.
    return_caches_after: u64,
    /// Batches an epoch holds, live and cached together. At least `return_caches_after`.
    stop_after: Option<u64>,
}

/// A plan that makes no sense, as SPDL refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PlanError {
    /// There would be nothing to replay.
    #[error("`num_caches` is not a positive number: `{given}` (10 is usual)")]
    NoCaches {
        /// What was given.
        given: i64,
    },
    /// Replay would begin before the cache is full.
    #[error(
        "`return_caches_after` is less than `num_caches`: `{given}` < `{num_caches}` (the cache \
         is filled from live batches; raise `return_caches_after`)"
    )]
    TurnsTooEarly {
        /// What was given.
        given: i64,
        /// The batches to cache.
        num_caches: i64,
    },
    /// The epoch would end before the cache is full. `stop_after=0` is one of these, and does not
    /// mean "no limit".
    #[error(
        "`stop_after` is less than `num_caches`: `{given}` < `{num_caches}` (leave it out for no \
         limit, or raise it)"
    )]
    StopsBeforeFull {
        /// What was given.
        given: i64,
        /// The batches to cache.
        num_caches: i64,
    },
    /// The epoch would end before replay begins.
    #[error(
        "`stop_after` is less than `return_caches_after`: `{given}` < `{return_caches_after}` (no \
         batch would be replayed; raise `stop_after`)"
    )]
    StopsBeforeReplay {
        /// What was given.
        given: i64,
        /// The live batches that come first.
        return_caches_after: i64,
    },
}

impl ReplayPlan {
    /// A plan from SPDL's arguments. `return_caches_after` is `num_caches` where not given.
    ///
    /// # Errors
    ///
    /// [`PlanError`] for the combinations that SPDL refuses with a `ValueError`.
    pub fn new(
        num_caches: i64,
        return_caches_after: Option<i64>,
        stop_after: Option<i64>,
    ) -> Result<Self, PlanError> {
        let caches = usize::try_from(num_caches)
            .ok()
            .filter(|&caches| caches > 0)
            .ok_or(PlanError::NoCaches { given: num_caches })?;
        if let Some(given) = return_caches_after.filter(|&given| given < num_caches) {
            return Err(PlanError::TurnsTooEarly { given, num_caches });
        }
        if let Some(given) = stop_after {
            if given < num_caches {
                return Err(PlanError::StopsBeforeFull { given, num_caches });
            }
            if let Some(return_caches_after) = return_caches_after.filter(|&after| given < after) {
                return Err(PlanError::StopsBeforeReplay {
                    given,
                    return_caches_after,
                });
            }
        }
        Ok(Self {
            num_caches: caches,
            return_caches_after: return_caches_after.unwrap_or(num_caches).unsigned_abs(),
            stop_after: stop_after.map(i64::unsigned_abs),
        })
    }

    /// Live batches before the first cached one.
    #[must_use]
    pub fn return_caches_after(&self) -> u64 {
        self.return_caches_after
    }
}

/// What the end of the source means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The epoch ends with it: the source has a length of its own, or nothing was cached.
    Epoch,
    /// The epoch goes on from the cache.
    Replay {
        /// Whether the source gave fewer batches than should come before replay.
        early: bool,
    },
}

/// Where the batches of one wrapped loader come from, over all its epochs.
#[derive(Debug, Clone)]
pub struct Replay {
    plan: ReplayPlan,
    /// Live batches handed out, over all epochs.
    live: u64,
    /// Batches in the cache.
    cached: usize,
    /// Whether the source is done with for good.
    turned: bool,
}

impl Replay {
    /// A machine for one loader.
    #[must_use]
    pub fn new(plan: ReplayPlan) -> Self {
        Self {
            plan,
            live: 0,
            cached: 0,
            turned: false,
        }
    }

    /// The plan it follows.
    #[must_use]
    pub fn plan(&self) -> ReplayPlan {
        self.plan
    }

    /// Live batches handed out so far, over all epochs.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Where the next batch of `epoch` comes from. A cached one counts as handed out.
    pub fn request(&self, epoch: &mut EpochProgress) -> Decision {
        if epoch.ended || epoch.has_reached(self.plan.stop_after) {
            return Decision::End;
        }
        if !self.releases_source() {
            return Decision::Source;
        }
        if self.cached == 0 || epoch.has_reached(self.plan.stop_after.or(epoch.length())) {
            return Decision::End;
        }
        let index = epoch.replay() % self.cached as u64;
        Decision::Cached(usize::try_from(index).unwrap_or_default())
    }

    /// The rest of `epoch`, where all of it comes from the cache: the index of its first batch, and how
    /// many there are. They count as handed out.
    pub fn request_rest(&self, epoch: &mut EpochProgress) -> Option<(usize, u64)> {
        if !self.releases_source() || self.cached == 0 || epoch.ended {
            return None;
        }
        let first = usize::try_from(epoch.replayed() % self.cached as u64).ok()?;
        let left = epoch.left_of(self.plan.stop_after.or(epoch.length()));
        epoch.replay_all(left);
        Some((first, left))
    }

    /// The source gave a batch, and it is handed out. `Some(slot)`: keep it there.
    pub fn delivered(&mut self, epoch: &mut EpochProgress) -> Option<usize> {
        self.live += 1;
        epoch.deliver();
        let slot = self.cached;
        (slot < self.plan.num_caches).then(|| {
            self.cached += 1;
            slot
        })
    }

    /// The cache lost batches: `cached` are left. Later live batches take their place, as long as
    /// there are any.
    pub fn keep_only(&mut self, cached: usize) {
        self.cached = self.cached.min(cached);
    }

    /// The source of `epoch` has no more.
    pub fn source_ended(&mut self, epoch: &mut EpochProgress) -> Ended {
        let keeps_length = self.plan.stop_after.is_none() && epoch.length().is_some();
        if self.cached == 0 || keeps_length {
            epoch.ended = true;
            return Ended::Epoch;
        }
        let early = self.live < self.plan.return_caches_after;
        self.turned = true;
        Ended::Replay { early }
    }

    /// Whether the source is never asked again, so that the caller may let go of it.
    #[must_use]
    pub fn releases_source(&self) -> bool {
        self.turned || self.cached > 0 && self.live >= self.plan.return_caches_after
    }
}

#[cfg(test)]
mod tests;
