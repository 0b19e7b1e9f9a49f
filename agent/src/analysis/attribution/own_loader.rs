//! Concludes that a loader without stages limits the loop: its code runs on the training thread.

use super::attribution_result::{Bottleneck, Limit};
use super::evidence::Evidence;
use super::facts::PipelineFacts;
use crate::analysis::stacks::OwnLoading;
use crate::analysis::thresholds::{Thresholds, confidence};

/// The loader as the bottleneck. `None` if the wait is not worth tuning, or if a large part of it is a wait for other
/// threads, processes or devices.
pub(super) fn own_loader(facts: &PipelineFacts, own: &OwnLoading) -> Option<Bottleneck> {
    let thresholds = Thresholds::default();
    let (step_ms, wait_ms) = (facts.step_ms, facts.wait_ms);
    let is_long = 100.0 * wait_ms >= thresholds.worth_tuning_pct * step_ms;
    (is_long && own.share > 1.0 - thresholds.long_blocked_loading).then(|| Bottleneck {
        limit: Limit::Loader,
        limit_ms: Some(wait_ms),
        evidence: Evidence::OwnLoading {
            load_ms: own.share * wait_ms,
            step_ms,
            line: (own.line.clone(), own.line_share),
        },
        confidence: confidence::SAMPLED_WAIT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::Frame;

    #[test]
    fn a_loader_that_mostly_works_is_the_bottleneck_of_a_loop_that_waits() {
        let limit_ms = |wait_ms, share| {
            let facts = PipelineFacts {
                step_ms: 10.0,
                wait_ms,
                ..PipelineFacts::default()
            };
            let own = OwnLoading {
                share,
                line: Frame::own("data.py", 3, "decode"),
                line_share: 0.9,
            };
            own_loader(&facts, &own)?.limit_ms
        };
        assert_eq!(limit_ms(6.0, 0.9), Some(6.0));
        assert_eq!(limit_ms(0.4, 0.9), None, "the loop hardly waits");
        assert_eq!(limit_ms(6.0, 0.5), None, "it mostly waits for others");
    }
}
