//! `PromQL` over declared metrics, for series that were scraped and for those that came by OTLP.
//!
//! Both have the same names. Durations differ: scraped ones are classic histograms (`_bucket`, `_sum`,
//! `_count`), and OTLP's may be native ones under the bare name. So each query of durations is one or
//! the other, whichever there is.

use headspace_agent::model::metric::Metric;
use headspace_exporters::encode::prometheus::names;

/// The selection that every query makes.
const CHOSEN: &str = r#"job=~"$job", run=~"$run", rank=~"$rank""#;

/// Additional label matchers of a query, each as `name="value"`.
pub(crate) type Wanted<'a> = &'a [&'a str];

/// The metric's series as they are.
pub(crate) fn of(metric: &Metric, wanted: Wanted<'_>) -> String {
    selector(&names::name(metric), wanted)
}

/// How fast a total grows, each second.
pub(crate) fn rate(metric: &Metric, wanted: Wanted<'_>) -> String {
    rate_of(&names::name(metric), wanted)
}

/// The mean of durations, by some labels; the sum over the number, over all that is merged.
pub(crate) fn mean(metric: &Metric, wanted: Wanted<'_>, by: &str) -> String {
    let name = names::name(metric);
    let sum = sum(by, &rate_of(&format!("{name}_sum"), wanted));
    let count = self::sum(by, &rate_of(&format!("{name}_count"), wanted));
    let native = self::sum(by, &rate_of(&name, wanted));
    format!("{sum} / {count} or histogram_sum({native}) / histogram_count({native})")
}

/// How much of a second is spent in them: how many go on at once, on average.
pub(crate) fn at_once(metric: &Metric, wanted: Wanted<'_>, by: &str) -> String {
    let name = names::name(metric);
    let classic = sum(by, &rate_of(&format!("{name}_sum"), wanted));
    let native = sum(by, &rate_of(&name, wanted));
    format!("{classic} or histogram_sum({native})")
}

/// A quantile of durations, by some labels.
pub(crate) fn quantile(q: &str, metric: &Metric, wanted: Wanted<'_>, by: &str) -> String {
    let name = names::name(metric);
    let with_bounds = if by.is_empty() {
        "le".to_owned()
    } else {
        format!("le, {by}")
    };
    let classic = sum(&with_bounds, &rate_of(&format!("{name}_bucket"), wanted));
    let native = sum(by, &rate_of(&name, wanted));
    format!("histogram_quantile({q}, {classic}) or histogram_quantile({q}, {native})")
}

/// The sum over all labels but some.
pub(crate) fn sum(by: &str, what: &str) -> String {
    over("sum", by, what)
}

/// The highest over all labels but some.
pub(crate) fn max(by: &str, what: &str) -> String {
    over("max", by, what)
}

/// Several metrics in one query, distinguished by the label `cause`.
pub(crate) fn causes(all: &[(&str, String)]) -> String {
    let named = all.iter().map(|(cause, what)| {
        // A label that is in `what` may be a part of the name: `pressure: $1`.
        let from = if cause.contains('$') { "resource" } else { "" };
        format!(r#"label_replace({what}, "cause", "{cause}", "{from}", "(.*)")"#)
    });
    named.collect::<Vec<_>>().join(" or ")
}

fn over(how: &str, by: &str, what: &str) -> String {
    if by.is_empty() {
        format!("{how}({what})")
    } else {
        format!("{how} by ({by}) ({what})")
    }
}

fn rate_of(name: &str, wanted: Wanted<'_>) -> String {
    format!("rate({}[$__rate_interval])", selector(name, wanted))
}

fn selector(name: &str, wanted: Wanted<'_>) -> String {
    let mut chosen = CHOSEN.to_owned();
    for label in wanted {
        chosen.push_str(", ");
        chosen.push_str(label);
    }
    format!("{name}{{{chosen}}}")
}
