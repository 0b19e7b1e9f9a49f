//! The table of the study: how often the bottleneck is right, and the errors of the predictions.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::super::for_each_seed;
use super::judge::{Applied, Judged, Length, judge};

/// The results for many pipelines.
pub(crate) struct Table {
    pub(crate) judged: Vec<Judged>,
}

/// Counts and errors over some of the pipelines.
#[derive(Default)]
pub(crate) struct Row {
    n: usize,
    named: usize,
    right: usize,
    errors: Vec<f64>,
    first: Vec<f64>,
    bounds: usize,
    kept: usize,
}

impl Table {
    /// Judges a pipeline for every seed.
    pub(crate) fn of(seeds: Range<u64>, length: Length) -> Self {
        let judged = for_each_seed(&seeds, |seed| judge(seed, length));
        Self { judged }
    }

    pub(crate) fn all(&self) -> Row {
        self.row(|_| true)
    }

    pub(crate) fn row(&self, which: impl Fn(&Judged) -> bool) -> Row {
        let mut row = Row::default();
        for judged in self.judged.iter().filter(|j| which(j)) {
            row.n += 1;
            row.named += usize::from(judged.right.is_some());
            row.right += usize::from(judged.right == Some(true));
            for applied in &judged.remedies {
                row.add(applied);
            }
        }
        row.errors.sort_by(f64::total_cmp);
        row.first.sort_by(f64::total_cmp);
        row
    }

    fn by_remedy(&self) -> BTreeMap<String, Row> {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for applied in self.judged.iter().flat_map(|j| &j.remedies) {
            let row = rows.entry(applied.code.clone()).or_default();
            row.n += 1;
            row.add(applied);
        }
        for row in rows.values_mut() {
            row.errors.sort_by(f64::total_cmp);
            row.first.sort_by(f64::total_cmp);
        }
        rows
    }
}

impl Row {
    fn add(&mut self, applied: &Applied) {
        if applied.at_least {
            self.bounds += 1;
            self.kept += usize::from(applied.really_ms <= 1.03 * applied.predicted_ms);
            return;
        }
        self.errors.push(100.0 * applied.error());
        if applied.first {
            self.first.push(100.0 * applied.error());
        }
    }

    /// Share of right verdicts among those that name a bottleneck.
    pub(crate) fn right_pct(&self) -> f64 {
        100.0 * self.right as f64 / self.named.max(1) as f64
    }

    /// Share of pipelines without a verdict.
    pub(crate) fn unknown_pct(&self) -> f64 {
        100.0 * (self.n - self.named) as f64 / self.n.max(1) as f64
    }

    /// A quantile of the errors of predictions, in percent.
    pub(crate) fn error_pct(&self, q: f64) -> f64 {
        quantile(&self.errors, q)
    }

    fn numbers(&self) -> String {
        format!(
            "{:6} {:8.1} {:8.1} {:8.1} {:8} {:8.1}",
            self.errors.len(),
            self.error_pct(0.5),
            self.error_pct(0.9),
            quantile(&self.first, 0.9),
            self.bounds,
            100.0 * self.kept as f64 / self.bounds.max(1) as f64,
        )
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (q * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:20} {:>5} {:>8} {:>9} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "",
            "n",
            "right %",
            "unknown %",
            "remedy",
            "median %",
            "90th %",
            "first 90",
            "bounds",
            "kept %"
        )?;
        let mut rows = vec![("all".to_owned(), self.all())];
        for class in super::draw::CLASSES {
            rows.push((
                format!("{class:?}").to_lowercase(),
                self.row(|j| j.class == class),
            ));
        }
        rows.push(("probed".to_owned(), self.row(|j| j.probed)));
        rows.push(("not probed".to_owned(), self.row(|j| !j.probed)));
        for (name, row) in &rows {
            let (right, unknown) = (row.right_pct(), row.unknown_pct());
            writeln!(
                f,
                "{name:20} {:5} {right:8.1} {unknown:9.1} {}",
                row.n,
                row.numbers()
            )?;
        }
        for (code, row) in self.by_remedy() {
            writeln!(
                f,
                "{code:20} {:5} {:8} {:9} {}",
                row.n,
                "",
                "",
                row.numbers()
            )?;
        }
        for j in self
            .judged
            .iter()
            .filter(|j| j.right == Some(false))
            .take(12)
        {
            writeln!(
                f,
                "wrong: seed {} ({:?}) said {}, is {}",
                j.seed, j.class, j.said, j.truth
            )?;
        }
        Ok(())
    }
}
