//! Keeps totals of a process tree that never decrease and count nothing twice, even while processes start
//! and end.
//!
//! The counts of a member that has ended normally reappear in its parent's account of ended children
//! (`reaped`), or in that of a further ancestor if the parent has ended too. There are exceptions. If
//! `SIGCHLD` is ignored, the kernel discards the counts. A worker that outlives its parent is reaped by
//! a process outside the tree. So the ledger remembers the last known counts of each member. When a
//! member has ended, the same amount must have appeared in the accounts of its ancestors. What has not
//! appeared is carried in the ledger from then on. Activity of a lost member after the last scan is
//! lost.

use std::collections::HashMap;

use super::scan::{Bytes, Member, Used};
use crate::procfs::parse::Identity;

/// Index in [`Used`] of the counter that shows most reliably that a child was reaped: no process runs
/// without page faults.
const MINOR_FAULTS: usize = 2;

/// The total usage of the tree since its processes began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) used: Used,
    /// Absent unless it is known for every member.
    pub(super) io: Option<Bytes>,
}

/// The usage account of a tree.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Members as of the last scan.
    members: HashMap<Identity, Member>,
    /// Usage of ended members that is in no running member's account.
    carried: Used,
    carried_io: Bytes,
    /// Set when a member whose I/O was never known has ended without being reaped in the tree.
    io_lost: bool,
    /// The last reported totals. Later totals are never smaller.
    last: Used,
    last_io: Bytes,
}

/// The amounts that must appear in the account of a running member.
#[derive(Debug, Default)]
struct Due {
    /// From its own children: these amounts appear in this account or nowhere.
    direct: Counts,
    /// From deeper descendants: these amounts appear in this account, further up, or nowhere.
    deep: Counts,
}

/// The combined usage of members that have ended.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    used: Used,
    io: Bytes,
    /// Whether the bytes of some of them are unknown.
    unknown_io: bool,
}

impl Ledger {
    /// The members as of the last scan.
    pub(super) fn members(&self) -> impl Iterator<Item = Identity> + '_ {
        self.members.keys().copied()
    }

    /// The totals after a scan. `members` must list parents before their children.
    pub(super) fn update(&mut self, members: Vec<Member>) -> Totals {
        self.settle(&members);
        let mut used = self.carried;
        let mut io = (!self.io_lost).then_some(self.carried_io);
        for member in &members {
            used = plus(plus(used, member.used), member.reaped);
            io = io.zip(member.io).map(|(sum, io)| plus(sum, io));
        }
        carry_deficit(&mut used, &mut self.last, &mut self.carried);
        if let Some(io) = &mut io {
            carry_deficit(io, &mut self.last_io, &mut self.carried_io);
        }
        self.members = members
            .into_iter()
            .map(|member| (member.process, member))
            .collect();
        Totals { used, io }
    }

    /// Looks for the counts of ended members in the accounts of running ones, and carries the rest.
    fn settle(&mut self, members: &[Member]) {
        let now: HashMap<u32, Identity> = members.iter().map(by_pid).collect();
        let before: HashMap<u32, Identity> = self.members.values().map(by_pid).collect();
        let mut dues = HashMap::<Identity, Due>::new();
        let mut nowhere = Due::default();
        for (process, member) in &self.members {
            if now.get(&process.pid) == Some(process) {
                continue;
            }
            let (due, direct) = match self.heir(member, &now, &before) {
                Some((heir, direct)) => (dues.entry(heir).or_default(), direct),
                None => (&mut nowhere, false),
            };
            due.add(member, direct);
        }
        // Process children before their parents: what did not appear in one account may appear further
        // up.
        for member in members.iter().rev() {
            let Some(due) = dues.remove(&member.process) else {
                continue;
            };
            let rest = self.collect(&due, member);
            let above = match self.heir(member, &now, &before) {
                Some((heir, _)) => dues.entry(heir).or_default(),
                None => &mut nowhere,
            };
            above.deep = above.deep.plus(&rest);
        }
        let lost = dues.values().fold(nowhere.deep, |sum, due| {
            sum.plus(&due.direct).plus(&due.deep)
        });
        self.carry(&lost);
    }

    /// The nearest running ancestor, and whether it is the parent.
    fn heir(
        &self,
        member: &Member,
        now: &HashMap<u32, Identity>,
        before: &HashMap<u32, Identity>,
    ) -> Option<(Identity, bool)> {
        let mut parent = before.get(&member.parent)?;
        // A chain of parents cannot be longer than the number of members, unless `/proc` is
        // inconsistent.
        for generation in 0..self.members.len() {
            if now.get(&parent.pid) == Some(parent) {
                return Some((*parent, generation == 0));
            }
            parent = before.get(&self.members.get(parent)?.parent)?;
        }
        None
    }

    /// Subtracts the due amounts from the increase in the account of `member` since the last scan, and
    /// carries what its children should have left there. Returns what may have appeared further up.
    fn collect(&mut self, due: &Due, member: &Member) -> Counts {
        let Some(before) = self.members.get(&member.process) else {
            return due.direct.plus(&due.deep);
        };
        let mut came = Counts {
            used: minus(member.reaped, before.reaped),
            // Its own bytes and its children's bytes are not separate in `/proc`, so this is an upper
            // bound.
            io: member
                .io
                .zip(before.io)
                .map_or([u64::MAX; 4], |(now, then)| minus(now, then)),
            unknown_io: false,
        };
        let lost = came.settle(&due.direct);
        self.carry(&lost);
        came.settle(&due.deep)
    }

    fn carry(&mut self, lost: &Counts) {
        self.carried = plus(self.carried, lost.used);
        self.carried_io = plus(self.carried_io, lost.io);
        self.io_lost |= lost.unknown_io;
    }
}

