use super::*;

/// Levels of these lengths and step times in milliseconds.
fn levels(of: &[(u64, f64)]) -> Vec<Level> {
    (of.iter())
        .map(|&(steps, step_ms)| Level {
            from_step: 0,
            to_step: None,
            from_s: 0.0,
            to_s: None,
            steps,
            seconds: steps as f64 * step_ms / 1e3,
            with_stalls_s: steps as f64 * step_ms / 1e3,
        })
        .collect()
}

/// The usual step time, in microseconds.
fn usual_us(of: &[(u64, f64)]) -> Option<f64> {
    usual_level(&levels(of)).map(|level| (1e3 * level.step_ms()).round())
}

#[test]
fn levels_of_a_machine_whose_speed_changes_are_the_usual_level_together() {
    assert_eq!(
        usual_us(&[(90, 10.0), (60, 13.0), (250, 40.0)]),
        Some(11_200.0)
    );
}

#[test]
fn a_few_fast_steps_are_not_joined_with_much_slower_ones() {
    assert_eq!(usual_us(&[(90, 10.0), (310, 30.0)]), Some(30_000.0));
    assert_eq!(usual_us(&[]), None);
}
