//! Texts of network and FUSE file systems.

use super::units::{bytes, duration_ms, percent};
use crate::model::record::MountUse;

/// A file system, and the latency and throughput of its reads if they are known.
pub(super) fn mount_use(mount: &MountUse) -> String {
    let latency = mount
        .read_ms
        .map(|ms| format!("{} per read", duration_ms(ms)));
    let throughput = (mount.bytes_per_s).map(|rate| format!("{}/s", bytes(rate)));
    let sent_again = mount.retransmitted_pct.filter(|pct| *pct >= 0.1);
    let sent_again = sent_again.map(|pct| format!("{} % of them sent again", percent(pct, 1)));
    let numbers = [latency, throughput, sent_again];
    let numbers: Vec<String> = numbers.into_iter().flatten().collect();
    let name = format!("{} mount `{}`", mount.file_system, mount.path);
    if numbers.is_empty() {
        return name;
    }
    format!("{name}, {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_its_latency_and_throughput_if_they_are_known() {
        let unknown = MountUse {
            path: "/bucket".to_owned(),
            file_system: "fuse.gcsfuse".to_owned(),
            open_files: 2.0,
            ..MountUse::default()
        };
        let nfs = MountUse {
            path: "/data".to_owned(),
            file_system: "nfs4".to_owned(),
            read_ms: Some(3.1),
            bytes_per_s: Some(80.0 * 1_048_576.0),
            retransmitted_pct: Some(0.0),
            ..MountUse::default()
        };

        assert_eq!(mount_use(&unknown), "fuse.gcsfuse mount `/bucket`");
        assert_eq!(
            mount_use(&nfs),
            "nfs4 mount `/data`, 3.1 ms per read, 80.0 MiB/s"
        );
    }
}
