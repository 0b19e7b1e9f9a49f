//! Selects the memory in which this process counts its stages and queues: its own, or a file for its trainer.
//!
//! The slots outlive sessions. A decorator gets its slot at import, long before a session starts, or without
//! any session. A forked child has slots of its own, because only the parent may write the parent's.
//!
//! | this process | its slots are |
//! |---|---|
//! | is a trainer: it has, or is about to have, a session | in its own memory, read by its sampler |
//! | descends from a trainer, or serves a sibling that is one (`count_for_sibling`) | in a file that the trainer also reads |
//! | neither, or unknown | in its own memory |
//!
//! A process of the last kind searches for a trainer about once a second, while stages are called.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

use headspace_agent::recording::stage::{Region, Slots, Switches};
use headspace_agent::runtime::fork::Owner;
use headspace_collectors::workers::{Folders, Marker, WorkerFile, create_switches, open_switches};
use pyo3::prelude::*;

use crate::clock::clock;
use crate::interpreter::calls::call_method;

/// A process and its slots at some time. A call that began in another process, or in other slots, must not be
/// ended here.
#[derive(Clone, Copy)]
pub(crate) struct Tenure {
    owner: Owner,
    number: u32,
}

/// Incremented when this process gets other slots without a fork.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Tenure {
    /// This process with its present slots.
    pub(crate) fn here() -> Self {
        Self {
            owner: Owner::here(),
            number: NUMBER.load(Ordering::Acquire),
        }
    }

    /// Whether it is this process, and the slots are unchanged.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.owner.is_here() && self.number == NUMBER.load(Ordering::Relaxed)
    }
}

/// The slots, the process that may write them, and the trainer for which it counts.
struct ProcessSlots {
    owner: Owner,
    slots: Slots,
    /// Set when the process becomes a trainer.
    trains: OnceLock<Marker>,
    /// The trainer for which it counts.
    works_for: Option<(Marker, WorkerFile)>,
}

/// Null, or the slots of this process or of an ancestor. Never freed, because handles keep references.
static CURRENT: AtomicPtr<ProcessSlots> = AtomicPtr::new(std::ptr::null_mut());

/// Null, or the switches of the trainer: of this process, of an ancestor, or of the process for which it counts. Never
/// unmapped.
static SWITCHES: AtomicPtr<Switches> = AtomicPtr::new(std::ptr::null_mut());

/// Whether this process may count for a trainer that is not its ancestor.
static COUNTS_FOR_SIBLING: AtomicBool = AtomicBool::new(false);

/// Time stamp of the next search for a trainer.
static SEARCH_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// The folders in which workers find their trainers.
pub(crate) static FOLDERS: LazyLock<Folders> = LazyLock::new(Folders::of_this_machine);

/// The slots of this process, or None if the system has no memory for them. The interpreter lock is held.
///
/// This takes no lock of ours: after a fork, a thread of the parent may hold it for ever.
pub(crate) fn slots() -> Option<&'static Slots> {
    if let Some(own) = own() {
        return Some(&own.slots);
    }
    let new = match join_trainer() {
        Some(worker) => worker,
        None => in_own_memory()?,
    };
    search_in_a_second();
    install(new).map(|own| &own.slots)
}

/// Searches for a trainer about once a second, by the time stamp of a call. This may run Python code, so the
/// caller must hold no lock of ours. The interpreter lock is held.
#[inline]
pub(crate) fn search_if_due(ticks: u64) {
    if ticks >= SEARCH_AT.load(Ordering::Relaxed) {
        search_for_trainer();
    }
}

/// Searches for a trainer if this process has none, or its trainer has ended. The interpreter lock is held.
#[cold]
fn search_for_trainer() {
    search_in_a_second();
    let Some(own) = own() else {
        return;
    };
    if own.trains.get().is_some() {
        SEARCH_AT.store(u64::MAX, Ordering::Relaxed);
        return;
    }
    if let (Some((marker, _)), false) = (&own.works_for, has_switches()) {
        // The trainer may have begun to ask what-ifs after this process joined it.
        use_switches(open_switches(marker));
    }
    let is_read = |(_, file): &(Marker, WorkerFile)| file.is_wanted();
    if !own.works_for.as_ref().is_some_and(is_read)
        && let Some(worker) = join_trainer()
    {
        install(worker);
    }
}

