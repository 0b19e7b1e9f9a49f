//! The parsers that several sources share.

use super::mountinfo::{MountLine, path};
use super::walk::child_list;
use super::{lines, memory_size, number, parse, schedstat, value, words};

/// Parsers of a source, each with the file that it reads.
pub(crate) type Parsers = &'static [(&'static str, fn(&[u8]))];

pub(crate) const PARSERS: Parsers = &[
    ("/proc/<pid>/stat", |bytes| {
        let stat = parse::stat(bytes);
        assert!(stat.is_none_or(|stat| stat.threads > 0));
    }),
    ("/proc/<pid>/statm", |bytes| {
        if let Some(memory) = parse::statm(bytes) {
            assert!(memory.anonymous() <= memory.resident && memory.resident <= memory.mapped);
        }
    }),
    ("/proc/<pid>/schedstat", |bytes| {
        let _ = schedstat::parse(bytes);
    }),
    ("/proc/<pid>/io", |bytes| {
        for key in super::IO_KEYS {
            let _ = value(bytes, key).and_then(number);
        }
    }),
    ("/proc/<pid>/smaps_rollup", |bytes| {
        let _ = memory_size(bytes, "Pss");
    }),
    ("/proc/<pid>/task/<tid>/children", |bytes| {
        child_list(bytes).for_each(drop);
    }),
    ("/proc/self/mountinfo", |bytes| {
        for line in lines(bytes) {
            assert!(words(line).all(|word| !word.contains(&b' ')));
            if let Some(line) = MountLine::parse(line) {
                let fields = [line.root, line.at, line.source];
                assert!(
                    fields
                        .iter()
                        .all(|field| path(field).as_os_str().len() <= field.len())
                );
            }
        }
    }),
];
