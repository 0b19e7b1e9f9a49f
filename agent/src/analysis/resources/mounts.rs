//! Use of network file systems and FUSE file systems.

use crate::model::metric::{
    MOUNT_OPEN_FILES, MOUNT_READ_IO, MOUNT_READ_OPERATIONS, MOUNT_READ_TIME, MOUNT_RETRANSMISSIONS,
};
use crate::model::reading::attribute_value;
use crate::model::reading_series::Span;
use crate::model::record::MountUse;
use crate::model::{ReadingSeries, Scope, attributes};

/// The network and FUSE file systems that had files open.
pub(super) fn mounts(history: &ReadingSeries, span: &Span<'_>) -> Vec<MountUse> {
    let keys = (history.keys()).filter(|key| *key.metric == MOUNT_OPEN_FILES);
    let used = keys.filter_map(|key| {
        let of = |metric, attributes| span.of(metric, &key.scope, attributes);
        let Scope::Mount(path) = &key.scope else {
            return None;
        };
        let open_files = of(&MOUNT_OPEN_FILES, key.attributes).mean()?;
        let reads_per_s = of(&MOUNT_READ_OPERATIONS, &[]).rate();
        let per_read = |metric, attributes| {
            let reads = reads_per_s.filter(|reads| *reads > 0.0)?;
            Some(of(metric, attributes).rate()? / reads)
        };
        let milliseconds = |part| Some(1e3 * per_read(&MOUNT_READ_TIME, part)?);
        Some(MountUse {
            path: path.to_string(),
            file_system: attribute_value(key.attributes, "system.filesystem.type")?.to_owned(),
            open_files,
            reads_per_s,
            read_ms: milliseconds(attributes::PART_EXECUTE),
            round_trip_ms: milliseconds(attributes::PART_ROUND_TRIP),
            bytes_per_s: of(&MOUNT_READ_IO, &[]).rate(),
            retransmitted_pct: per_read(&MOUNT_RETRANSMISSIONS, &[]).map(|share| 100.0 * share),
        })
    });
    used.collect()
}
