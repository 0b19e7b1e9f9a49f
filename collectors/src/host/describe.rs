//! Describes the machine for the first record of a run.

use std::path::Path;

use headspace_agent::model::record::HostRecord;

use super::usable_cores::Limits;
use crate::procfs::{self, value};

/// Describes this machine. Values that cannot be read are absent.
pub fn describe() -> HostRecord {
    describe_at("/")
}

/// Describes the machine that `proc` and `sys` below `root` describe.
pub fn describe_at(root: impl AsRef<Path>) -> HostRecord {
    let root = root.as_ref();
    let mut buffer = Vec::new();
    let mut limits = Limits::with_root(root);
    let cores = limits.read();
    let kernel = |name: &str, buffer: &mut Vec<u8>| {
        let path = procfs::below(root, "/proc/sys/kernel").join(name);
        text(procfs::read(&path, buffer).ok()?)
    };
    HostRecord {
        name: kernel("hostname", &mut buffer),
        kernel: kernel("ostype", &mut buffer)
            .zip(kernel("osrelease", &mut buffer))
            .map(|(system, release)| format!("{system} {release}")),
        cpu_model: procfs::read(&procfs::below(root, "/proc/cpuinfo"), &mut buffer)
            .ok()
            .and_then(cpu_model),
        cores_online: cores.online,
        cores_affinity: cores.affinity,
        cores_quota: cores.cores_quota(),
        cgroup: limits.version().map(|version| version.name().to_owned()),
        memory_bytes: procfs::read(&procfs::below(root, "/proc/meminfo"), &mut buffer)
            .ok()
            .and_then(memory_bytes),
    }
}

/// The processor's name in `/proc/cpuinfo`: x86 and RISC-V write one, POWER writes `cpu`, and Arm
/// writes only the numbers of its maker and part.
pub(super) fn cpu_model(cpuinfo: &[u8]) -> Option<String> {
    let named = ["model name", "uarch", "cpu"]
        .iter()
        .find_map(|key| text(value(cpuinfo, key)?));
    named.or_else(|| {
        let maker = text(value(cpuinfo, "CPU implementer")?)?;
        let part = text(value(cpuinfo, "CPU part")?)?;
        Some(format!("implementer {maker} part {part}"))
    })
}

pub(super) fn memory_bytes(meminfo: &[u8]) -> Option<u64> {
    procfs::memory_size(meminfo, "MemTotal").filter(|&total| total > 0)
}

/// The text, trimmed; `None` if it is empty or not printable in one line.
fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_processor_is_named_by_name_or_by_number() {
        let x86 = b"processor\t: 0\nmodel\t\t: 207\nmodel name\t: AMD EPYC 7B13\n";
        let arm =
            b"processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n";
        let power = b"processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";

        assert_eq!(cpu_model(x86).as_deref(), Some("AMD EPYC 7B13"));
        assert_eq!(
            cpu_model(arm).as_deref(),
            Some("implementer 0x41 part 0xd4f")
        );
        assert_eq!(
            cpu_model(power).as_deref(),
            Some("POWER9, altivec supported")
        );
        assert_eq!(cpu_model(b"processor\t: 0\nmodel name\t: AMD EP"), None);
        assert_eq!(cpu_model(b"model name\t:\n"), None);
    }

    #[test]
    fn memory_is_in_bytes_and_never_zero_by_mistake() {
        assert_eq!(
            memory_bytes(b"MemTotal:       16384 kB\n"),
            Some(16_777_216)
        );
        for wrong in [
            "MemTotal: 0 kB\n",
            "MemTotal: 16384 kB",
            "MemTotal: 16384\n",
            "",
        ] {
            assert_eq!(memory_bytes(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(memory_bytes(b"MemTotal: 18446744073709551615 kB\n"), None);
    }

    #[test]
    fn text_is_trimmed_and_printable() {
        assert_eq!(text(b" node-1\n").as_deref(), Some("node-1"));
        for wrong in [&b""[..], b" \n", b"a\x1b[31m", b"a\nb", b"\xff"] {
            assert_eq!(text(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = (cpu_model(&bytes), memory_bytes(&bytes), text(&bytes));
        }
    }
}
