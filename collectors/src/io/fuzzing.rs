//! The parsers of these sources.

use std::path::Path;

use super::{diskstats, mounts, mountstats, network};
use crate::procfs::fuzzing::Parsers;

const FOLDER: &str = "/data/shards";

pub(crate) const PARSERS: Parsers = &[
    ("/proc/self/mountinfo", |bytes| {
        let (table, folder) = (mounts::parse(bytes), Path::new(FOLDER));
        let mount = mounts::over(&table, folder);
        assert!(mount.is_none_or(|mount| folder.starts_with(&mount.at)));
        let _ = mounts::device(&table, folder, |_| true);
    }),
    ("/proc/self/mountstats", |bytes| {
        let _ = mountstats::reads(bytes, Path::new("/data"));
    }),
    ("/proc/self/net/dev", |bytes| {
        network::parse(bytes).for_each(drop);
    }),
    ("/proc/diskstats", |bytes| {
        let _ = diskstats::counters(bytes, "vda");
        let _ = diskstats::name(bytes, 254, 0);
    }),
];