/// This process becomes a trainer: its slots are in its own memory, and its children count for it. None if
/// the system has no memory for slots.
pub(crate) fn become_trainer() -> Option<(&'static Slots, Option<Marker>)> {
    let own = match own() {
        Some(own) if own.works_for.is_none() => own,
        _ => {
            finish_worker();
            install(in_own_memory()?)?
        }
    };
    let marker = FOLDERS.mark().ok();
    if let Some(marker) = &marker
        && own.trains.set(marker.clone()).is_ok()
    {
        // Those of an ancestor, if any.
        use_switches(None);
    }
    SEARCH_AT.store(u64::MAX, Ordering::Relaxed);
    Some((&own.slots, marker))
}

/// Before a loop forks its workers, makes this process a trainer that they can find. A process forked from a
/// trainer, or from its worker, does not become one. Returns the marker if it is new, usually in the first
/// epoch only.
pub(crate) fn become_trainer_unless_forked() -> Option<Marker> {
    let is_marked = |own: &ProcessSlots| own.trains.get().is_some_and(Marker::exists);
    let is_forked = || current().is_some_and(|slots| slots.trainer().is_some());
    if own().map_or_else(is_forked, is_marked) {
        return None;
    }
    become_trainer()?.1.filter(Marker::is_new)
}

/// Whether stages can be changed in this process.
#[inline]
pub(crate) fn has_switches() -> bool {
    !SWITCHES.load(Ordering::Relaxed).is_null()
}

/// The switches that change stages in this process. None unless its trainer asks what-ifs.
pub(crate) fn switches() -> Option<&'static Switches> {
    // SAFETY: null, or stored by `use_switches`, which gets a reference that is valid for ever.
    unsafe { SWITCHES.load(Ordering::Acquire).as_ref() }
}

fn use_switches(switches: Option<&'static Switches>) {
    let switches = switches.map_or(std::ptr::null_mut(), |switches| {
        std::ptr::from_ref(switches).cast_mut()
    });
    if SWITCHES.swap(switches, Ordering::AcqRel) != switches {
        // Handles look up their switches.
        NUMBER.fetch_add(1, Ordering::Release);
    }
}

/// Makes switches for the stages of this process and of its workers. It must be a trainer.
///
/// # Errors
///
/// The system's error: the process is no trainer, or it cannot create a file that its workers map.
pub(crate) fn make_switches() -> io::Result<&'static Switches> {
    let marker = own().and_then(|own| own.trains.get());
    let made = create_switches(marker.ok_or(io::ErrorKind::NotFound)?)?;
    use_switches(Some(made));
    Ok(made)
}

/// Whether this process descends from a trainer, and so probably makes batches for that trainer.
#[pyfunction]
pub(crate) fn works_for_another() -> bool {
    own().is_some_and(|own| own.works_for.is_some()) || FOLDERS.nearest().is_some()
}

/// This process serves trainers that have the same parent as it. Without a trainer among its ancestors, it counts for the
/// one of them with the lowest rank.
#[pyfunction]
pub(crate) fn count_for_sibling() {
    COUNTS_FOR_SIBLING.store(true, Ordering::Relaxed);
}

/// The trainer for which this process counts, if it inherits none.
fn find_trainer() -> Option<Marker> {
    let sibling = || {
        let counts = COUNTS_FOR_SIBLING.load(Ordering::Relaxed);
        counts.then(|| FOLDERS.sibling_trainer()).flatten()
    };
    FOLDERS.nearest().or_else(sibling)
}

/// Records that this process exits normally. Has no effect in a process without a trainer, or in a forked
/// child.
#[pyfunction]
pub(crate) fn finish_worker() {
    if let Some((_, file)) = own().and_then(|own| own.works_for.as_ref()) {
        file.finish();
    }
}

