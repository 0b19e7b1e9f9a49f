//! Formats numbers with units for people.

use crate::model::record::{EndCause, EndRecord, Estimate};

/// Formats a duration in milliseconds, in a suitable unit: `850 µs`, `30.0 ms`, `1.52 s`.
pub fn duration_ms(ms: f64) -> String {
    // At each bound, rounding would reach the next form.
    match ms.abs() {
        a if a >= 999.5 => duration_s(ms / 1e3),
        a if a >= 99.95 => format!("{ms:.0} ms"),
        a if a >= 0.999_5 => format!("{ms:.1} ms"),
        a if a >= 0.099_95 => format!("{:.0} µs", ms * 1e3),
        a if a > 0.0 => format!("{:.1} µs", ms * 1e3),
        _ => "0 ms".to_owned(),
    }
}

/// Formats a duration in seconds: `1.52 s`, `19.2 s`, `12 min 5 s`, `3 h 20 min`.
pub fn duration_s(s: f64) -> String {
    match s.abs() {
        a if a < 0.999_5 && a > 0.0 => duration_ms(s * 1e3),
        a if a < 9.995 => format!("{s:.2} s"),
        a if a < 99.95 => format!("{s:.1} s"),
        a if a < 600.0 => format!("{s:.0} s"),
        a if a < 7200.0 => in_units(s, (60.0, "min"), (1.0, "s")),
        a if a < 172_800.0 => in_units(s, (3600.0, "h"), (60.0, "min")),
        _ => in_units(s, (86_400.0, "d"), (3600.0, "h")),
    }
}

/// Seconds in two units, each with its length: `12 min 5 s`.
fn in_units(s: f64, (long, large): (f64, &str), (short, small): (f64, &str)) -> String {
    let (whole, rest) = ((s / long).trunc(), (s % long / short).trunc());
    format!("{whole:.0} {large} {rest:.0} {small}")
}

/// A duration in milliseconds with half of its interval: as many decimals as that half has meaning.
pub(crate) fn plus_minus_ms(ms: f64, half: f64) -> String {
    let decimals = match half {
        half if half >= 2.0 => 0,
        half if half >= 0.1 => 1,
        _ => 2,
    };
    format!("{ms:.decimals$} ± {half:.decimals$} ms")
}

/// Half of the interval of a duration in seconds: `± 30.0 s`.
pub(crate) fn plus_minus_s(duration: Estimate) -> String {
    let Estimate { value, low, high } = duration;
    format!("± {}", duration_s((high - value).max(value - low)))
}

/// Seconds of several GPUs: `13.6 GPU-hours`.
pub(crate) fn gpu_hours(seconds: f64, gpus: u32) -> String {
    let hours = seconds * f64::from(gpus) / 3600.0;
    let decimals = if hours < 0.95 { 2 } else { 1 };
    format!("{hours:.decimals$} GPU-hours")
}

/// Formats a difference of durations in milliseconds, which may be negative.
pub(crate) fn signed_ms(ms: f64) -> String {
    if ms < 0.0 {
        format!("−{}", duration_ms(-ms))
    } else {
        duration_ms(ms)
    }
}

/// Formats a percentage with this number of decimals, without the sign `%`. A small one is not rounded to
/// zero.
pub fn percent(pct: f64, decimals: usize) -> String {
    let is_small = (0.05..0.5).contains(&pct.abs());
    let shown = signed(pct, decimals.max(usize::from(is_small)));
    shown.strip_prefix('+').unwrap_or(&shown).to_owned()
}

/// Formats a number with its sign, even if it is positive: `+1.2`, `−3.4`, `0.0`, and `?` if it is not finite, as in
/// damaged records.
pub fn signed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let shown = format!("{:.decimals$}", value.abs());
    if shown.bytes().all(|b| b == b'0' || b == b'.') {
        shown
    } else if value < 0.0 {
        format!("−{shown}")
    } else {
        format!("+{shown}")
    }
}

/// Formats an interval: `−0.4 to +1.2`.
pub fn signed_range(interval: Estimate, decimals: usize) -> String {
    let [low, high] = [interval.low, interval.high].map(|end| signed(end, decimals));
    format!("{low} to {high}")
}

/// Formats a number of bytes: `0 B`, `812 KiB`, `10.0 MiB`, `1.25 GiB`.
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count;
    let mut unit = 0;
    // At each step, rounding would reach the next unit.
    while value.abs() >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (value.abs(), unit) {
        (_, 0) => format!("{value:.0} B"),
        (a, _) if a < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        (a, _) if a < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Formats a number of cores, engines or threads, rounded to a tenth: `2`, `1.5`.
pub fn amount(count: f64) -> String {
    let tenths = format!("{count:.1}");
    tenths.strip_suffix(".0").unwrap_or(&tenths).to_owned()
}

/// A count with grouped digits, such as `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A rate with suitable precision: `0.25`, `8.1`, `104`, `16,384`.
pub fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 0.995 => format!("{rate:.2}"),
        rate if rate < 99.95 => format!("{rate:.1}"),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates, and the rate is positive"
        )]
        rate => grouped(rate.round() as u64),
    }
}

