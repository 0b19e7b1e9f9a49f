//! The section about the duration of the run, or else of an epoch.

use super::super::section::{Fact, Section, SectionId};
use super::super::units::{duration_s, gpu_hours, plus_minus_s};
use super::Verdict;
use crate::model::record::{Estimate, PeriodRecord, RunTimeRecord};

/// A saving below this share of the period is not shown.
const LEAST_SAVING: f64 = 0.005;

impl Verdict<'_> {
    /// The run and what changes would save of it; if its length is unknown, an epoch.
    pub(super) fn run_time(&self) -> Option<Section> {
        let time = self.summary.run_time.as_ref()?;
        let mut facts = match (time.run, time.epoch) {
            (Some(run), epoch) => {
                let run_fact = duration("run", &run).note(epochs(time.epochs, epoch, &run));
                let mut facts = vec![run_fact];
                facts.extend(savings(&run, time));
                facts
            }
            (None, Some(epoch)) => {
                let mut facts = vec![duration("epoch", &epoch)];
                facts.extend(savings(&epoch, time));
                facts
            }
            (None, None) => return None,
        };
        // Without a recorded end, the program may have been killed.
        let may_go_on = self.unfinished_s.is_none() || self.is_running;
        let rest = time.remaining.filter(|_| may_go_on);
        facts.extend(rest.map(remaining));
        Some(Section::facts(SectionId::Time, facts))
    }
}

/// `remaining 102 min 0 s ± 122 s (76 min 30 s with the first remedy)`
fn remaining(rest: PeriodRecord) -> Fact {
    let value = rest.duration_s.value;
    let saved = (rest.saved_by_remedy_s).filter(|saved| *saved >= LEAST_SAVING * value);
    let then = saved.map_or_else(String::new, |saved| {
        let then = duration_s((value - saved).max(0.0));
        format!(" ({then} with the first remedy)")
    });
    let error = plus_minus_s(rest.duration_s);
    Fact::new("remaining", duration_s(value)).note(format!("{error}{then}"))
}

/// `(9 epochs of 22 min 40 s)`; `(9 epochs; one takes 22 min 40 s in steady state)` if the duration of the run is measured,
/// not computed from that of an epoch. Empty if there is only one.
fn epochs(count: Option<u64>, epoch: Option<PeriodRecord>, run: &PeriodRecord) -> String {
    match (count.filter(|count| *count > 1), epoch) {
        (Some(count), Some(epoch)) => {
            let each = duration_s(epoch.duration_s.value);
            if is_exact(run.duration_s) {
                format!("({count} epochs; one takes {each} in steady state)")
            } else {
                format!("({count} epochs of {each})")
            }
        }
        _ => String::new(),
    }
}

fn duration(label: &'static str, period: &PeriodRecord) -> Fact {
    let duration = period.duration_s;
    Fact::new(label, duration_s(duration.value)).detail(interval(duration))
}

/// What free data and the first remedy would save, if it is known and not negligible.
fn savings(period: &PeriodRecord, time: &RunTimeRecord) -> Vec<Fact> {
    let least = LEAST_SAVING * period.duration_s.value;
    let remedy = period.saved_by_remedy_s.map(|value| {
        let (low, high) = period.saved_by_remedy_ci_s.unwrap_or((value, value));
        Estimate { value, low, high }
    });
    let free = period.saved_by_free_data_s;
    [
        ("free data saves", free),
        ("the first remedy saves", remedy),
    ]
    .into_iter()
    .filter_map(|(label, saved)| Some((label, saved?)))
    .filter(|(_, saved)| saved.low > 0.0 && saved.value >= least)
    .map(|(label, saved)| {
        let hours = time
            .gpus
            .map(|gpus| format!("({})", gpu_hours(saved.value, gpus)));
        let fact = Fact::new(label, duration_s(saved.value)).detail(interval(saved));
        fact.note(hours.unwrap_or_default())
    })
    .collect()
}

fn is_exact(estimate: Estimate) -> bool {
    estimate.low >= estimate.high
}

/// `95 % interval 1 h 40 min to 1 h 44 min`. Empty if the value is exact.
fn interval(estimate: Estimate) -> String {
    if is_exact(estimate) {
        return String::new();
    }
    let [low, high] = [estimate.low, estimate.high].map(duration_s);
    format!("95 % interval {low} to {high}")
}