/// The marker of this process, if it is a trainer.
pub(crate) fn own_marker() -> Option<&'static Marker> {
    own()?.trains.get()
}

/// The marker of the trainer for which this process counts.
pub(crate) fn trainer() -> Option<&'static Marker> {
    own()?.works_for.as_ref().map(|(marker, _)| marker)
}

impl ProcessSlots {
    /// The trainer for which a child of this process counts.
    fn trainer(&self) -> Option<&Marker> {
        let works_for = self.works_for.as_ref().map(|(marker, _)| marker);
        self.trains.get().or(works_for)
    }
}

/// The slots of this process, or of an ancestor if this process has none yet.
fn current() -> Option<&'static ProcessSlots> {
    // SAFETY: null, or created by `install` and never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

fn own() -> Option<&'static ProcessSlots> {
    current().filter(|slots| slots.owner.is_here())
}

/// Makes these slots the slots of this process, unless another thread was faster. Returns the slots in force.
fn install(new: ProcessSlots) -> Option<&'static ProcessSlots> {
    let before = CURRENT.load(Ordering::Acquire);
    // SAFETY: as in `current`.
    let replaces_own = unsafe { before.as_ref() }.is_some_and(|slots| slots.owner.is_here());
    let new = Box::into_raw(Box::new(new));
    match CURRENT.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if replaces_own {
                NUMBER.fetch_add(1, Ordering::Release);
            }
            // SAFETY: from `Box::into_raw`, and never freed.
            unsafe { new.as_ref() }
        }
        Err(theirs) => {
            // SAFETY: from `Box::into_raw` above, and no other code has seen it. Its region stays mapped,
            // which costs untouched pages once.
            let unused = unsafe { Box::from_raw(new) };
            if let Some((_, file)) = &unused.works_for {
                file.discard();
            }
            // SAFETY: stored by another thread, which never frees it.
            unsafe { theirs.as_ref() }
        }
    }
}

/// Slots that no other process reads.
fn in_own_memory() -> Option<ProcessSlots> {
    Some(ProcessSlots {
        owner: Owner::here(),
        slots: Slots::new(Region::private().ok()?),
        trains: OnceLock::new(),
        works_for: None,
    })
}

/// Slots in a file for the trainer of this process.
fn join_trainer() -> Option<ProcessSlots> {
    let parent = current().filter(|slots| !slots.owner.is_here());
    let inherited = parent.and_then(ProcessSlots::trainer).cloned();
    let marker = inherited.or_else(find_trainer)?;
    let (label, ended_while_idle) =
        describe_worker(parent.is_some_and(|parent| parent.works_for.is_some()));
    let create = |marker: Marker| {
        let file = WorkerFile::create(&marker, label.as_deref(), ended_while_idle).ok()?;
        Some((marker, file))
    };
    // The session of an inherited trainer may have ended. There may be another trainer.
    let retry = || create(parent.and_then(|_| FOLDERS.nearest())?);
    let (marker, file) = create(marker).or_else(retry)?;
    file.note_termination(&marker);
    use_switches(open_switches(&marker));
    Some(ProcessSlots {
        owner: Owner::here(),
        slots: file.slots(),
        trains: OnceLock::new(),
        works_for: Some((marker, file)),
    })
}

/// The label of this worker, and whether it ended at rest, from Python. Python also registers
/// `finish_worker`.
fn describe_worker(forked_from_worker: bool) -> (Option<String>, bool) {
    Python::attach(|py| {
        let module = py.import("headspace._processes.worker")?;
        call_method(&module, "describe_worker", (forked_from_worker,))?.extract()
    })
    .unwrap_or_default()
}

fn search_in_a_second() {
    /// Ticks of the clock per second.
    static SECOND: LazyLock<u64> = LazyLock::new(|| {
        const MANY: u64 = 1 << 32;
        let nanos = u128::from(clock().starting_at(0).nanos(MANY)).max(1);
        u64::try_from((u128::from(MANY) * 1_000_000_000) / nanos).unwrap_or(u64::MAX)
    });

    SEARCH_AT.store(clock().ticks().saturating_add(*SECOND), Ordering::Relaxed);
}
