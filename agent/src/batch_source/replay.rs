//! Delivers live batches first, then repeats a few of them: mode `replay`, `CacheDataLoader` and
//! `cache_iterator`.
//!
//! The order of batches within one iteration is that of SPDL's `cache_iterator` (SPDL 0.8), with two
//! differences, which avoid a wrong number or an endless run:
//!
//! - The cache outlives the epoch. A later epoch replays from the first cached batch, or continues live if
//!   the cache is not complete.
//! - If a source has a length, an epoch ends after that many batches, unless `stop_after` is set. An epoch
//!   that is still live ends where its source ends, because a length may be a guess.

use thiserror::Error;

use super::{DEFAULT_CACHES, Decision, EpochProgress};

/// How many batches to cache, and when to replay them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPlan {
    /// Batches to cache. At least 1.
    num_caches: usize,
    /// Live batches before the first cached one. At least `num_caches`.
    return_caches_after: u64,
    /// Number of batches in an epoch, live and cached. At least `return_caches_after`.
    stop_after: Option<u64>,
}

/// An invalid plan, which SPDL refuses too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PlanError {
    /// There would be nothing to replay.
    #[error(
        "`num_caches` is not a positive number: `{given}` ({usual} is usual)",
        usual = DEFAULT_CACHES
    )]
    NoCaches {
        /// The given number.
        given: i64,
    },
    /// Replay would begin before the cache is full.
    #[error(
        "`return_caches_after` is less than `num_caches`: `{given}` < `{num_caches}` (the cache \
         is filled from live batches; raise `return_caches_after`)"
    )]
    TurnsTooEarly {
        /// The given number.
        given: i64,
        /// The number of batches to cache.
        num_caches: i64,
    },
    /// The epoch would end before the cache is full. That includes `stop_after=0`, which does not mean
    /// "no limit".
    #[error(
        "`stop_after` is less than `num_caches`: `{given}` < `{num_caches}` (leave it out for no \
         limit, or raise it)"
    )]
    StopsBeforeFull {
        /// The given number.
        given: i64,
        /// The number of batches to cache.
        num_caches: i64,
    },
    /// The epoch would end before replay begins.
    #[error(
        "`stop_after` is less than `return_caches_after`: `{given}` < `{return_caches_after}` (no \
         batch would be replayed; raise `stop_after`)"
    )]
    StopsBeforeReplay {
        /// The given number.
        given: i64,
        /// The number of live batches before replay.
        return_caches_after: i64,
    },
}

impl ReplayPlan {
    /// A plan from SPDL's arguments. `return_caches_after` is `num_caches` by default.
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
    pub fn return_caches_after(&self) -> u64 {
        self.return_caches_after
    }
}

/// Effect of the end of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The epoch ends too: the source has a length, or nothing was cached.
    Epoch,
    /// The epoch continues from the cache.
    Replay {
        /// Whether the source had fewer batches than should come before replay.
        early: bool,
    },
}

/// Decides the source of each batch of one wrapped loader, over all its epochs.
#[derive(Debug, Clone)]
pub struct Replay {
    plan: ReplayPlan,
    /// Delivered live batches, over all epochs.
    live: u64,
    /// Batches in the cache.
    cached: usize,
    /// Whether the source is no longer used.
    turned: bool,
}

impl Replay {
    /// A state machine for one loader.
    pub fn new(plan: ReplayPlan) -> Self {
        Self {
            plan,
            live: 0,
            cached: 0,
            turned: false,
        }
    }

    /// The plan it follows.
    pub fn plan(&self) -> ReplayPlan {
        self.plan
    }

    /// Live batches delivered so far, over all epochs.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// The source of the next batch of `epoch`. A cached batch counts as delivered.
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

    /// The rest of `epoch`, if all of it comes from the cache: the index of its first batch, and the number
    /// of batches. They count as delivered.
    pub fn request_rest(&self, epoch: &mut EpochProgress) -> Option<(usize, u64)> {
        if !self.releases_source() || self.cached == 0 || epoch.ended {
            return None;
        }
        let first = usize::try_from(epoch.replayed() % self.cached as u64).ok()?;
        let left = epoch.left_of(self.plan.stop_after.or(epoch.length()));
        epoch.replay_all(left);
        Some((first, left))
    }

    /// Notes that a batch from the source was delivered. If it returns a slot, the caller stores the batch
    /// there.
    pub fn delivered(&mut self, epoch: &mut EpochProgress) -> Option<usize> {
        self.live += 1;
        epoch.deliver();
        let slot = self.cached;
        (slot < self.plan.num_caches).then(|| {
            self.cached += 1;
            slot
        })
    }

    /// Notes that the cache lost batches and holds `cached`. Later live batches replace them, as long as
    /// there are any.
    pub fn keep_only(&mut self, cached: usize) {
        self.cached = self.cached.min(cached);
    }

    /// Notes that the source of `epoch` is exhausted.
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

    /// Whether the source is no longer used, so that the caller may release it.
    pub fn releases_source(&self) -> bool {
        self.turned || self.cached > 0 && self.live >= self.plan.return_caches_after
    }
}

#[cfg(test)]
mod tests;
