//! The page's parts that need no script: the verdict, what limits the loop, what would help, and the
//! tables behind it.

mod tables;

use std::fmt::Write as _;

use headspace_agent::analysis::verdict::units::{duration_ms, duration_s, percent};
use headspace_agent::analysis::verdict::{
    Bottleneck, UNKNOWN_BOTTLENECK, Verdict, bottleneck_name, remedy_action, remedy_outcome,
};
use headspace_agent::model::ranks::RanksRecord;
use headspace_agent::model::record::{NoticeRecord, RunState, Severity, SummaryRecord};

use super::data::Part;
use super::html::{Head, Row, escape, prose, table};

/// Remedies, findings and notices that are shown of each.
const MOST_TOLD: usize = 24;

/// What the parts are made of.
pub(crate) struct Facts<'a> {
    /// The first rank with a summary.
    pub(crate) verdict: Verdict<'a>,
    /// Whether there is a summary yet.
    pub(crate) is_told: bool,
    /// Which rank that is.
    pub(crate) main_rank: u32,
    /// All together, where there are several.
    pub(crate) ranks: Option<&'a RanksRecord>,
    /// The last summary of each rank that has one.
    pub(crate) summaries: Vec<(u32, &'a SummaryRecord)>,
    /// What the user was told, by rank.
    pub(crate) notices: Vec<(u32, &'a NoticeRecord)>,
    /// Why nothing more is learned of the run at the moment.
    pub(crate) trouble: Option<&'a str>,
    /// Lines that were no records.
    pub(crate) skipped: u64,
}

impl Facts<'_> {
    /// The document's title.
    pub(crate) fn title(&self) -> String {
        format!("{} · headspace", self.name())
    }

    /// The run's folder by its own name.
    fn name(&self) -> String {
        let location = self.verdict.location.unwrap_or_default();
        let name = location.trim_end_matches('/').rsplit('/').next();
        name.filter(|name| !name.is_empty())
            .unwrap_or("a run")
            .to_owned()
    }

    /// Every part, in the order in which they stand. One with nothing to say is empty.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let part = |id, html| Part { id, html };
        vec![
            part("head", self.head()),
            part("verdict", self.verdict()),
            part("way", self.way()),
            part("stages", self.stages()),
            part("queues", self.queues()),
            part("loops", self.loops()),
            part("gpus", self.gpus()),
            part("cpu", self.resources()),
            part("ranks", self.ranks()),
            part("told", self.told()),
            part("about", self.about()),
        ]
    }

    fn head(&self) -> String {
        let s = self.verdict.summary;
        let mut chips = Vec::new();
        if self.is_told {
            chips.push(match (s.state, &s.ended_by) {
                (RunState::Finished, Some(end)) if end.is_crash() => {
                    format!("ended by an uncaught {}", end.name)
                }
                (RunState::Finished, Some(end)) => format!("ended by {}", end.name),
                (RunState::Finished, None) => "finished".to_owned(),
                (RunState::Running, _) => "no end recorded: running, or killed".to_owned(),
            });
            if !s.mode.is_empty() {
                chips.push(format!("mode {}", s.mode));
            }
            if let Some(name) = &s.loop_name {
                chips.push(format!("loop {name}"));
            }
            chips.push(format!("{} steps", s.steps));
            if s.replayed_steps > 0 {
                chips.push(format!("{} on repeated batches", s.replayed_steps));
            }
            chips.push(duration_s(s.elapsed_s));
        }
        if let Some(run) = self.verdict.run {
            if run.world_size > 1 {
                chips.push(format!("rank {} of {}", self.main_rank, run.world_size));
            }
            if let Some(host) = &run.host.name {
                chips.push(host.clone());
            }
        }
        let mut list = String::new();
        for chip in &chips {
            let _ = write!(list, "<li>{}</li>", escape(chip));
        }
        format!(
            "<h1><span class=\"brand\">headspace</span> <span class=\"run\">{}</span></h1>\
             <ul class=\"chips\" aria-label=\"The run\">{list}</ul>",
            escape(&self.name())
        )
    }

    fn verdict(&self) -> String {
        let s = self.verdict.summary;
        let mut out = String::from("<h2 class=\"quiet\">Verdict</h2>");
        let Some(step) = s.steady_step_mean_ms else {
            let words = match (self.is_told, s.steps) {
                (false, _) => "No summary yet: the run has just begun.".to_owned(),
                (true, 0) => "No step was taken.".to_owned(),
                (true, steps) => format!(
                    "Too few steps for a number: {steps}, of which the first 20 or more are warm-up."
                ),
            };
            let _ = write!(out, "<p class=\"lead\">{}</p>", escape(&words));
            return out;
        };
        out.push_str("<dl class=\"cards\">");
        let tail = match (s.step_p95_ms, s.step_p99_ms) {
            (Some(p95), Some(p99)) => {
                format!("p95 {}, p99 {}", duration_ms(p95), duration_ms(p99))
            }
            _ => String::new(),
        };
        card(&mut out, "step", "Step", &duration_ms(step), &tail);
        if let Some(wait) = s.wait_ms {
            let share = s
                .wait_pct
                .map(|pct| format!("{} % of the step", percent(pct, 0)));
            let share = share.unwrap_or_default();
            card(
                &mut out,
                "wait",
                "Waiting for data",
                &duration_ms(wait),
                &share,
            );
        }
        if let Some(compute) = s.compute_ms {
            let rate = s.throughput_samples_per_s;
            let rate = rate
                .map(|rate| format!("{rate:.1} samples/s"))
                .unwrap_or_default();
            card(&mut out, "compute", "Compute", &duration_ms(compute), &rate);
        }
        self.floor_cards(&mut out, step);
        out.push_str("</dl>");
        out.push_str(&bar(s, step));
        if let Some(caution) = self.verdict.caution() {
            let _ = write!(out, "<p class=\"caution\">{}</p>", prose(&caution));
        }
        out
    }

    fn floor_cards(&self, out: &mut String, step: f64) {
        let s = self.verdict.summary;
        let within = |low: String, high: String| format!("95 % interval {low} to {high}");
        if s.mode == "replay" {
            let floor = duration_ms(s.floor_step_ms.unwrap_or(step));
            card(
                out,
                "floor",
                "Floor",
                &floor,
                "every batch came from the cache",
            );
            return;
        }
        if let Some(floor) = s.floor_step_ms {
            let interval = s.floor_ci_ms;
            let interval = interval.map(|(low, high)| within(duration_ms(low), duration_ms(high)));
            let interval = interval.unwrap_or_default();
            card(out, "floor", "Floor", &duration_ms(floor), &interval);
        } else {
            card(out, "floor", "Floor", "unknown", "a probe measures it");
        }
        match (s.headspace_pct, s.headspace_ci_pct) {
            (Some(pct), interval) => {
                let about = interval
                    .map(|(low, high)| format!(" ± {}", percent((high - pct).max(pct - low), 1)));
                let value = format!("{} %{}", percent(pct, 1), about.unwrap_or_default());
                let surely = interval.map_or(pct, |(low, _)| low) > 0.0;
                let words = match s.max_speedup.filter(|_| surely) {
                    Some(times) => format!("up to {times:.1}x faster if data were free"),
                    None => "no measurable speed-up: the interval includes zero".to_owned(),
                };
                card(out, "headspace", "Headspace", &value, &words);
            }
            (None, _) => {
                if let Some(bound) = s.headspace_upper_bound_pct {
                    let value = format!("≤ {} %", percent(bound, 1));
                    card(
                        out,
                        "headspace",
                        "Less waiting saves",
                        &value,
                        "an upper bound on the waiting; the headspace is unknown without a probe",
                    );
                }
            }
        }
        if let (Some(wait), Some(contention)) = (s.exposed_wait_ms, s.contention_ms) {
            let signed = |ms: f64| {
                let sign = if ms < 0.0 { "−" } else { "" };
                format!("{sign}{}", duration_ms(ms.abs()))
            };
            let value = signed(wait);
            let words = format!("and contention with the loader {}", signed(contention));
            card(out, "split", "Would save waiting", &value, &words);
        }
    }

    fn way(&self) -> String {
        let s = self.verdict.summary;
        let mut out = String::new();
        if let Some(found) = Bottleneck::of(s).filter(|_| s.steady_step_mean_ms.is_some()) {
            let (name, mut evidence) = match found {
                Bottleneck::Known(found) => (bottleneck_name(found), found.evidence.clone()),
                Bottleneck::Unknown => ("unknown".to_owned(), UNKNOWN_BOTTLENECK.to_owned()),
            };
            if let Some(ms) = s.bottleneck.as_ref().and_then(|found| found.limit_ms) {
                let _ = write!(evidence, "; allows {} a step", duration_ms(ms));
            }
            let _ = write!(
                out,
                "<h2>Bottleneck: <strong>{}</strong></h2><p>{}.</p>",
                escape(&name),
                prose(&evidence)
            );
        }
        if s.remedies.is_empty() {
            return out;
        }
        let world_size = self.verdict.run.map_or(1, |run| run.world_size);
        out.push_str("<h3>Remedies</h3><ol class=\"remedies\">");
        for remedy in s.remedies.iter().take(MOST_TOLD) {
            let sure = percent(100.0 * remedy.confidence, 0);
            let told = s.bottleneck.as_ref().map(|found| found.evidence.as_str());
            let evidence = match remedy.evidence.as_str() {
                "" => String::new(),
                same if Some(same) == told => String::new(),
                other => format!("{} · ", prose(other)),
            };
            let _ = write!(
                out,
                "<li><span class=\"outcome\">{}</span><span class=\"what\">{}\
                 <small>{evidence}confidence {sure} %</small></span></li>",
                escape(&remedy_outcome(remedy)),
                prose(&remedy_action(remedy, world_size))
            );
        }
        out.push_str("</ol>");
        out
    }

    fn ranks(&self) -> String {
        let Some(together) = self.ranks else {
            return String::new();
        };
        let mut out = String::from("<h2>Ranks</h2>");
        for (label, words) in crate::report::ranks::sentences(together) {
            let _ = write!(
                out,
                "<p><b class=\"label\">{}</b> {}</p>",
                escape(label),
                prose(&words)
            );
        }
        out.push_str(&tables::ranks(together, &self.summaries));
        out
    }

    fn told(&self) -> String {
        let s = self.verdict.summary;
        let mut items = String::new();
        let mut item = |class: &str, kind: &str, words: &str| {
            let _ = write!(
                items,
                "<li class=\"{class}\"><b class=\"label\">{kind}</b> {}</li>",
                prose(words)
            );
        };
        if let Some(trouble) = self.trouble {
            item("warning", "trouble", trouble);
        }
        for found in self.verdict.findings().take(MOST_TOLD) {
            item("found", "found", &found.text);
        }
        let lost = s.dropped;
        if lost.steps + lost.records > 0 {
            let words = format!(
                "{} steps and {} records are missing",
                lost.steps, lost.records
            );
            item("warning", "lost", &words);
        }
        if self.skipped > 0 {
            item(
                "warning",
                "skipped",
                &format!("{} lines are no records", self.skipped),
            );
        }
        let mut told: Vec<&str> = Vec::new();
        for (rank, notice) in &self.notices {
            // Ranks are mostly told the same.
            if told.contains(&notice.text.as_str()) || told.len() >= MOST_TOLD {
                continue;
            }
            told.push(&notice.text);
            let of = match self.ranks {
                Some(_) => format!("rank {rank}: {}", notice.text),
                None => notice.text.clone(),
            };
            let (class, kind) = match notice.severity {
                Severity::Warning => ("warning", "warning"),
                Severity::Info => ("notice", "notice"),
            };
            item(class, kind, &of);
        }
        if items.is_empty() {
            return String::new();
        }
        format!("<h2>Findings and notices</h2><ul class=\"told\">{items}</ul>")
    }

    fn about(&self) -> String {
        let mut out = String::from("<h2>The run</h2>");
        if let Some(pct) = self.verdict.summary.overhead_pct {
            let cost = if pct < 0.01 {
                "less than 0.01".to_owned()
            } else {
                percent(pct, 2)
            };
            let _ = write!(out, "<p>{cost} % of the run went to measuring.</p>");
        }
        if let Some(run) = self.verdict.run {
            out.push_str(&tables::run(run));
        }
        if self.is_told {
            let _ = write!(
                out,
                "<details><summary>The verdict as text</summary>\
                 <pre tabindex=\"0\">{}</pre></details>",
                escape(&self.verdict.to_string())
            );
        }
        out
    }
}

