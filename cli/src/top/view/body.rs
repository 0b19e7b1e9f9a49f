//! Renders the scrollable list: queues and stages, then GPUs, the machine, workers and notices.

use headspace_agent::analysis::resources::tree_else_process;
use headspace_agent::model::record::Severity;
use headspace_agent::model::{GpuActivity, Scope, metric};
use headspace_agent::wording::gpu::activity_label;
use headspace_agent::wording::live_view::NO_STAGES;
use headspace_agent::wording::units::{bytes, rate};
use ratatui::text::{Line, Span};

use super::super::state::{QueueState, Rank, StageState};
use super::Scene;
use super::text::{BAR, bar, left, ms_or_dash, share_pct, spark, wrapped};

/// Queues and stages.
pub(super) fn pipeline(rank: &Rank, scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let mut lines = Vec::new();
    let queues = rank.pipeline.queues();
    if !queues.is_empty() {
        let [depth, filled, empty, full] = ["depth", "filled", "empty", "full"];
        let names =
            format!(" queues           {depth:>9}  {filled:<BAR$} {empty:>6} {full:>6}  history");
        lines.push(head(scene, &names));
        lines.extend(queues.iter().map(|queue| queue_line(queue, scene, width)));
    }
    let stages = rank.pipeline.stages();
    if !stages.is_empty() {
        let [busy, bar, p50, p95, calls, conc] = ["busy", "", "p50", "p95", "calls/s", "conc."];
        let names = format!(
            " stages           {busy:>6}  {bar:<BAR$} {p50:>9} {p95:>9} {calls:>8} {conc:>6}"
        );
        lines.push(head(scene, &names));
        let summary = rank.summary.as_ref();
        let bottleneck = summary.and_then(|s| s.bottleneck_stage.as_deref());
        for stage in &stages {
            let binds = bottleneck == Some(stage.name.as_str());
            lines.push(stage_line(stage, binds, scene));
        }
    }
    if lines.is_empty() {
        lines.push(head(scene, " stages"));
        let words = wrapped(NO_STAGES, width.saturating_sub(4));
        lines.extend(words.map(|line| Line::from(format!("   {line}"))));
    }
    lines
}

/// GPUs, cores and memory, workers, notices.
pub(super) fn machine(rank: &Rank, scene: &Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for gpu in rank.gpus() {
        gpu_lines(gpu, rank, scene, &mut lines);
    }
    lines.extend(host(rank, scene));
    lines.extend(workers(rank, scene));
    lines.extend(notices(rank, scene, usize::from(width)));
    lines
}

