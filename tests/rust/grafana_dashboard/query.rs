//! `PromQL` queries over declared metrics, for series that were scraped or sent by OTLP.
//!
//! Both have the same names, but durations differ. Scraped durations are classic histograms (`_bucket`, `_sum`,
//! `_count`). Durations sent by OTLP may be native histograms, whose name has no suffix. So each query of
//! durations selects either kind with `or`.

use headspace_agent::model::metric::Metric;
use headspace_exporters::encode::prometheus::names;

/// The label matchers of every query.
const CHOSEN: &str = r#"job=~"$job", run=~"$run", rank=~"$rank""#;

/// Additional label matchers of a query, each as `name="value"`.
pub(crate) type Wanted<'a> = &'a [&'a str];

/// The unchanged series of a metric.
pub(crate) fn of(metric: &Metric, wanted: Wanted<'_>) -> String {
    selector(&names::name(metric), wanted)
}

/// The increase of a total per second.
pub(crate) fn rate(metric: &Metric, wanted: Wanted<'_>) -> String {
    rate_of(&names::name(metric), wanted)
}

/// The mean of durations, by these labels: the sum of all merged durations divided by their number.
pub(crate) fn mean(metric: &Metric, wanted: Wanted<'_>, by: &str) -> String {
    let name = names::name(metric);
    let sum = sum(by, &rate_of(&format!("{name}_sum"), wanted));
    let count = self::sum(by, &rate_of(&format!("{name}_count"), wanted));
    let native = self::sum(by, &rate_of(&name, wanted));
    format!("{sum} / {count} or histogram_sum({native}) / histogram_count({native})")
}

/// The seconds spent per second, by these labels: how many durations are in progress at once, on average.
pub(crate) fn at_once(metric: &Metric, wanted: Wanted<'_>, by: &str) -> String {
    let name = names::name(metric);
    let classic = sum(by, &rate_of(&format!("{name}_sum"), wanted));
    let native = sum(by, &rate_of(&name, wanted));
    format!("{classic} or histogram_sum({native})")
}

/// A quantile of durations, by these labels.
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

/// The sum over all labels except these.
pub(crate) fn sum(by: &str, what: &str) -> String {
    over("sum", by, what)
}

/// The maximum over all labels except these.
pub(crate) fn max(by: &str, what: &str) -> String {
    over("max", by, what)
}

/// Several metrics in one query, distinguished by the label `cause`.
pub(crate) fn causes(all: &[(&str, String)]) -> String {
    let named = all.iter().map(|(cause, what)| {
        // A cause may contain the label `resource` of the query, such as `pressure: $1`.
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
