//! Defines the layout of a worker's file (a header page that identifies the owner, and its slots), and of the file with
//! a trainer's switches.
//!
//! Two processes can share a file only if both were built from the same version with the same layout.
//! Files of another layout are ignored.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headspace_agent::model::stage::NAME_BYTES;
use headspace_agent::recording::stage::slot::SlotName;
use headspace_agent::recording::stage::{QueueSlot, Region, StageSlot, Switches};

use super::Identity;

/// `hdspwrkr`, written last: everything before it is then complete.
const MAGIC: u64 = u64::from_le_bytes(*b"hdspwrkr");

/// Changes whenever the position or the meaning of any field changes.
const VERSION: u64 = {
    let sizes = [
        size_of::<File>(),
        size_of::<StageSlot>(),
        size_of::<QueueSlot>(),
        offset_of!(Region, stages),
        offset_of!(StageSlot, entered),
        offset_of!(StageSlot, buckets),
        offset_of!(QueueSlot, samples),
        NAME_BYTES,
    ];
    let mut hash = fnv(0xcbf2_9ce4_8422_2325, env!("CARGO_PKG_VERSION").as_bytes());
    let mut next = 0;
    while next < sizes.len() {
        hash = fnv(hash, &(sizes[next] as u64).to_le_bytes());
        next += 1;
    }
    hash
};

/// The FNV-1a hash (Fowler, Noll, Vo).
const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut next = 0;
    while next < bytes.len() {
        hash = (hash ^ bytes[next] as u64).wrapping_mul(0x0100_0000_01b3);
        next += 1;
    }
    hash
}

/// The owner and the state of the slots.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    started: AtomicU64,
    pid: AtomicU32,
    finished: AtomicU32,
    ended_while_idle: AtomicU32,
    label: SlotName,
}

/// The whole file.
#[repr(C)]
#[derive(Debug)]
pub(super) struct File {
    pub(super) header: Header,
    pub(super) region: Region,
}

/// Size of a file in bytes.
pub(super) const SIZE: usize = size_of::<File>();

/// Offset of the slots.
pub(super) const REGION: usize = offset_of!(File, region);

/// Number of leading bytes that prove that the file has our format and is complete.
pub(super) const PROOF: usize = offset_of!(Header, finished);

impl Header {
    /// Writes the whole header. The label is the worker's display name. `ended_while_idle` means that the
    /// worker is normally ended while it is idle, without a chance to finish.
    pub(super) fn begin(&self, owner: Identity, label: Option<&str>, ended_while_idle: bool) {
        if let Some(label) = label {
            self.label.set(label);
        }
        self.ended_while_idle
            .store(u32::from(ended_while_idle), Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.pid.store(owner.pid, Ordering::Relaxed);
        self.started.store(owner.started, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The worker's display name, if it has one.
    pub(super) fn label(&self) -> Option<String> {
        self.label.get().filter(|label| !label.is_empty())
    }

    /// Marks that the worker ends normally.
    pub(super) fn finish(&self) {
        self.finished.store(1, Ordering::Release);
    }

    /// Whether the worker marked a normal end.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) == 1
    }

    /// Whether the worker's pool ends it while it is idle.
    pub(super) fn is_ended_while_idle(&self) -> bool {
        self.ended_while_idle.load(Ordering::Relaxed) == 1
    }
}

/// Whether these first bytes belong to a complete file of this layout, owned by that process.
pub(super) fn is_proof(bytes: &[u8; PROOF], owner: Identity) -> bool {
    let expected = [MAGIC, VERSION, owner.started].map(u64::to_ne_bytes);
    let (numbers, pid) = bytes.split_at(PROOF - size_of::<u32>());
    numbers == expected.as_flattened() && pid == owner.pid.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_lie_where_other_code_takes_them_to_be() {
        assert_eq!(offset_of!(Header, pid), 24);
        assert_eq!(PROOF, 28);
        assert_eq!(REGION, 4096);
        assert_eq!(SIZE % 4096, 0);
        // A reader of slots stops at the first free one, by the first bytes of each slot.
        assert_eq!(offset_of!(StageSlot, name), 0);
        assert_eq!(offset_of!(QueueSlot, name), 0);
    }

    #[test]
    fn another_version_has_another_number() {
        assert_ne!(fnv(1, b"0.1.0"), fnv(1, b"0.1.1"));
        assert_ne!(VERSION, 0);
    }
}

/// `hdspswch`, written last.
const SWITCHES_MAGIC: u64 = u64::from_le_bytes(*b"hdspswch");

/// The version of the file with switches.
const SWITCHES_VERSION: u64 = fnv(VERSION, &(size_of::<Switches>() as u64).to_le_bytes());

/// The file with a trainer's switches.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SwitchFile {
    magic: AtomicU64,
    version: AtomicU64,
    pub(super) switches: Switches,
}

impl SwitchFile {
    /// Size of the file in bytes.
    pub(super) const SIZE: usize = size_of::<Self>();

    /// Number of leading bytes that prove that the file has our format and is complete.
    pub(super) const PROOF: usize = offset_of!(Self, switches);

    /// Marks the file as complete.
    pub(super) fn begin(&self) {
        self.version.store(SWITCHES_VERSION, Ordering::Relaxed);
        self.magic.store(SWITCHES_MAGIC, Ordering::Release);
    }

    /// Whether these first bytes belong to a complete file of this layout.
    pub(super) fn is_proof(bytes: &[u8; Self::PROOF]) -> bool {
        bytes
            == [SWITCHES_MAGIC, SWITCHES_VERSION]
                .map(u64::to_ne_bytes)
                .as_flattened()
    }
}
