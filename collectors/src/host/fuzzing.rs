//! The parsers of these sources.

use headspace_agent::model::Scope;

pub(crate) use super::cgroup::fuzzing::PARSERS as GROUP_PARSERS;
use super::cores::Cores;
use super::{describe, pressure, times};
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[
    ("/proc/stat", |bytes| {
        let mut cores = Vec::new();
        times::read_into(bytes, &mut cores);
        let _ = times::runnable(bytes);
    }),
    ("/sys/devices/system/cpu/online", |bytes| {
        Cores::default().read_list(bytes);
    }),
    ("/proc/cpuinfo", |bytes| {
        let model = describe::cpu_model(bytes);
        assert!(model.is_none_or(|model| !model.chars().any(char::is_control)));
    }),
    ("/proc/meminfo", |bytes| {
        let _ = describe::memory_bytes(bytes);
    }),
    ("/proc/pressure", |bytes| {
        let mut readings = Vec::new();
        pressure::append(bytes, &Scope::Host, [&[], &[]], false, &mut readings);
        assert!(readings.iter().all(|reading| reading.value >= 0.0));
    }),
];