/// The facts of a notebook's cell: what a page says of one rank, without charts.
pub(crate) fn notebook(facts: &Facts<'_>) -> String {
    let mut out = String::new();
    for part in facts.parts() {
        if !part.html.is_empty() && !matches!(part.id, "ranks" | "about") {
            let _ = write!(
                out,
                "<section class=\"{}\">{}</section>",
                part.id, part.html
            );
        }
    }
    out
}

fn card(out: &mut String, tone: &str, term: &str, value: &str, words: &str) {
    let _ = write!(
        out,
        "<div class=\"card {tone}\"><dt>{}</dt><dd><span class=\"value\">{}</span>\
         <small>{}</small></dd></div>",
        escape(term),
        escape(value),
        escape(words)
    );
}

/// Where a step goes, drawn to scale: waiting and compute, with the floor marked.
fn bar(s: &SummaryRecord, step: f64) -> String {
    let (Some(wait), Some(compute)) = (s.wait_ms, s.compute_ms) else {
        return String::new();
    };
    if step <= 0.0 {
        return String::new();
    }
    let share = |ms: f64| (100.0 * ms / step).clamp(0.0, 100.0);
    let (wait_pct, compute_pct) = (share(wait), share(compute).min(100.0 - share(wait)));
    let mut label = format!(
        "Of a step of {}, compute takes {} and waiting for data {}",
        duration_ms(step),
        duration_ms(compute),
        duration_ms(wait)
    );
    let mut floor_mark = String::new();
    if let Some(floor) = s.floor_step_ms.filter(|_| s.mode != "replay") {
        let _ = write!(label, "; the floor is {}", duration_ms(floor));
        let at = share(floor);
        let _ = write!(
            floor_mark,
            "<rect class=\"floor\" x=\"{at:.2}%\" y=\"0\" width=\"2\" height=\"22\"/>"
        );
    }
    format!(
        "<svg class=\"bar\" role=\"img\" aria-label=\"{}\" width=\"100%\" height=\"22\">\
         <rect class=\"compute\" x=\"0\" y=\"4\" width=\"{compute_pct:.2}%\" height=\"14\"/>\
         <rect class=\"wait\" x=\"{compute_pct:.2}%\" y=\"4\" width=\"{wait_pct:.2}%\" height=\"14\"/>\
         {floor_mark}</svg>",
        escape(&label)
    )
}

/// A section's heading over a table, where there is one.
fn titled(title: &str, heads: &[Head], rows: &[Row], after: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>{}</h2>{}{after}",
        escape(title),
        table(title, heads, rows)
    )
}

#[cfg(test)]
mod tests;
