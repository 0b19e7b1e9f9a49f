//! The sections about the step, the floor and the savings.

use super::super::section::{Block, Fact, Quantity, Section, SectionId};
use super::super::units::{duration_ms, percent, rate_of, signed_ms, steps};
use super::Verdict;
use crate::model::Mode;
use crate::model::record::{FindingCode, Role, SummaryRecord};
use crate::statistics::steady_state::{ENOUGH_STEPS, LEAST_WARMUP};

/// Below this share of the step, in percent, a loop hardly waits for data.
const HARDLY_WAITS_PCT: f64 = 1.0;

/// The headspace and half of its interval, if a probe measured it: `66.7 % ± 1.1`.
pub fn headspace_text(s: &SummaryRecord) -> Option<String> {
    let headspace = s.headspace_pct?;
    let half = |(low, high): (f64, f64)| percent((high - headspace).max(headspace - low), 1);
    let error = s
        .headspace_ci_pct
        .map(|interval| format!(" ± {}", half(interval)));
    Some(format!(
        "{} %{}",
        percent(headspace, 1),
        error.unwrap_or_default()
    ))
}

/// The throughput in samples, and in the user's unit: `128 samples/s, 4,096 frames/s`.
fn throughput(s: &SummaryRecord) -> Option<String> {
    let samples = s
        .throughput_samples_per_s
        .map(|per_s| rate_of(per_s, "samples"));
    let units =
        (s.throughput_units_per_s.zip(s.unit.as_deref())).map(|(per_s, unit)| rate_of(per_s, unit));
    let rates: Vec<String> = samples.into_iter().chain(units).collect();
    (!rates.is_empty()).then(|| rates.join(", "))
}

/// The wait for data, its share of the step, and how much of it faster loading would not shorten.
fn wait(s: &SummaryRecord, wait_ms: f64) -> Fact {
    let share = s.wait_pct.map(|pct| format!("{} %", percent(pct, 0)));
    let blocked = s.wait_blocked_ms.map(|ms| {
        let blocked = duration_ms(ms);
        format!("of which {blocked} for another thread or a device")
    });
    let note: Vec<String> = share.clone().into_iter().chain(blocked).collect();
    let fact = Fact::measured(Quantity::Wait, duration_ms(wait_ms))
        .detail(share.map_or_else(String::new, |share| format!("{share} of the step")));
    if note.is_empty() {
        fact
    } else {
        fact.note(format!("({})", note.join(", ")))
    }
}

/// The words after the upper bound: also the bound for a loader that waits for the device, which free data would not
/// shorten.
fn of_the_step(s: &SummaryRecord, bound_pct: f64, step_ms: f64) -> String {
    match s.wait_blocked_ms {
        Some(blocked_ms) => {
            let rest_pct = (bound_pct - 100.0 * blocked_ms / step_ms).max(0.0);
            format!(
                "of the step, or {} % if the loader waits for the device",
                percent(rest_pct, 1)
            )
        }
        None => "of the step".to_owned(),
    }
}

/// Why the floor and the wait of a loop are unknown, and how to measure them.
fn unknown_floor(s: &SummaryRecord) -> String {
    let which = match s.loop_role {
        Some(Role::Background) => "the training loop",
        Some(Role::Training | Role::Evaluation) | None => "this loop",
    };
    let why = if s.item_wait_ms.is_some() {
        format!("the wait of {which} is only estimated, from sampled stacks")
    } else {
        format!("headspace did not see what {which} waits for")
    };
    format!(
        "Unknown: {why}. Wrap what it iterates in headspace.wrap(...), or name the function \
         that returns a batch: headspace run --batch-from train:get_batch"
    )
}

/// By how much the run could become faster, at most.
fn speedup(times: f64) -> String {
    match format!("{times:.1}").as_str() {
        "1.0" => "almost nothing to gain".to_owned(),
        rounded => format!("up to {rounded}x faster"),
    }
}

