//! The sections about the program and the end of the run.

use super::super::incomplete_runs::KILLED_OR_RUNNING;
use super::super::section::{Block, Entry, Section, SectionId};
use super::super::units::{amount, bytes, duration_s, ended_by, steps};
use super::{Detail, Verdict};
use crate::model::record::{RunRecord, RunState, SourceState};

impl Verdict<'_> {
    /// The run in short phrases: state, mode, loop, number of steps, duration.
    pub fn badges(&self) -> Vec<String> {
        let s = self.summary;
        let mut badges = vec![match (s.state, &s.ended_by) {
            (RunState::Finished, Some(end)) if end.is_crash() => {
                format!("ended by an uncaught {}", end.name)
            }
            (RunState::Finished, Some(end)) => format!("ended by {}", end.name),
            (RunState::Finished, None) => "finished".to_owned(),
            (RunState::Running, _) => format!("no end recorded: {KILLED_OR_RUNNING}"),
        }];
        badges.extend(s.mode.map(|mode| format!("mode {}", mode.as_str())));
        badges.extend(s.loop_name.as_ref().map(|name| format!("loop {name}")));
        badges.push(steps(s.steps));
        if s.replayed_steps > 0 {
            badges.push(format!("{} on repeated batches", s.replayed_steps));
        }
        badges.push(duration_s(s.elapsed_s));
        badges
    }

    /// In brief, the heading. In full, also the command, the machine and the loader.
    pub(super) fn run_section(&self, detail: Detail) -> Section {
        let s = self.summary;
        let what = match (s.steps, s.steady_step_mean_ms) {
            (0, _) => "no step was taken".to_owned(),
            (n, None) => format!("{}, no steady state", steps(n)),
            (n, Some(_)) => format!("{}, {} in steady state", steps(n), s.steady_steps),
        };
        let location = self.location.unwrap_or_default().to_owned();
        let section = Section::new(SectionId::Run, Block::Heading { what, location });
        let Some(run) = self.run.filter(|_| detail == Detail::Full) else {
            return section;
        };
        let section = section.and(Block::Terms(terms(run)));
        let off = sources_off(run);
        if off.is_empty() {
            return section;
        }
        section.and(Block::Entries(off))
    }

    pub(super) fn ended(&self) -> Option<Section> {
        if let Some(end) = &self.summary.ended_by {
            let text = format!("{} ended the run.", ended_by(end));
            return Some(Section::sentence(SectionId::Ended, text));
        }
        let age = self.unfinished_s?;
        if self.is_running {
            let text = "The run is in progress.".to_owned();
            return Some(Section::sentence(SectionId::Ended, text));
        }
        let age = Some(age).filter(|age| *age > 0.0).map(duration_s);
        let numbers = age.map_or_else(String::new, |age| {
            format!(" The verdict was computed {age} before the last record of the run.")
        });
        Some(Section::sentence(
            SectionId::Ended,
            format!("No end of the run is recorded: {KILLED_OR_RUNNING}.{numbers}"),
        ))
    }

    pub(super) fn rank(&self) -> Option<Section> {
        let world = self.world_size();
        (world > 1).then(|| {
            let which = self.slowest_rank.map_or_else(
                || format!("one rank of {world}"),
                |rank| format!("rank {rank}, the slowest of {world}"),
            );
            let text =
                format!("The numbers below, including workers and cores, are those of {which}.");
            Section::sentence(SectionId::Rank, text)
        })
    }
}

/// The command, the machine and the loader.
fn terms(run: &RunRecord) -> Vec<(String, String)> {
    let host = &run.host;
    let cores = host.cores_affinity.or(host.cores_online);
    let mut terms = vec![
        ("command", Some(run.argv.join(" "))),
        ("host", host.name.clone()),
        ("kernel", host.kernel.clone()),
        ("processor", host.cpu_model.clone()),
        ("cores", cores.map(|cores| cores.to_string())),
        (
            "quota",
            host.cores_quota
                .map(|quota| format!("{} cores", amount(quota))),
        ),
        ("memory", host.memory_bytes.map(|all| bytes(all as f64))),
    ];
    if let Some(loader) = &run.loader {
        let each = if run.world_size > 1 { " per rank" } else { "" };
        let workers = loader.workers.map(|workers| format!("{workers}{each}"));
        terms.push(("loader", Some(loader.type_name.clone())));
        terms.push(("batch size", loader.batch_size.map(|size| size.to_string())));
        terms.push(("workers", workers));
    }
    let terms = terms
        .into_iter()
        .filter_map(|(term, words)| Some((term.to_owned(), words?)));
    let gpus = (run.gpus.iter())
        .filter_map(|gpu| Some((format!("GPU {}", gpu.ordinal), gpu.name.clone()?)));
    let versions = run.versions.clone().into_iter();
    let all = terms.chain(gpus).chain(versions);
    all.filter(|(_, words)| !words.is_empty()).collect()
}

/// The sources that are off, with the reason and the remedy.
fn sources_off(run: &RunRecord) -> Vec<Entry> {
    let off = (run.sources.iter()).filter(|source| source.state == SourceState::Off);
    off.map(|source| Entry {
        detail: source.remedy.clone().unwrap_or_default(),
        ..Entry::new(&*source.name, source.reason.as_deref().unwrap_or("off"))
    })
    .collect()
}
