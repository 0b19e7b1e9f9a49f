//! What a loop replays, and when.

use headspace_agent::loader::{Probe, ProbePlan, Replay, ReplayPlan};
use headspace_agent::model::Mode;
use headspace_agent::model::record::LoaderRecord;
use headspace_agent::notice::{Afterwards, ProbeFacts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::loops::batch_cache::Machine;

/// The plan as Python gives it: a mapping. Only the mode must be there.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the user"
)]
pub(crate) struct GivenPlan {
    /// `measure`, `probe` or `replay`.
    mode: String,
    /// Batches that a probe or a replay repeats.
    #[pyo3(default = DEFAULT_CACHES)]
    num_caches: i64,
    /// Live batches before a replay.
    #[pyo3(default)]
    return_caches_after: Option<i64>,
    /// Batches after which an epoch of a replay ends.
    #[pyo3(default)]
    stop_after: Option<i64>,
    /// Most steps that a probe may take.
    #[pyo3(default)]
    probe_steps: Option<u64>,
    /// Whether the loop ends with its probe.
    #[pyo3(default)]
    stop_after_probe: bool,
    /// Whether a probed epoch delivers every batch of its loader.
    #[pyo3(default)]
    exactly_once: bool,
    /// Whether only the program ends it: a replay goes on beyond the loader's length, and no probe
    /// stops it.
    #[pyo3(default)]
    endless: bool,
    /// Whether a replay keeps the source, which it no longer reads.
    #[pyo3(default)]
    keep_source: bool,
    /// How many processes train together: their probes must switch at the same steps.
    #[pyo3(default = 1)]
    world_size: u32,
}

/// As `_settings.DEFAULT_CACHES`.
const DEFAULT_CACHES: i64 = 10;

/// What a loop replays, and when.
pub(crate) struct Plan {
    kind: Kind,
    /// Whether only the program ends it.
    endless: bool,
    pub(crate) keep_source: bool,
}

enum Kind {
    Measure,
    Replay(ReplayPlan),
    Probe {
        plan: ProbePlan,
        stop_after: bool,
        exactly_once: bool,
    },
}

impl Plan {
    /// A plan for a loader that holds up to `prefetch_depth` batches ready.
    ///
    /// # Errors
    ///
    /// `ValueError` if the mode is none of the three, or the numbers make no sense together.
    pub(crate) fn new(given: &GivenPlan, prefetch_depth: Option<u32>) -> PyResult<Self> {
        let kind = match given.mode.as_str() {
            "measure" => Kind::Measure,
            "replay" => {
                let plan = ReplayPlan::new(
                    given.num_caches,
                    given.return_caches_after,
                    given.stop_after,
                );
                Kind::Replay(plan.map_err(|error| PyValueError::new_err(error.to_string()))?)
            }
            "probe" => Kind::Probe {
                plan: probe_plan(given, prefetch_depth)?,
                stop_after: given.stop_after_probe,
                exactly_once: given.exactly_once,
            },
            other => {
                return Err(PyValueError::new_err(format!(
                    "`mode` is not a mode: `{other}` (write `measure`, `probe` or `replay`)"
                )));
            }
        };
        Ok(Self {
            kind,
            endless: given.endless,
            keep_source: given.keep_source,
        })
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.kind {
            Kind::Measure => Mode::Measure,
            Kind::Replay(_) => Mode::Replay,
            Kind::Probe { .. } => Mode::Probe,
        }
    }

    /// Whether an epoch with repeated batches has as many batches as the loader says.
    pub(crate) fn keeps_length(&self) -> bool {
        match self.kind {
            Kind::Probe { exactly_once, .. } => !exactly_once,
            Kind::Measure | Kind::Replay(_) => !self.endless,
        }
    }

    /// What decides about each batch, made at the first epoch. None in mode `measure`.
    pub(crate) fn machine(&self) -> Option<Machine> {
        match &self.kind {
            Kind::Measure => None,
            Kind::Replay(plan) => Some(Machine::Replay(Replay::new(*plan))),
            Kind::Probe {
                plan, stop_after, ..
            } => Some(Machine::Probe(Box::new(Probe::new(*plan, *stop_after)))),
        }
    }

    /// What the notice of a beginning probe says. None in the other modes.
    pub(crate) fn probe_facts(&self, loader: &LoaderRecord) -> Option<ProbeFacts> {
        let Kind::Probe {
            plan,
            stop_after,
            exactly_once,
        } = &self.kind
        else {
            return None;
        };
        Some(ProbeFacts {
            total: plan.total_steps(),
            usual: plan.usual_steps(),
            replayed: plan.replayed_steps(),
            cached: plan.num_caches,
            has_ranks: !plan.adaptive,
            epoch: loader.batches,
            exactly_once: *exactly_once,
            afterwards: match (*stop_after, self.endless) {
                (true, _) => Afterwards::Ends,
                (false, true) => Afterwards::OnlyTrainsOn,
                (false, false) => Afterwards::TrainsOn,
            },
            from: loader.options_from.unwrap_or_default(),
        })
    }
}

fn probe_plan(given: &GivenPlan, prefetch_depth: Option<u32>) -> PyResult<ProbePlan> {
    let caches = u64::try_from(given.num_caches).unwrap_or_default();
    let plan = ProbePlan::for_loader(prefetch_depth, given.world_size).with_caches(caches);
    match given.probe_steps {
        None => Ok(plan),
        Some(steps) => plan
            .with_total(steps)
            .map_err(|error| PyValueError::new_err(error.to_string())),
    }
}
