//! Tests the ledger against a simulated kernel whose true totals are known.

use proptest::prelude::*;

use super::*;

/// What a parent does with ended children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// It waits for its children.
    Waits,
    /// It ignores `SIGCHLD`, so the counts are lost.
    Ignores,
}

#[derive(Debug, Clone)]
struct Made {
    pid: u32,
    parent: u32,
    kind: Parent,
    used: Used,
    reaped: Used,
    own_io: Bytes,
    reaped_io: Bytes,
}

/// Simulated processes with the kernel's accounting.
#[derive(Debug)]
struct Kernel {
    living: Vec<Made>,
    next: u32,
    /// The true total usage.
    truth: Used,
    truth_io: Bytes,
    /// Counts that are in no account any more, as of the time they were lost.
    lost: Used,
}

impl Kernel {
    fn new(kind: Parent) -> Self {
        let mut kernel = Self {
            living: Vec::new(),
            next: 1,
            truth: [0; 4],
            truth_io: [0; 4],
            lost: [0; 4],
        };
        kernel.fork(0, kind);
        kernel
    }

    fn fork(&mut self, parent: u32, kind: Parent) -> u32 {
        let pid = self.next;
        self.next += 1;
        self.living.push(Made {
            pid,
            parent,
            kind,
            used: [0; 4],
            reaped: [0; 4],
            own_io: [0; 4],
            reaped_io: [0; 4],
        });
        // No process runs without page faults.
        self.work(self.living.len() - 1, 1);
        pid
    }

    fn work(&mut self, index: usize, amount: u64) {
        let done = [amount, 2 * amount, 3 * amount, amount / 2];
        let made = &mut self.living[index];
        made.used = plus(made.used, done);
        made.own_io = plus(made.own_io, done);
        self.truth = plus(self.truth, done);
        self.truth_io = plus(self.truth_io, done);
    }

    /// Ends a process other than the first. A process outside the tree adopts its children.
    fn end(&mut self, index: usize) {
        let gone = self.living.remove(index);
        for child in &mut self.living {
            if child.parent == gone.pid {
                child.parent = 0;
            }
        }
        let all = plus(gone.used, gone.reaped);
        match self.living.iter_mut().find(|made| made.pid == gone.parent) {
            Some(parent) if parent.kind == Parent::Waits => {
                parent.reaped = plus(parent.reaped, all);
                let io = plus(gone.own_io, gone.reaped_io);
                parent.reaped_io = plus(parent.reaped_io, io);
            }
            _ => self.lost = plus(self.lost, all),
        }
    }

    fn members(&self) -> Vec<Member> {
        let member = |made: &Made| {
            let process = Identity {
                pid: made.pid,
                started: 7,
            };
            let io = Some(plus(made.own_io, made.reaped_io));
            Member::made(process, made.parent, made.used, made.reaped, io)
        };
        self.living.iter().map(member).collect()
    }
}

#[derive(Debug, Clone)]
enum Event {
    Fork(prop::sample::Index),
    Work(prop::sample::Index, u64),
    End(prop::sample::Index),
    Scan,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => any::<prop::sample::Index>().prop_map(Event::Fork),
        4 => (any::<prop::sample::Index>(), 0u64..1000).prop_map(|(who, much)| Event::Work(who, much)),
        2 => any::<prop::sample::Index>().prop_map(Event::End),
        3 => Just(Event::Scan),
    ];
    prop::collection::vec(event, 0..80)
}

/// Runs the events. `check` receives the kernel and the totals at each scan.
fn run(events: &[Event], kind: Parent, orphans: bool, mut check: impl FnMut(&Kernel, &Totals)) {
    let mut kernel = Kernel::new(kind);
    let mut ledger = Ledger::default();
    let mut last = ledger.update(kernel.members());
    for event in events {
        match event {
            Event::Fork(who) => {
                let parent = who.get(&kernel.living).pid;
                kernel.fork(parent, kind);
            }
            Event::Work(who, much) => {
                let index = who.index(kernel.living.len());
                kernel.work(index, *much);
            }
            Event::End(who) => {
                let index = who.index(kernel.living.len());
                let pid = kernel.living[index].pid;
                let has_children = kernel.living.iter().any(|made| made.parent == pid);
                if index > 0 && (orphans || !has_children) {
                    kernel.end(index);
                }
            }
            Event::Scan => {
                let totals = ledger.update(kernel.members());
                for field in 0..4 {
                    assert!(totals.used[field] >= last.used[field], "went back");
                    assert!(totals.io.unwrap()[field] >= last.io.unwrap()[field]);
                }
                check(&kernel, &totals);
                last = totals;
            }
        }
    }
}

