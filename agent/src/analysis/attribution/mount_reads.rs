//! Finds the network file system whose reads take the time of a stage.
//!
//! The mean number of reads in progress (Little's law: reads per second times the time of a read) is compared with the mean
//! number of calls in progress. The kernel reads ahead, so reads may also be in progress while a call works. So they explain at
//! most the part of the calls in which no core works.

use super::queueing_model::Model;
use crate::model::record::MountUse;

/// The file system with most reads in progress, and the share of the stage's calls that they explain, if it is most of it.
pub(super) fn slow_mount<'a>(model: &'a Model<'_>, stage: usize) -> Option<(&'a MountUse, f64)> {
    let node = &model.nodes[stage];
    let calls = node.active(model.facts.step_ms);
    let reads = |mount: &'a MountUse| Some((mount, mount.reads_in_progress()?));
    let mounts = model.facts.resources.mounts.iter().filter_map(reads);
    let (mount, reads) = mounts.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let waits = 1.0 - node.cpu().unwrap_or(0.0);
    let share = (reads / calls.max(f64::MIN_POSITIVE)).min(waits);
    (share >= model.thresholds.min_mount_share).then_some((mount, share))
}

#[cfg(test)]
mod tests {
    use super::super::facts::PipelineFacts;
    use super::super::{Attribution, Evidence, Limit, attribute};
    use super::*;
    use crate::model::record::{LoaderRecord, Resource, ResourcesRecord, StageSummary};

    /// The attribution of a loop that waits for two workers, which wait for 90 % of the time of their calls. The NFS client
    /// has this many reads per second of 3.1 ms.
    fn attribute_with_reads(reads_per_s: f64) -> Attribution {
        attribute(&PipelineFacts {
            stages: vec![StageSummary {
                name: "fetch".to_owned(),
                processes: 2,
                concurrency: Some(2.0),
                concurrency_known: true,
                calls_per_batch: Some(1.0),
                mean_ms: Some(20.0),
                limit_ms: Some(10.0),
                cpu_pct: Some(10.0),
                ..StageSummary::default()
            }],
            step_ms: 10.2,
            wait_ms: 8.0,
            loader: LoaderRecord {
                workers: Some(2),
                ..LoaderRecord::default()
            },
            resources: ResourcesRecord {
                mounts: vec![MountUse {
                    path: "/data".to_owned(),
                    file_system: "nfs4".to_owned(),
                    open_files: 2.0,
                    reads_per_s: Some(reads_per_s),
                    read_ms: Some(3.1),
                    bytes_per_s: Some(80.0 * 1_048_576.0),
                    ..MountUse::default()
                }],
                ..ResourcesRecord::default()
            },
            ..PipelineFacts::default()
        })
    }

    #[test]
    fn reads_that_fill_the_calls_of_the_limiting_stage_make_storage_the_bottleneck() {
        let found = attribute_with_reads(600.0).bottleneck.unwrap();

        assert_eq!(found.limit, Limit::Resource(Resource::Storage));
        let Evidence::Mount {
            stage,
            share,
            mount,
        } = found.evidence
        else {
            panic!("{found:?}");
        };
        assert_eq!((&*stage, &*mount.path), ("fetch", "/data"));
        // Cores work for the rest.
        assert!((share - 0.9).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_few_reads_leave_the_stage_as_the_bottleneck() {
        let found = attribute_with_reads(100.0).bottleneck.unwrap();

        assert_eq!(found.limit, Limit::Stage("fetch".to_owned()));
    }

    #[test]
    fn remedies_of_the_stage_concern_the_storage() {
        let found = attribute_with_reads(600.0);

        let more = found.remedies.iter().find(|one| one.stage.is_some());
        assert!(more.is_some_and(|one| one.concerns_bottleneck), "{found:?}");
    }
}
