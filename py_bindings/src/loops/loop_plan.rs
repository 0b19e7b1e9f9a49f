//! The mode of a loop, and the plan of its probe, replay or what-if, from the options that Python passes.

use std::fmt::Display;

use headspace_agent::batch_source::{
    DEFAULT_CACHES, Probe, ProbePlan, Replay, ReplayPlan, WhatIfPlan,
};
use headspace_agent::model::Mode;
use headspace_agent::model::record::LoaderRecord;
use headspace_agent::notice::{Afterwards, ProbeFacts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::loops::batch_cache::StateMachine;

/// The options of a loop: a mapping. Only `mode` is required.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the user"
)]
pub(crate) struct PlanOptions {
    /// `measure`, `probe`, `replay` or `whatif`.
    mode: String,
    /// Batches that a probe or a replay repeats.
    #[pyo3(default = i64::from(DEFAULT_CACHES))]
    num_caches: i64,
    /// Live batches before a replay.
    #[pyo3(default)]
    return_caches_after: Option<i64>,
    /// Batches after which an epoch of a replay ends.
    #[pyo3(default)]
    stop_after: Option<i64>,
    /// Most steps of a probe.
    #[pyo3(default)]
    probe_steps: Option<u64>,
    /// Most steps of a what-if.
    #[pyo3(default)]
    what_if_steps: Option<u64>,
    /// Whether a what-if trains on every input.
    #[pyo3(default)]
    keep_data: bool,
    /// Whether the loop ends with its probe.
    #[pyo3(default)]
    stop_after_probe: bool,
    /// Whether an epoch with a probe or a what-if delivers every batch of its loader.
    #[pyo3(default)]
    exactly_once: bool,
    /// Whether only the program ends the loop: a replay continues beyond the loader's length, and no probe
    /// stops the loop.
    #[pyo3(default)]
    endless: bool,
    /// Whether a replay keeps the source, which it no longer reads.
    #[pyo3(default)]
    keep_source: bool,
    /// How many processes train together. Their probes must switch at the same steps.
    #[pyo3(default = 1)]
    world_size: u32,
}

/// The mode of a loop, with the plan of its probe, replay or what-if.
pub(crate) struct Plan {
    options: PlanOptions,
    kind: Kind,
}

enum Kind {
    Measure,
    Replay(ReplayPlan),
    Probe(ProbePlan),
    WhatIf(WhatIfPlan),
}

impl Plan {
    /// A plan for a loader that holds up to `prefetch_depth` batches ready.
    ///
    /// # Errors
    ///
    /// `ValueError` if `mode` is not one of the four modes, or the numbers contradict each other.
    pub(crate) fn new(options: PlanOptions, prefetch_depth: Option<u32>) -> PyResult<Self> {
        let mode = Mode::named(&options.mode).ok_or_else(|| {
            let other = &options.mode;
            PyValueError::new_err(format!(
                "`mode` is not a mode: `{other}` (write `measure`, `probe`, `replay` or `whatif`)"
            ))
        })?;
        let kind = match mode {
            Mode::Measure => Kind::Measure,
            Mode::Replay => {
                let plan = ReplayPlan::new(
                    options.num_caches,
                    options.return_caches_after,
                    options.stop_after,
                );
                Kind::Replay(plan.map_err(value_error)?)
            }
            Mode::Probe => {
                let caches = u64::try_from(options.num_caches).unwrap_or_default();
                let plan = ProbePlan::for_loader(prefetch_depth, options.world_size);
                let plan = plan.with_caches(caches);
                Kind::Probe(match options.probe_steps {
                    None => plan,
                    Some(steps) => plan.with_total(steps).map_err(value_error)?,
                })
            }
            Mode::WhatIf => {
                let plan = WhatIfPlan {
                    keep_data: options.keep_data,
                    ..WhatIfPlan::for_loader(prefetch_depth, options.world_size)
                };
                Kind::WhatIf(match options.what_if_steps {
                    None => plan,
                    Some(steps) => plan.with_limit(steps).map_err(value_error)?,
                })
            }
        };
        Ok(Self { options, kind })
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.kind {
            Kind::Measure => Mode::Measure,
            Kind::Replay(_) => Mode::Replay,
            Kind::Probe(_) => Mode::Probe,
            Kind::WhatIf(_) => Mode::WhatIf,
        }
    }

    /// Whether a replay keeps the source, which it no longer reads.
    pub(crate) fn keeps_source(&self) -> bool {
        self.options.keep_source
    }

    /// Whether an epoch with repeated batches has the loader's length.
    pub(crate) fn keeps_length(&self) -> bool {
        match self.kind {
            Kind::Probe(_) | Kind::WhatIf(_) => !self.options.exactly_once,
            Kind::Measure | Kind::Replay(_) => !self.options.endless,
        }
    }

    /// The plan of the what-if. None in the other modes.
    pub(crate) fn what_if(&self) -> Option<WhatIfPlan> {
        match self.kind {
            Kind::WhatIf(plan) => Some(plan),
            _ => None,
        }
    }

    /// A new state machine, which decides the source of each batch. None if every batch comes from the source.
    pub(crate) fn state_machine(&self) -> Option<StateMachine> {
        match &self.kind {
            Kind::Measure | Kind::WhatIf(_) => None,
            Kind::Replay(plan) => Some(StateMachine::Replay {
                replay: Replay::new(*plan),
                replays_only: false,
            }),
            Kind::Probe(plan) => {
                let probe = Probe::new(*plan, self.options.stop_after_probe);
                Some(StateMachine::Probe(Box::new(probe)))
            }
        }
    }

    /// The facts of the notice at the beginning of a probe. None in the other modes.
    pub(crate) fn probe_facts(&self, loader: &LoaderRecord) -> Option<ProbeFacts> {
        let Kind::Probe(plan) = &self.kind else {
            return None;
        };
        Some(ProbeFacts {
            total: plan.total_steps(),
            usual: plan.usual_steps(),
            replayed: plan.replayed_steps(),
            cached: plan.num_caches,
            has_ranks: !plan.adaptive,
            epoch: loader.batches,
            exactly_once: self.options.exactly_once,
            afterwards: match (self.options.stop_after_probe, self.options.endless) {
                (true, _) => Afterwards::Ends,
                (false, true) => Afterwards::OnlyTrainsOn,
                (false, false) => Afterwards::TrainsOn,
            },
            from: loader.options_from.unwrap_or_default(),
        })
    }
}

fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