proptest! {
    #[test]
    fn usage_of_reaped_children_is_counted_to_the_last_page_fault(events in events()) {
        run(&events, Parent::Waits, false, |kernel, totals| {
            assert_eq!(totals.used, kernel.truth);
            assert_eq!(totals.io, Some(kernel.truth_io));
        });
    }

    #[test]
    fn nothing_is_ever_counted_twice(events in events(), ignores: bool) {
        let kind = if ignores { Parent::Ignores } else { Parent::Waits };
        run(&events, kind, true, |kernel, totals| {
            for field in 0..4 {
                assert!(totals.used[field] <= kernel.truth[field], "{totals:?} {kernel:?}");
                assert!(totals.io.unwrap()[field] <= kernel.truth_io[field]);
            }
        });
    }

    #[test]
    fn the_last_known_usage_is_kept_if_no_parent_reaps(events in events(), scans in 1usize..3) {
        // Scan after every event except an end: everything lost was then seen before.
        let mut all = Vec::new();
        for event in events {
            let end = matches!(event, Event::End(_));
            all.push(event);
            if !end {
                all.extend(std::iter::repeat_n(Event::Scan, scans));
            }
        }
        run(&all, Parent::Ignores, true, |kernel, totals| {
            assert_eq!(totals.used, kernel.truth);
            assert_eq!(totals.io, Some(kernel.truth_io));
        });
    }

    #[test]
    fn inconsistent_input_terminates_and_totals_never_decrease(
        scans in prop::collection::vec(prop::collection::vec((1u32..6, 0u32..6, 0u64..9, 0u64..9), 0..6), 1..8)
    ) {
        let mut ledger = Ledger::default();
        let mut last = [0; 4];
        for scan in scans {
            let members = scan.into_iter().map(|(pid, parent, used, reaped)| {
                let process = Identity { pid, started: 7 };
                Member::made(process, parent, [used; 4], [reaped; 4], None)
            });
            let totals = ledger.update(members.collect());
            prop_assert!((0..4).all(|field| totals.used[field] >= last[field]));
            last = totals.used;
        }
    }
}

fn member(pid: u32, parent: u32, used: u64, reaped: u64, io: Option<u64>) -> Member {
    let process = Identity { pid, started: 7 };
    Member::made(
        process,
        parent,
        [used; 4],
        [reaped; 4],
        io.map(|io| [io; 4]),
    )
}

#[test]
fn a_worker_that_outlives_its_parent_and_the_tree_stays_counted() {
    let mut ledger = Ledger::default();
    ledger.update(vec![
        member(1, 0, 5, 0, Some(5)),
        member(2, 1, 5, 0, Some(5)),
        member(3, 2, 5, 0, Some(5)),
    ]);

    // Process 2 was reaped; process 3 is now the child of a process outside the tree.
    let orphaned = ledger.update(vec![
        member(1, 0, 5, 5, Some(10)),
        member(3, 0, 6, 0, Some(6)),
    ]);
    let ended = ledger.update(vec![member(1, 0, 5, 5, Some(10))]);

    assert_eq!((orphaned.used, orphaned.io), ([16; 4], Some([16; 4])));
    assert_eq!((ended.used, ended.io), ([16; 4], Some([16; 4])));
}

#[test]
fn a_child_and_a_grandchild_reaped_in_one_scan_are_counted_once() {
    let mut ledger = Ledger::default();
    ledger.update(vec![
        member(1, 0, 5, 0, Some(5)),
        member(2, 1, 5, 0, Some(5)),
        member(3, 2, 5, 0, Some(5)),
    ]);

    let totals = ledger.update(vec![member(1, 0, 6, 12, Some(18))]);

    assert_eq!((totals.used, totals.io), ([18; 4], Some([18; 4])));
}

#[test]
fn bytes_that_may_not_be_read_are_absent_until_the_parent_has_them() {
    let mut ledger = Ledger::default();
    let with = ledger.update(vec![member(1, 0, 5, 0, Some(5)), member(2, 1, 5, 0, None)]);
    let after = ledger.update(vec![member(1, 0, 5, 5, Some(12))]);

    assert_eq!((with.used, with.io), ([10; 4], None));
    assert_eq!((after.used, after.io), ([10; 4], Some([12; 4])));
}

#[test]
fn bytes_that_were_never_known_and_are_lost_leave_no_total() {
    let mut ledger = Ledger::default();
    ledger.update(vec![member(1, 0, 5, 0, Some(5)), member(2, 1, 5, 0, None)]);

    let after = ledger.update(vec![member(1, 0, 5, 0, Some(12))]);

    assert_eq!((after.used, after.io), ([10; 4], None));
}

#[test]
fn growth_after_a_loss_counts_again() {
    let mut ledger = Ledger::default();
    ledger.update(vec![
        member(1, 0, 5, 0, Some(5)),
        member(2, 1, 100, 0, Some(100)),
    ]);

    let lost = ledger.update(vec![member(1, 0, 6, 0, Some(6))]);
    let later = ledger.update(vec![member(1, 0, 9, 0, Some(9))]);

    assert_eq!((lost.used, lost.io), ([106; 4], Some([106; 4])));
    assert_eq!((later.used, later.io), ([109; 4], Some([109; 4])));
}
