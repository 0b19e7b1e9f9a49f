//! Concludes that threads or processes without stages limit the loop: it waits for what they make.
//!
//! Samples of stacks show for how long the loop waits for an item of a queue or for the result of a future, and which
//! lines other threads execute meanwhile. If the loop waits, the producers work all the time, so a step takes as long as
//! they need for a batch, but at least as long as the loop's own work.

use super::attribution_result::{Attribution, Bottleneck, Limit};
use super::evidence::Evidence;
use super::line_gains::select;
use crate::analysis::stacks::LineShare;
use crate::analysis::thresholds::{Thresholds, confidence};
use crate::model::stack::{Frame, Place};

/// What is known about a loop that waits for producers.
pub(super) struct ProducerFacts<'a> {
    /// Mean step, in milliseconds.
    pub(super) step_ms: f64,
    /// Part of it in which the loop waits for an item.
    pub(super) wait_ms: f64,
    /// The line of the loop that waits, if it is known.
    pub(super) waiting_line: Option<Frame>,
    /// Share of all the time in which producers were seen while the loop waited.
    pub(super) producing_share: f64,
    /// Hot lines of the loop and of the producers.
    pub(super) lines: &'a [LineShare],
}

impl ProducerFacts<'_> {
    /// The producers as the bottleneck, and the lines that are worth less time. `None` if the wait is not worth tuning, or if
    /// neither the line that waits nor a line of a producer is known.
    pub(super) fn attribute(self) -> Option<Attribution> {
        let thresholds = Thresholds::default();
        let (step_ms, wait_ms) = (self.step_ms, self.wait_ms);
        let producers = self
            .lines
            .iter()
            .filter(|line| line.place == Place::Producers);
        let longest = producers.max_by(|a, b| a.share.total_cmp(&b.share));
        if 100.0 * wait_ms < thresholds.worth_tuning_pct * step_ms
            || (self.waiting_line.is_none() && longest.is_none())
        {
            return None;
        }
        // In the rest of the wait, no producer worked or read: for example, it slept.
        let seen = (self.producing_share * step_ms / wait_ms).min(1.0);
        let saved = thresholds.cheaper_call_saving * seen;
        let shorter = |line: &LineShare| {
            let is_producer = line.place == Place::Producers;
            let at_producers = step_ms * (1.0 - saved * line.proportional_share);
            is_producer.then(|| at_producers.max(step_ms - wait_ms))
        };
        // Less work of the loop's own would only make it wait longer.
        let lines = select(self.lines, step_ms, &thresholds, shorter);
        Some(Attribution {
            bottleneck: Some(Bottleneck {
                limit: Limit::Producers,
                limit_ms: None,
                evidence: Evidence::Producers {
                    wait_ms,
                    step_ms,
                    waiting_line: self.waiting_line,
                    line: longest.map(|line| (line.frame.clone(), seen * line.share)),
                },
                confidence: confidence::SAMPLED_WAIT,
            }),
            lines,
            ..Attribution::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::Activity;

    fn line(place: Place, number: u32, share: f64) -> LineShare {
        LineShare {
            place,
            frame: Frame::own("train.py", number, "f"),
            activity: Activity::Native,
            share,
            proportional_share: share,
            work_share: share,
            wait_share: 0.0,
            own_share: share,
        }
    }

    #[test]
    fn half_a_producers_line_saves_at_most_the_wait() {
        let lines = [
            line(Place::Producers, 1, 0.8),
            line(Place::Producers, 2, 0.2),
            line(Place::Loop("train".to_owned()), 3, 0.9),
        ];
        let predicted = |wait_ms| {
            let facts = ProducerFacts {
                step_ms: 10.0,
                wait_ms,
                waiting_line: None,
                producing_share: 1.0,
                lines: &lines,
            };
            let gains = facts.attribute().map(|found| found.lines);
            gains.map(|gains| {
                let rounded = |gain: &super::super::LineGain| {
                    (
                        gain.line.frame.line,
                        (10.0 * gain.predicted_step_ms).round(),
                    )
                };
                gains.iter().map(rounded).collect::<Vec<_>>()
            })
        };
        assert_eq!(predicted(7.0), Some(vec![(1, 60.0), (2, 90.0)]));
        assert_eq!(predicted(2.0), Some(vec![(1, 80.0), (2, 90.0)]));
        assert_eq!(predicted(0.4), None);
    }

    #[test]
    fn a_wait_for_unknown_producers_at_an_unknown_line_is_no_conclusion() {
        let facts = |waiting_line| ProducerFacts {
            step_ms: 10.0,
            wait_ms: 7.0,
            waiting_line,
            producing_share: 0.0,
            lines: &[],
        };
        assert_eq!(facts(None).attribute(), None);
        let at_line = facts(Some(Frame::own("train.py", 4, "main"))).attribute();
        let limit = at_line
            .and_then(|found| found.bottleneck)
            .map(|found| found.limit);
        assert_eq!(limit, Some(Limit::Producers));
    }
}