impl Due {
    fn add(&mut self, member: &Member, direct: bool) {
        let counts = Counts {
            used: plus(member.used, member.reaped),
            io: member.io.unwrap_or_default(),
            unknown_io: member.io.is_none(),
        };
        let sum = if direct {
            &mut self.direct
        } else {
            &mut self.deep
        };
        *sum = sum.plus(&counts);
    }
}

impl Counts {
    fn plus(&self, other: &Self) -> Self {
        Self {
            used: plus(self.used, other.used),
            io: plus(self.io, other.io),
            unknown_io: self.unknown_io || other.unknown_io,
        }
    }

    /// Subtracts `due` from these counts, and returns the part that they do not contain.
    ///
    /// The bytes here are only an upper bound, so the page faults decide. If all page faults appeared,
    /// all bytes did. If none appeared, no bytes did.
    fn settle(&mut self, due: &Self) -> Self {
        let (faults, expected) = (self.used[MINOR_FAULTS], due.used[MINOR_FAULTS]);
        let io = if faults >= expected {
            Bytes::default()
        } else if faults == 0 {
            due.io
        } else {
            minus(due.io, self.io)
        };
        let rest = Self {
            used: minus(due.used, self.used),
            io,
            unknown_io: due.unknown_io && faults < expected,
        };
        self.used = minus(self.used, due.used);
        self.io = minus(self.io, minus(due.io, io));
        rest
    }
}

fn by_pid(member: &Member) -> (u32, Identity) {
    (member.process.pid, member.process)
}

fn plus(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|index| a[index].saturating_add(b[index]))
}

fn minus(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|index| a[index].saturating_sub(b[index]))
}

/// Raises `sum` to the last reported totals, and carries the difference from now on.
fn carry_deficit(sum: &mut [u64; 4], last: &mut [u64; 4], carried: &mut [u64; 4]) {
    let deficit = minus(*last, *sum);
    *sum = plus(*sum, deficit);
    *carried = plus(*carried, deficit);
    *last = *sum;
}

#[cfg(test)]
mod tests;