fn head(scene: &Scene<'_>, text: &str) -> Line<'static> {
    Line::styled(text.to_owned(), scene.palette.label)
}

fn queue_line(queue: &QueueState, scene: &Scene<'_>, width: usize) -> Line<'static> {
    let palette = scene.palette;
    let depth = match queue.capacity {
        Some(capacity) => format!("{:.1}/{capacity}", queue.depth),
        None => format!("{:.1}", queue.depth),
    };
    let deepest = queue.history.iter().copied().fold(1.0, f64::max);
    let most = queue.capacity.map_or(deepest, |capacity| capacity as f64);
    let name = left(&queue.name, 16);
    let mut spans = vec![Span::raw(format!(" {name} {depth:>9}  "))];
    spans.extend(bar(queue.depth / most.max(1.0), palette));
    spans.push(Span::raw(format!(
        " {:>6} {:>6}  ",
        share_pct(queue.empty),
        share_pct(queue.full)
    )));
    let room = width.saturating_sub(56).min(48).min(queue.history.len());
    let history = spark(&queue.history, most, room);
    spans.push(Span::styled(history, palette.level));
    Line::from(spans)
}

fn stage_line(stage: &StageState, binds: bool, scene: &Scene<'_>) -> Line<'static> {
    let palette = scene.palette;
    let name = match &stage.within {
        Some(_) => format!("└ {}", stage.name),
        None => stage.name.clone(),
    };
    let mut spans = vec![Span::raw(format!(
        " {} {:>6}  ",
        left(&name, 16),
        share_pct(stage.busy)
    ))];
    spans.extend(bar(stage.busy, palette));
    spans.push(Span::raw(format!(
        " {:>9} {:>9} {:>8} {:>6}",
        ms_or_dash(stage.p50_ms),
        ms_or_dash(stage.p95_ms),
        rate(stage.calls_per_s),
        stage.concurrency
    )));
    if stage.failures > 0 {
        let failed = format!(" {} failed", stage.failures);
        spans.push(Span::styled(failed, palette.warning));
    }
    if binds {
        spans.push(Span::styled(" ◂ limit", palette.warning));
    }
    Line::from(spans)
}

fn gpu_lines(gpu: u32, rank: &Rank, scene: &Scene<'_>, lines: &mut Vec<Line<'static>>) {
    let palette = scene.palette;
    let scope = Scope::Gpu(gpu);
    let mut known = rank.run.iter().flat_map(|run| &run.gpus);
    let known = known.find(|known| known.ordinal == gpu);
    let name = known.and_then(|known| known.name.as_deref());
    let name = name.unwrap_or_default();
    let mut facts = Vec::new();
    if let Some(watts) = rank.reading(&scope, &metric::GPU_POWER) {
        facts.push(format!("{watts:.0} W"));
    }
    if let Some(degrees) = rank.reading(&scope, &metric::GPU_TEMPERATURE) {
        facts.push(format!("{degrees:.0} °C"));
    }
    let title = format!(" gpu {gpu}  {name}   {}", facts.join("  "));
    lines.push(head(scene, &title));
    let mut level = |label: &str, share: f64, more: String| {
        let mut spans = vec![Span::raw(format!(
            "   {} {:>6}  ",
            left(label, 14),
            share_pct(share)
        ))];
        spans.extend(bar(share, palette));
        spans.push(Span::raw(more));
        lines.push(Line::from(spans));
    };
    let mut sms = rank.readings(&scope, &metric::GPU_SM_UTILIZATION);
    let others = rank.readings(&scope, &metric::GPU_UTILIZATION);
    let engines = rank.readings(&scope, &metric::GPU_ENGINE_UTILIZATION);
    let readings = sms.next().into_iter().chain(others).chain(engines);
    let mut activities: Vec<(GpuActivity<'_>, f64)> = readings
        .filter_map(|(key, share)| Some((GpuActivity::from_key(key)?, share)))
        .collect();
    activities.sort_by_key(|(activity, _)| *activity);
    for (activity, share) in activities {
        // Few programs use an encoder or one of the other engines.
        let is_rare = matches!(activity, GpuActivity::AllEncoders | GpuActivity::Engine(_));
        if !is_rare || share > 0.0 {
            level(&activity_label(activity), share, String::new());
        }
    }
    let used = rank.reading(&scope, &metric::GPU_MEMORY_USAGE);
    let limit = rank.reading(&scope, &metric::GPU_MEMORY_LIMIT);
    if let (Some(used), Some(limit)) = (used, limit.filter(|limit| *limit > 0.0)) {
        let more = format!("  {} of {}", bytes(used), bytes(limit));
        level("memory", used / limit, more);
    }
}

/// Cores and memory.
fn host(rank: &Rank, scene: &Scene<'_>) -> Vec<Line<'static>> {
    let mut spans = Vec::new();
    if let Some(share) = rank.reading(&Scope::Host, &metric::HOST_CPU_UTILIZATION) {
        let cores = rank.reading(&Scope::Host, &metric::HOST_CPU_USABLE);
        let cores = cores.map_or(String::new(), |cores| format!("of {cores:.0} "));
        spans.push(Span::raw(format!(
            "   cores {:>5} {cores} ",
            share_pct(share)
        )));
        spans.extend(bar(share, scene.palette));
    }
    let memory = |scope: &Scope| rank.reading(scope, &metric::PROCESS_MEMORY_USAGE);
    if let Some(memory) = tree_else_process(rank.scopes(), memory) {
        spans.push(Span::raw(format!("   memory {}", bytes(memory))));
    }
    if let Some(processes) = rank.reading(&Scope::Tree, &metric::PROCESS_COUNT) {
        spans.push(Span::raw(format!("   processes {processes:.0}")));
    }
    if spans.is_empty() {
        return Vec::new();
    }
    vec![head(scene, " machine"), Line::from(spans)]
}

fn workers(rank: &Rank, scene: &Scene<'_>) -> Vec<Line<'static>> {
    let workers = rank.pipeline.workers();
    if workers.is_empty() {
        return Vec::new();
    }
    let [busy, p50, p95, calls] = ["busy", "p50", "p95", "calls/s"];
    let names = format!(" workers          stage      {busy:>6} {p50:>9} {p95:>9} {calls:>8}");
    let mut lines = vec![head(scene, &names)];
    for worker in workers {
        let mut name = worker.name.as_str();
        for stage in &worker.stages {
            lines.push(Line::from(format!(
                " {} {} {:>6} {:>9} {:>9} {:>8}",
                left(name, 16),
                left(&stage.name, 10),
                share_pct(stage.busy),
                ms_or_dash(stage.p50_ms),
                ms_or_dash(stage.p95_ms),
                rate(stage.calls_per_s)
            )));
            name = "";
        }
    }
    lines
}

/// Notices, newest first.
fn notices(rank: &Rank, scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    if rank.notices.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![head(scene, " notices, the newest first (UTC)")];
    for timed in rank.notices.iter().rev() {
        let (style, mut mark) = match timed.notice.severity {
            Severity::Warning => (scene.palette.warning, "!"),
            Severity::Info => (scene.palette.plain, " "),
        };
        let mut clock = time_of_day(timed.at_unix_nano);
        for line in wrapped(&timed.notice.text, width.saturating_sub(14).max(20)) {
            lines.push(Line::from(vec![
                Span::styled(format!("   {clock:8} "), scene.palette.label),
                Span::styled(format!("{mark} "), style),
                Span::raw(line),
            ]));
            clock.clear();
            mark = " ";
        }
    }
    lines
}

/// `09:30:12`, UTC.
fn time_of_day(unix_nano: u64) -> String {
    let seconds = unix_nano / 1_000_000_000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}
