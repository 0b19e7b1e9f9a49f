//! A quantity as a function of the virtual time: constant, or piecewise constant.

use serde::Deserialize;

/// One step of a series: a value and the time at which it begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Seconds since the clock began.
    from: f64,
    /// In the unit of the script's key. `None` means that NVML does not answer.
    value: Option<f64>,
}

/// Steps in order of time, at least one.
///
/// Each step holds until the next one. The first step also holds before its own time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Series(Vec<Step>);

/// A series as it is written in the script.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Constant(Value),
    Steps(Vec<(f64, Option<Value>)>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Name(String),
}

impl Value {
    fn number(self) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Name(name) if name == "nan" => Ok(f64::NAN),
            Self::Name(name) => Err(format!(
                "a series has numbers, null and `nan`, not `{name}`"
            )),
        }
    }
}

impl TryFrom<Written> for Series {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let steps = match written {
            Written::Constant(value) => vec![Step {
                from: 0.0,
                value: Some(value.number()?),
            }],
            Written::Steps(steps) => steps
                .into_iter()
                .map(|(from, value)| {
                    let value = value.map(Value::number).transpose()?;
                    Ok(Step { from, value })
                })
                .collect::<Result<_, String>>()?,
        };
        if steps.is_empty() {
            return Err("a series needs at least one step".to_owned());
        }
        if steps.windows(2).any(|pair| pair[0].from >= pair[1].from) {
            return Err("the steps of a series are in order of time".to_owned());
        }
        Ok(Self(steps))
    }
}

impl Series {
    /// The value at `time` seconds.
    pub(crate) fn at(&self, time: f64) -> Option<f64> {
        let next = self.0.partition_point(|step| step.from <= time);
        self.0[next.saturating_sub(1)].value
    }

    /// The integral from `from` to `until`. Times without a value add nothing.
    pub(crate) fn integral(&self, from: f64, until: f64) -> f64 {
        self.pieces(from, until)
            .map(|(seconds, value)| seconds * value.unwrap_or(0.0))
            .sum()
    }

    /// The mean from `from` to `until`, or `None` if any part of that time has no value.
    pub(crate) fn mean(&self, from: f64, until: f64) -> Option<f64> {
        self.pieces(from, until)
            .all(|(_, value)| value.is_some())
            .then(|| self.integral(from, until) / (until - from))
    }

    /// The pieces between two times: the seconds that each lasts, and its value.
    fn pieces(&self, from: f64, until: f64) -> impl Iterator<Item = (f64, Option<f64>)> {
        self.0.iter().enumerate().filter_map(move |(i, step)| {
            let begin = if i == 0 { from } else { step.from.max(from) };
            let end = self.0.get(i + 1).map_or(until, |next| next.from.min(until));
            (end > begin).then_some((end - begin, step.value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(json: &str) -> Series {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_value_holds_until_the_next_and_the_first_value_also_holds_before_it() {
        let steps = series("[[1, 10], [3, 20]]");

        assert_eq!(
            [0.0, 1.0, 2.9, 3.0, 99.0].map(|t| steps.at(t)),
            [10.0, 10.0, 10.0, 20.0, 20.0].map(Some)
        );
    }

    #[test]
    fn an_integral_sums_over_the_steps() {
        let steps = series("[[0, 10], [2, 100], [3, null], [5, 1]]");

        assert!((steps.integral(1.0, 6.0) - (10.0 + 100.0 + 1.0)).abs() < 1e-9);
    }

    #[test]
    fn a_mean_over_a_gap_has_no_value() {
        let steps = series("[[0, 10], [2, 30], [4, null]]");

        assert_eq!(steps.mean(1.0, 3.0), Some(20.0));
        assert_eq!(steps.mean(3.0, 5.0), None);
    }

    #[test]
    fn steps_out_of_order_and_no_steps_are_refused() {
        for json in ["[[2, 1], [1, 1]]", "[]", "\"much\""] {
            assert!(serde_json::from_str::<Series>(json).is_err(), "{json}");
        }
    }
}
