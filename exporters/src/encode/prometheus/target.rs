//! Describes each rank's process once, as `target_info`, with OpenTelemetry's names for a resource.

use super::super::snapshot::Snapshot;

/// The labels of `target_info`, without run and rank, which every series has.
pub(super) fn labels(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let mut labels = vec![("process_pid", snapshot.process().pid.to_string())];
    let Some(run) = snapshot.run() else {
        return labels;
    };
    labels.push(("headspace_mode", run.mode.as_str().to_owned()));
    labels.push(("headspace_world_size", run.world_size.to_string()));
    let version = |product: &str| run.versions.get(product).cloned();
    let known = [
        ("headspace_version", version("headspace")),
        ("process_runtime_version", version("python")),
        ("host_name", run.host.name.clone()),
        ("os_description", run.host.kernel.clone()),
        ("host_cpu_model_name", run.host.cpu_model.clone()),
    ];
    labels.extend(
        known
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    labels
}