impl Verdict<'_> {
    pub(super) fn step(&self) -> Option<Section> {
        let s = self.summary;
        if s.steps == 0 {
            return None;
        }
        let Some(step) = s.steady_step_mean_ms else {
            let are = if s.steps == 1 { "is" } else { "are" };
            return Some(Section::sentence(
                SectionId::Step,
                format!(
                    "{} {are} too few. The first {LEAST_WARMUP} or more are warm-up. Train for at \
                     least {} steps.",
                    steps(s.steps),
                    ENOUGH_STEPS + 1
                ),
            ));
        };
        let tail = match (s.step_p95_ms, s.step_p99_ms) {
            (Some(p95), Some(p99)) => format!("p95 {}, p99 {}", duration_ms(p95), duration_ms(p99)),
            _ => String::new(),
        };
        let rates = throughput(s);
        let in_parentheses = rates.as_ref().map(|rates| format!("({rates})"));
        let step = Fact::measured(Quantity::Step, duration_ms(step))
            .note(in_parentheses.unwrap_or_default())
            .detail(tail);
        let mut facts = vec![step];
        facts.extend(s.wait_ms.map(|wait_ms| wait(s, wait_ms)));
        if let Some(compute) = s.compute_ms {
            facts.push(
                Fact::measured(Quantity::Compute, duration_ms(compute))
                    .detail(rates.unwrap_or_default()),
            );
        }
        Some(Section::facts(SectionId::Step, facts))
    }

    pub(super) fn floor(&self) -> Option<Section> {
        let s = self.summary;
        let step = s.steady_step_mean_ms?;
        if self.is_replay() {
            if s.replayed_steps == 0 {
                let words = "Not measured: no step was on a cached batch yet.";
                return Some(Section::sentence(SectionId::Floor, words.to_owned()));
            }
            let floor = Fact::measured(
                Quantity::Floor,
                duration_ms(s.floor_step_ms.unwrap_or(step)),
            )
            .detail("the steps on cached batches");
            let words = format!(
                "The step is the floor: only the steps on cached batches count. To know what free \
                 data would gain, compare with a run without replay, or run a probe: {}",
                self.way_to_probe()
            );
            return Some(Section::facts(SectionId::Floor, vec![floor]).and(Block::Sentence(words)));
        }
        if let (Some(floor), Some(headspace)) = (s.floor_step_ms, s.headspace_pct) {
            let facts = self.measured_floor(floor, headspace);
            return Some(Section::facts(SectionId::Floor, facts));
        }
        let bound = s.headspace_upper_bound_pct.map(|pct| {
            Fact::new(
                "less waiting saves",
                format!("at most {} %", percent(pct, 1)),
            )
            .note(of_the_step(s, pct, step))
            .detail(
                "an upper bound on what less waiting saves; only a probe measures the headspace",
            )
        });
        if let Some(why) = self.refusal() {
            let section = Section::sentence(SectionId::Floor, format!("Not measured: {why}"));
            return Some(match bound {
                Some(bound) => section.and(Block::Facts(vec![bound])).and(Block::Sentence(
                    "The upper bound covers only the wait. How much the loader slows the model's \
                     own code (contention) is not known."
                        .to_owned(),
                )),
                None => section,
            });
        }
        if let Some(bound) = bound {
            let unknown =
                Fact::measured(Quantity::Floor, "unknown".to_owned()).detail("a probe measures it");
            let facts = Section::facts(SectionId::Floor, vec![unknown, bound]);
            return Some(facts.and(Block::Sentence(self.what_the_bound_leaves_open())));
        }
        Some(Section::sentence(SectionId::Floor, unknown_floor(s)))
    }

    /// What the upper bound does not include: contention of the loader with the model's own code.
    fn what_the_bound_leaves_open(&self) -> String {
        let s = self.summary;
        let open = match s.wait_pct.or(s.headspace_upper_bound_pct) {
            Some(wait) if wait < HARDLY_WAITS_PCT => {
                "The loop hardly waits for data. Only a probe shows whether the loader slows the \
                 model's own code (contention)"
            }
            // The GPU works also while the loop waits, and this is known.
            _ if s.headspace_upper_bound_pct < s.wait_pct => {
                "A shorter wait saves only time in which the GPU does not work. Only a probe shows \
                 whether the loader also slows the model's own code (contention)"
            }
            _ => {
                "The upper bound covers only the wait. If the device works during the wait, the \
                 saving is smaller. Only a probe shows whether the loader also slows the model's \
                 own code (contention)"
            }
        };
        format!("{open}: {}", self.way_to_probe())
    }

    /// The option that runs the program again with a probe.
    fn way_to_probe(&self) -> String {
        let from = self.summary.options_from.unwrap_or_default();
        from.with_mode(Mode::Probe)
    }

    fn measured_floor(&self, floor: f64, headspace: f64) -> Vec<Fact> {
        let s = self.summary;
        let interval = s.headspace_ci_pct;
        let range = s.floor_ci_ms.map(|(low, high)| {
            format!(
                "95 % interval {} to {}",
                duration_ms(low),
                duration_ms(high)
            )
        });
        let mut facts = vec![
            Fact::measured(Quantity::Floor, duration_ms(floor))
                .note("if data were free")
                .detail(range.unwrap_or_default()),
            Fact::measured(Quantity::Headspace, headspace_text(s).unwrap_or_default()),
        ];
        if interval.map_or(headspace, |(low, _)| low) <= 0.0 {
            facts.push(Fact::phrase(
                "no measurable speed-up: the interval includes zero",
            ));
        } else if let Some(times) = s.max_speedup {
            facts.push(Fact::phrase(speedup(times)));
        }
        facts
    }

    /// Why a probe has no result.
    fn refusal(&self) -> Option<String> {
        let finding = self
            .summary
            .findings
            .iter()
            .find(|f| f.code() == Some(FindingCode::NoHeadspace));
        let why = self
            .probe
            .and_then(|p| p.reason.as_deref())
            .or(finding.map(|f| f.text.as_str()))
            .map(str::trim)
            .filter(|why| !why.is_empty());
        let too_few = (self.summary.mode == Some(Mode::Probe))
            .then_some("the probe needs more steps than the loop took.");
        why.or(too_few).map(ToOwned::to_owned)
    }

    pub(super) fn savings(&self) -> Option<Section> {
        let s = self.summary;
        s.floor_step_ms?;
        let (wait, contention) = (signed_ms(s.exposed_wait_ms?), signed_ms(s.contention_ms?));
        let saved =
            format!("saves {wait} of waiting and {contention} of contention with the loader");
        Some(Section::facts(
            SectionId::Savings,
            vec![Fact::phrase(saved)],
        ))
    }
}
