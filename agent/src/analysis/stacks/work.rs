//! Divides a stage's time by kinds of work, which the files, functions and waits of its stacks show.
//!
//! Only widely used packages are known. All else is "other": a guess would be worse.

use std::collections::HashMap;

use super::stack_times::StackTimes;
use crate::analysis::thresholds::stacks::MIN_WORK_SHARE;
use crate::model::record::{StageWorkRecord, Work};
use crate::model::stack::{Activity, Frame, WaitFor};

/// Packages and modules by the work that their functions do: a folder or a file in the path.
const PACKAGES: [(&str, Work); 24] = [
    ("PIL", Work::Decoding),
    ("av", Work::Decoding),
    ("decord", Work::Decoding),
    ("gzip.py", Work::Decoding),
    ("imageio", Work::Decoding),
    ("json", Work::Decoding),
    ("librosa", Work::Decoding),
    ("pickle.py", Work::Decoding),
    ("soundfile.py", Work::Decoding),
    ("tarfile.py", Work::Reading),
    ("torchaudio", Work::Decoding),
    ("torchcodec", Work::Decoding),
    ("zipfile", Work::Decoding),
    ("zipfile.py", Work::Decoding),
    ("albumentations", Work::Transforming),
    ("kornia", Work::Transforming),
    ("monai", Work::Transforming),
    ("torchvision", Work::Transforming),
    ("fsspec", Work::Reading),
    ("s3fs", Work::Reading),
    ("connection.py", Work::HandingOver),
    ("queues.py", Work::HandingOver),
    ("reduction.py", Work::HandingOver),
    ("reductions.py", Work::HandingOver),
];

/// Parts of names of the user's functions. The first that matches counts.
const FUNCTIONS: [(&str, Work); 9] = [
    ("collate", Work::Collating),
    ("decode", Work::Decoding),
    ("augment", Work::Transforming),
    ("transform", Work::Transforming),
    ("resize", Work::Transforming),
    ("crop", Work::Transforming),
    ("normalize", Work::Transforming),
    ("read_", Work::Reading),
    ("download", Work::Reading),
];

/// The kinds of work of each stage, the largest share of a stage first. Empty for a stage of only one kind.
pub(in crate::analysis) fn stage_work(stacks: &StackTimes) -> Vec<StageWorkRecord> {
    let mut stages: HashMap<&str, HashMap<Work, f64>> = HashMap::new();
    for stack in stacks.stacks() {
        if let Some(name) = stack.place.stage() {
            let work = work_of(stack.frames, stack.activity);
            *stages.entry(name).or_default().entry(work).or_default() += stack.seconds;
        }
    }
    let mut records: Vec<StageWorkRecord> = Vec::new();
    for (stage, times) in stages {
        let total: f64 = times.values().sum();
        let large = times
            .into_iter()
            .filter(|(_, time)| time / total >= MIN_WORK_SHARE);
        let large: Vec<_> = large.collect();
        if large.iter().any(|(work, _)| *work != Work::Other) && large.len() > 1 {
            records.extend(large.into_iter().map(|(work, time)| StageWorkRecord {
                stage: stage.to_owned(),
                work,
                share_pct: 100.0 * time / total,
            }));
        }
    }
    let by_share = |a: &StageWorkRecord, b: &StageWorkRecord| b.share_pct.total_cmp(&a.share_pct);
    records.sort_by(|a, b| {
        a.stage
            .cmp(&b.stage)
            .then(by_share(a, b))
            .then(a.work.cmp(&b.work))
    });
    records
}

/// The work of a stack, the innermost call first.
fn work_of(frames: &[Frame], activity: Activity) -> Work {
    let by_frame = || frames.iter().find_map(work_of_frame);
    match activity {
        Activity::Wait(WaitFor::File) => Work::Reading,
        Activity::Wait(WaitFor::Connection) => match by_frame() {
            Some(Work::HandingOver) => Work::HandingOver,
            _ => Work::Reading,
        },
        _ => by_frame().unwrap_or(Work::Other),
    }
}

fn work_of_frame(frame: &Frame) -> Option<Work> {
    let name = frame.function.to_ascii_lowercase();
    let named = |names: &[(&str, Work)]| {
        let found = names.iter().find(|(part, _)| name.contains(part));
        found.map(|(_, work)| *work)
    };
    if frame.is_own() {
        return named(&FUNCTIONS);
    }
    if let collating @ Some(_) = named(&FUNCTIONS[..1]) {
        return collating;
    }
    let mut parts = frame.file.split('/');
    parts.find_map(|part| {
        let found = PACKAGES.iter().find(|(package, _)| *package == part);
        found.map(|(_, work)| *work)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stack::Origin;

    fn frame(file: &str, function: &str, origin: Origin) -> Frame {
        Frame {
            file: file.into(),
            line: 1,
            function: function.into(),
            origin,
        }
    }

    #[test]
    fn work_is_known_by_package_by_function_and_by_wait() {
        let packages = "/usr/lib/python3/site-packages";
        let library =
            |path: &str, function| frame(&format!("{packages}/{path}"), function, Origin::Package);
        let own = |function| frame("/home/me/data.py", function, Origin::Own);
        let wait = |what| Activity::Wait(what);
        let item = || own("__getitem__");
        for (frames, activity, work) in [
            (
                vec![library("PIL/Image.py", "convert"), item()],
                Activity::Native,
                Work::Decoding,
            ),
            (
                vec![library("torchvision/transforms/v2.py", "forward"), item()],
                Activity::Native,
                Work::Transforming,
            ),
            (
                vec![library(
                    "torch/utils/data/_utils/collate.py",
                    "default_collate",
                )],
                Activity::Python,
                Work::Collating,
            ),
            (
                vec![library("multiprocessing/queues.py", "put")],
                wait(WaitFor::Connection),
                Work::HandingOver,
            ),
            (
                vec![item(), library("multiprocessing/process.py", "run")],
                Activity::Python,
                Work::Other,
            ),
            (vec![item()], wait(WaitFor::File), Work::Reading),
            (vec![item()], wait(WaitFor::Connection), Work::Reading),
            (
                vec![own("decode_clip"), item()],
                Activity::Native,
                Work::Decoding,
            ),
            (vec![item()], Activity::Python, Work::Other),
        ] {
            assert_eq!(work_of(&frames, activity), work, "{frames:?}");
        }
    }
}
