//! The parsers of the files of a control group.

use std::path::Path;

use super::memory::{REFAULT_KEYS, refaulted_pages};
use super::{Controller, cpu, keyed, membership, one_word, throttle};
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[
    ("cpu.max", |bytes| {
        if let Ok(Some(cores)) = cpu::cpu_max(bytes) {
            assert!(cores > 0.0 && cores.is_finite());
        }
    }),
    ("cpu.stat", |bytes| {
        let _ = throttle::parse(bytes);
    }),
    ("memory.max", |bytes| {
        let _ = one_word(bytes);
    }),
    ("memory.events", |bytes| {
        let _ = keyed(bytes, "oom_kill");
    }),
    ("memory.stat", |bytes| {
        let _ = refaulted_pages(bytes, REFAULT_KEYS);
    }),
    // The two files are different in reality. An input may contain lines of both.
    ("/proc/self/cgroup and mountinfo", |bytes| {
        for controller in [Controller::Cpu, Controller::Memory, Controller::Unified] {
            if let Ok(Some((version, group))) = membership::own_group(bytes, controller) {
                let root = Path::new("/nowhere");
                let _ = membership::folders(root, bytes, version, controller, &group);
            }
        }
    }),
];
