use super::super::hour;
use super::*;

fn drawn(seconds: u64) -> Vec<Chart> {
    let mut history = History::new(480);
    for second in 1..=seconds {
        history.add_tick(&hour::tick(0, second));
    }
    let summary = hour::summary(0, seconds);
    let drawn = Drawn {
        history: &history,
        summary: Some(&summary),
        run: None,
        loop_name: "loader",
    };
    drawn.charts()
}

fn chart<'a>(charts: &'a [Chart], id: &str) -> &'a Chart {
    charts.iter().find(|chart| chart.id == id).unwrap()
}

#[test]
fn each_point_of_the_steps_is_the_mean_of_its_tick() {
    let charts = drawn(30);
    let steps = chart(&charts, "step");
    for second in [1_u64, 5, 20, 30] {
        let entry = &hour::tick(0, second).loops[0].wait;
        let mean = rounded(entry.sum_ms / entry.count as f64);
        let wait = steps.lines.iter().find(|line| line.name == "wait").unwrap();
        let place = usize::try_from(second).unwrap() - 1;
        assert_eq!(wait.values[place], Some(mean), "{second}");
    }
    assert_eq!(steps.marks[0].label, "floor 5.0 ms");
}

#[test]
fn replayed_steps_are_a_line_of_their_own() {
    let charts = drawn(30);
    let steps = chart(&charts, "step");
    let line = |name: &str| {
        &steps
            .lines
            .iter()
            .find(|line| line.name == name)
            .unwrap()
            .values
    };
    assert!(line("step")[10].is_none() && line("step in replay")[10].is_some());
    assert!(line("step")[20].is_some() && line("step in replay")[20].is_none());
}

#[test]
fn each_decoder_has_a_line_and_shares_are_percents() {
    let charts = drawn(30);
    let gpu = chart(&charts, "gpu");
    assert_eq!(gpu.lines.len(), 8);
    assert_eq!(gpu.lines[0].name, "SMs");
    assert!(gpu.lines[1].name == "NVDEC 0" && gpu.lines[1].values[0] > Some(50.0));
}

#[test]
fn cores_and_their_causes_are_rates_of_totals() {
    let charts = drawn(30);
    let used = &chart(&charts, "cores").lines[0];
    assert_eq!(used.values[5], Some(5.8));
    let quota = |line: &&Line| line.name == "CPU throttled";
    let throttled = chart(&charts, "causes").lines.iter().find(quota).unwrap();
    assert_eq!(throttled.values[5], Some(15.0));
}

#[test]
fn values_that_were_not_measured_have_no_line() {
    let charts = drawn(0);
    assert!(charts.is_empty(), "{charts:?}");
}

#[test]
fn numbers_are_rounded_to_five_digits() {
    assert_eq!(Some(rounded(123.456_789)), Some(123.46));
    assert_eq!(Some(rounded(-0.001_234_567)), Some(-0.001_234_6));
    assert_eq!(Some(rounded(9_876_543.0)), Some(9_876_543.0));
    assert_eq!(Some(rounded(f64::NAN)), Some(0.0));
}
