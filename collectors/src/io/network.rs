//! The source `network` counts the bytes over the network interfaces.
//!
//! Each byte is counted once. Loopback is not counted. An interface on top of others (a bond, a bridge,
//! a VLAN) is not counted, because its bytes pass through those. If there are physical devices, virtual
//! interfaces are not counted, because traffic that leaves the machine passes through a device as well.
//! A container often has only a virtual interface, which is then counted. Traffic that bypasses the
//! kernel (RDMA) is not included.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::metric;
use headspace_agent::model::{Reading, Scope, attributes};
use headspace_agent::port::{CollectError, Collector};

use crate::procfs::monotonic_total::Carry;
use crate::procfs::{self, float, lines, number, words};

/// This source's name.
pub const NAME: &str = "network";

/// What it reads.
pub const READS: &str = "bytes over the network interfaces of this namespace";

/// The source `network`.
#[derive(Debug)]
pub struct Network {
    counts: PathBuf,
    interfaces: PathBuf,
    /// By name. Removed interfaces stay, so that the totals never decrease.
    followed: HashMap<Box<[u8]>, Interface>,
    /// Whether virtual interfaces count. Decided once, so that the totals never decrease.
    with_virtual: bool,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Interface {
    /// Received and transmitted bytes.
    carries: [Carry; 2],
    kind: Kind,
}

/// How an interface's bytes relate to those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Hardware, or a device that the hypervisor provides.
    Device,
    /// Created by the kernel.
    Virtual,
    /// On top of other interfaces, or loopback.
    Neither,
}

impl Network {
    /// Watches the interfaces of this process's namespace.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if there is no interface except loopback.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the interfaces that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// Returns [`CollectError::Unsupported`] if there is no interface except loopback.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut network = Self {
            counts: procfs::below(root, "/proc/self/net/dev"),
            interfaces: procfs::below(root, "/sys/class/net"),
            followed: HashMap::new(),
            with_virtual: false,
            buffer: Vec::new(),
        };
        // Bytes before the run are included, as in other totals since boot.
        network.follow(Carry::from_start).map_err(|error| {
            CollectError::unsupported(procfs::unreadable(&network.counts, &error))
        })?;
        let of = |kind| network.followed.values().any(|one| one.kind == kind);
        network.with_virtual = !of(Kind::Device);
        if network.with_virtual && !of(Kind::Virtual) {
            return Err(CollectError::unsupported(
                "this network namespace has no interface but loopback",
            ));
        }
        Ok(network)
    }

    /// Reads the counters, and adds interfaces that are new: `begin` makes their totals.
    fn follow(&mut self, begin: fn(u64) -> Carry) -> std::io::Result<()> {
        let counts = procfs::read(&self.counts, &mut self.buffer)?;
        for (name, raws) in parse(counts) {
            if let Some(interface) = self.followed.get_mut(name) {
                for (carry, raw) in interface.carries.iter_mut().zip(raws) {
                    carry.follow(raw);
                }
            } else {
                let interface = Interface {
                    carries: raws.map(begin),
                    kind: kind(&self.interfaces, name),
                };
                self.followed.insert(name.into(), interface);
            }
        }
        Ok(())
    }

    /// Received and transmitted bytes of the interfaces that count.
    fn totals(&self) -> [u64; 2] {
        let counts = |one: &&Interface| match one.kind {
            Kind::Device => true,
            Kind::Virtual => self.with_virtual,
            Kind::Neither => false,
        };
        let mut totals = [0u64; 2];
        for interface in self.followed.values().filter(counts) {
            for (total, carry) in totals.iter_mut().zip(interface.carries) {
                *total = total.saturating_add(carry.total());
            }
        }
        totals
    }
}

impl Collector for Network {
    fn name(&self) -> &'static str {
        NAME
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        // A new interface may come from another namespace, with bytes that were counted there.
        self.follow(Carry::from_now)
            .map_err(|error| CollectError::Transient(procfs::unreadable(&self.counts, &error)))?;
        let directions = [attributes::NETWORK_RECEIVE, attributes::NETWORK_TRANSMIT];
        let series = directions.map(|direction| (&metric::NETWORK_IO, direction));
        let totals = self.totals().map(|total| Some(float(total)));
        procfs::append(out, &Scope::Host, series, totals);
        Ok(())
    }
}

/// The interfaces in `/proc/self/net/dev`, each with its received and transmitted bytes.
pub(super) fn parse(bytes: &[u8]) -> impl Iterator<Item = (&[u8], [u64; 2])> {
    lines(bytes).filter_map(|line| {
        let colon = line.iter().rposition(|&byte| byte == b':')?;
        let mut numbers = words(&line[colon + 1..]).map(number);
        let (received, sent) = (numbers.next()??, numbers.nth(7)??);
        // The fields after them show that the line is complete.
        numbers.nth(6)??;
        Some((line[..colon].trim_ascii(), [received, sent]))
    })
}

/// The kind of an interface, from its folder in `/sys`; virtual if the folder does not show it.
fn kind(interfaces: &Path, name: &[u8]) -> Kind {
    if name == b"lo" {
        return Kind::Neither;
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return Kind::Virtual;
    };
    let folder = interfaces.join(name);
    let lies_on_others = std::fs::read_dir(&folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"lower_"))
        })
    });
    if lies_on_others {
        Kind::Neither
    } else if folder.join("device").exists() {
        Kind::Device
    } else {
        Kind::Virtual
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    6386      58    0    0    0     0          0         0     6386      58    0    0    0     0       0          0
  eth0:35709553080  825630    0    0    0     0          0         0 28181704  407763    0    0    0     0       0          0
eth0:1:      10       1    0    0    0     0          0         0       20       1    0    0    0     0       0          0
";

    #[test]
    fn bytes_are_parsed_even_if_the_number_directly_follows_the_name() {
        let found: Vec<_> = parse(FILE.as_bytes()).collect();

        assert_eq!(
            found,
            [
                (&b"lo"[..], [6386, 6386]),
                (b"eth0", [35_709_553_080, 28_181_704]),
                (b"eth0:1", [10, 20]),
            ]
        );
    }

    proptest! {
        #[test]
        fn a_truncated_file_has_only_interfaces_of_the_whole_file(cut in 0..FILE.len()) {
            let whole: Vec<_> = parse(FILE.as_bytes()).collect();
            prop_assert!(parse(&FILE.as_bytes()[..cut]).all(|one| whole.contains(&one)));
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes).count();
        }
    }
}
