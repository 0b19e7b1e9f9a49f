//! Totals of a tree that never go back and count nothing twice, whoever comes and goes.
//!
//! The counts of a member that has ended are found again in its parent's account of ended children
//! (`reaped`), or further up where the parent has ended too. Not always: where `SIGCHLD` is
//! ignored the kernel throws them away, and a worker that outlives its parent is taken note of by a
//! process outside the tree. So what each member had when it was last seen is remembered; when it
//! has gone, that much must have come up in the accounts of those above it, and what has not is
//! carried from then on. What a lost member did after the last look is lost.

use std::collections::HashMap;

use super::scan::{Bytes, Member, Used};
use crate::procfs::walk::Process;

/// Which of [`Used`] tells most surely that a child was taken note of: nothing runs without page
/// faults.
const MINOR_FAULTS: usize = 2;

/// What the tree has used since its processes began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) used: Used,
    /// Absent where it is not known of every member.
    pub(super) io: Option<Bytes>,
}

/// The account of a tree.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// As last seen.
    members: HashMap<Process, Member>,
    /// What ended members had used and no living one has in its account.
    carried: Used,
    carried_io: Bytes,
    /// The I/O of a member was never known, and now it has gone without a trace.
    io_lost: bool,
    /// The totals told last: none after them is less.
    last: Used,
    last_io: Bytes,
}

/// What must have come up in the account of a living member.
#[derive(Debug, Default)]
struct Due {
    /// Of its own children: there or nowhere.
    direct: Counts,
    /// Of those below its own children: there, further up or nowhere.
    deep: Counts,
}

/// What members that have gone had used together.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    used: Used,
    io: Bytes,
    /// The bytes of some of them are not known.
    unknown_io: bool,
}

impl Ledger {
    /// The members as last seen.
    pub(super) fn members(&self) -> impl Iterator<Item = Process> + '_ {
        self.members.keys().copied()
    }

    /// The totals after a look; `members` has parents before their children.
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

    /// Finds the counts of those who have gone in the accounts of those who live, and carries what
    /// is not there.
    fn settle(&mut self, members: &[Member]) {
        let now: HashMap<u32, Process> = members.iter().map(by_number).collect();
        let before: HashMap<u32, Process> = self.members.values().map(by_number).collect();
        let mut dues = HashMap::<Process, Due>::new();
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
        // Children before their parents: what did not come up at one place may have further up.
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

    /// The nearest living ancestor, and whether that is the parent.
    fn heir(
        &self,
        member: &Member,
        now: &HashMap<u32, Process>,
        before: &HashMap<u32, Process>,
    ) -> Option<(Process, bool)> {
        let mut parent = before.get(&member.parent)?;
        // A chain of parents is no longer than there are members, unless `/proc` is nonsense.
        for generation in 0..self.members.len() {
            if now.get(&parent.pid) == Some(parent) {
                return Some((*parent, generation == 0));
            }
            parent = before.get(&self.members.get(parent)?.parent)?;
        }
        None
    }

    /// Takes what is due out of what came up in the account of `member` since it was last seen, and
    /// carries what its children should have left there. Returns what may have come up above it.
    fn collect(&mut self, due: &Due, member: &Member) -> Counts {
        let Some(before) = self.members.get(&member.process) else {
            return due.direct.plus(&due.deep);
        };
        let mut came = Counts {
            used: minus(member.reaped, before.reaped),
            // Its own bytes and its children's cannot be told apart: this is the most it can be.
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

    /// Takes `due` out of this, and returns what is not in it.
    ///
    /// Of bytes this holds only the most there may be. So page faults decide: where all of them
    /// came up all bytes did, where none did no byte did.
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

fn by_number(member: &Member) -> (u32, Process) {
    (member.process.pid, member.process)
}

fn plus(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|index| a[index].saturating_add(b[index]))
}

fn minus(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|index| a[index].saturating_sub(b[index]))
}

/// Raises `sum` to what was told last, and carries the difference from now on.
fn carry_deficit(sum: &mut [u64; 4], last: &mut [u64; 4], carried: &mut [u64; 4]) {
    let deficit = minus(*last, *sum);
    *sum = plus(*sum, deficit);
    *carried = plus(*carried, deficit);
    *last = *sum;
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