/// A rate with its unit: `16,384 frames/s`.
pub(super) fn rate_of(per_s: f64, unit: &str) -> String {
    format!("{} {unit}/s", rate(per_s))
}

/// Formats a part of a whole: `3 of 8`, or `3` if the whole is not known.
pub(super) fn part_of(part: f64, whole: Option<f64>, format: fn(f64) -> String) -> String {
    match whole {
        Some(whole) => format!("{} of {}", format(part), format(whole)),
        None => format(part),
    }
}

/// What ended a program: `An uncaught ValueError`, `SIGTERM`.
pub fn ended_by(end: &EndRecord) -> String {
    match end.cause {
        EndCause::Exception => format!("An uncaught {}", end.name),
        EndCause::Signal => end.name.clone(),
    }
}

/// `1 step`, `640 steps`.
pub(crate) fn steps(count: u64) -> String {
    format!("{count} step{}", if count == 1 { "" } else { "s" })
}

/// `1 record`, `30 records`.
pub(crate) fn records(count: u64) -> String {
    format!("{count} record{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_a_thousand_or_more_has_groups_of_digits() {
        let cases = [
            (0.0, "0"),
            (0.254, "0.25"),
            (8.14, "8.1"),
            (104.4, "104"),
            (16_384.2, "16,384"),
            (1_234_567.0, "1,234,567"),
        ];
        for (per_s, text) in cases {
            assert_eq!(rate(per_s), text);
        }
    }

    #[test]
    fn a_duration_has_a_suitable_unit() {
        let cases = [
            (0.0, "0 ms"),
            (0.000_4, "0.4 µs"),
            (0.012_34, "12.3 µs"),
            (0.85, "850 µs"),
            (0.999_9, "1.0 ms"),
            (9.9, "9.9 ms"),
            (30.0, "30.0 ms"),
            (99.96, "100 ms"),
            (426.0, "426 ms"),
            (999.7, "1.00 s"),
            (1520.0, "1.52 s"),
            (19_200.0, "19.2 s"),
            (431_000.0, "431 s"),
            (725_000.0, "12 min 5 s"),
            (12_000_000.0, "3 h 20 min"),
            (608_400_000.0, "7 d 1 h"),
        ];
        for (ms, expected) in cases {
            assert_eq!(duration_ms(ms), expected);
        }
        assert_eq!(duration_s(0.0), "0.00 s");
        assert_eq!(duration_s(0.25), "250 ms");
    }

    #[test]
    fn a_small_share_is_not_rounded_to_zero_and_no_zero_is_negative() {
        assert_eq!(percent(66.66, 0), "67");
        assert_eq!(percent(0.3, 0), "0.3");
        assert_eq!(percent(0.0, 0), "0");
        assert_eq!(percent(-0.04, 1), "0.0");
        assert_eq!(percent(-1.26, 1), "−1.3");
    }

    #[test]
    fn a_signed_number_has_a_sign_unless_it_rounds_to_zero() {
        let (value, low, high) = (0.4, -0.44, 1.25);
        assert_eq!(
            signed_range(Estimate { value, low, high }, 1),
            "−0.4 to +1.2"
        );
        assert_eq!(signed(-0.04, 1), "0.0");
        assert_eq!(signed(f64::NAN, 1), "?");
    }

    #[test]
    fn bytes_have_a_suitable_unit() {
        let cases = [
            (0.0, "0 B"),
            (812.0, "812 B"),
            (1000.0, "0.98 KiB"),
            (10_485_760.0, "10.0 MiB"),
            (-1536.0, "-1.50 KiB"),
            (85.9e9, "80.0 GiB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn a_whole_amount_has_no_decimals() {
        assert_eq!(amount(2.0), "2");
        assert_eq!(amount(1.54), "1.5");
        assert_eq!(amount(6.98), "7");
    }

    #[test]
    fn an_interval_has_as_many_decimals_as_its_half_has_meaning() {
        assert_eq!(plus_minus_ms(54.3, 2.1), "54 ± 2 ms");
        assert_eq!(plus_minus_ms(4.925, 0.103), "4.9 ± 0.1 ms");
        assert_eq!(plus_minus_ms(4.925, 0.013), "4.92 ± 0.01 ms");
    }

    #[test]
    fn a_negative_difference_has_a_sign() {
        assert_eq!(signed_ms(-0.25), "−250 µs");
        assert_eq!(signed_ms(2.0), "2.0 ms");
    }
}
