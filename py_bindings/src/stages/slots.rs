//! Where the stages and queues of this process are counted.
//!
//! The slots outlive sessions: a decorator takes one at import, long before a session starts and
//! also where none ever does. A forked child has slots of its own, since its parent's are the
//! parent's to write.
//!
//! | this process | its slots are |
//! |---|---|
//! | trains: it has, or is about to have, a session | its own, read by its sampler |
//! | descends from one that trains | in a file that the trainer reads too |
//! | neither, as far as it knows | its own; about once a second it looks again, while stages are called |

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

use headspace_agent::record::stage::{Region, Slots};
use headspace_agent::runtime::fork::Owner;
use headspace_collectors::workers::{Folders, Marker, WorkerFile};
use pyo3::prelude::*;

use crate::session::clock;

/// A process, and which slots it counted in: a call that began elsewhere is not to be ended here.
#[derive(Clone, Copy)]
pub(crate) struct Tenure {
    owner: Owner,
    number: u32,
}

/// Bumped where this process gets other slots without a fork.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Tenure {
    /// This process with the slots it has now.
    pub(crate) fn here() -> Self {
        Self {
            owner: Owner::here(),
            number: NUMBER.load(Ordering::Acquire),
        }
    }

    /// Whether it still is.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.owner.is_here() && self.number == NUMBER.load(Ordering::Relaxed)
    }
}

/// The slots, the process that may write them, and whom it counts for.
struct Here {
    owner: Owner,
    slots: Slots,
    /// Set once the process trains.
    trains: OnceLock<Marker>,
    /// The trainer that it counts for.
    works_for: Option<(Marker, WorkerFile)>,
}

/// Null, or the slots of this process or of one that it was forked from. Never freed: handles keep
/// references.
static HERE: AtomicPtr<Here> = AtomicPtr::new(std::ptr::null_mut());

/// When to look again whom this process counts for, as a time stamp of the clock.
static LOOK_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Where trainers and workers find each other.
static PLACES: LazyLock<Folders> = LazyLock::new(Folders::of_this_machine);

/// The slots of this process; `None` where the system gives no memory for them. The interpreter lock
/// is held.
///
/// No lock of ours: a thread that held one may not have come along through a fork.
pub(crate) fn slots() -> Option<&'static Slots> {
    if let Some(here) = known().filter(|here| here.owner.is_here()) {
        return Some(&here.slots);
    }
    let made = match join() {
        Some(worker) => worker,
        None => alone()?,
    };
    look_in_a_second();
    install(made).map(|here| &here.slots)
}

/// Whether it is time for [`look_again`], by the time stamp of a call.
#[inline]
pub(crate) fn is_time_to_look(ticks: u64) -> bool {
    ticks >= LOOK_AT.load(Ordering::Relaxed)
}

/// Looks for a trainer where there was none, or where it is no more. The interpreter lock is held.
#[cold]
pub(crate) fn look_again() {
    look_in_a_second();
    let Some(here) = known().filter(|here| here.owner.is_here()) else {
        return;
    };
    if here.trains.get().is_some() {
        LOOK_AT.store(u64::MAX, Ordering::Relaxed);
        return;
    }
    let is_read = |(_, file): &(Marker, WorkerFile)| file.is_wanted();
    if !here.works_for.as_ref().is_some_and(is_read)
        && let Some(worker) = join()
    {
        install(worker);
    }
}

/// This process has a session now: its slots are its own, and its children count for it. `None`
/// where there is no place to say so.
pub(crate) fn train() -> Option<(&'static Slots, Option<Marker>)> {
    let here = match known().filter(|here| here.owner.is_here()) {
        Some(here) if here.works_for.is_none() => here,
        before => {
            if let Some((_, file)) = before.and_then(|here| here.works_for.as_ref()) {
                file.finish();
            }
            install(alone()?)?
        }
    };
    let marker = PLACES.mark().ok();
    if let Some(marker) = &marker {
        let _ = here.trains.set(marker.clone());
    }
    LOOK_AT.store(u64::MAX, Ordering::Relaxed);
    Some((&here.slots, marker))
}

/// A loop is about to begin: workers that are forked for it are to find this process. What was
/// forked from a process that trains is no trainer. Gives the marker if it is new; every epoch but
/// the first has one already.
pub(crate) fn train_unless_forked() -> Option<Marker> {
    let is_marked =
        |here: &Here| here.owner.is_here() && here.trains.get().is_some_and(Marker::stands);
    if known().is_some_and(is_marked) {
        return None;
    }
    if known().is_some_and(|here| !here.owner.is_here() && here.run().is_some()) {
        return None;
    }
    train()?.1.filter(Marker::is_new)
}

/// Removes what trainers left that were killed.
pub(crate) fn sweep() {
    PLACES.sweep();
}

/// Whether a process that this one descends from trains, and has it make batches as far as that can be
/// told.
#[pyfunction]
pub(crate) fn works_for_another() -> bool {
    let here = known().filter(|here| here.owner.is_here());
    here.is_some_and(|here| here.works_for.is_some()) || PLACES.nearest().is_some()
}

/// The process ends in order. Nothing where it counts for nobody, and in what was forked from it.
#[pyfunction]
pub(crate) fn finish_worker() {
    let here = known().filter(|here| here.owner.is_here());
    if let Some((_, file)) = here.and_then(|here| here.works_for.as_ref()) {
        file.finish();
    }
}

impl Here {
    /// The trainer that a child of this process counts for.
    fn run(&self) -> Option<&Marker> {
        let works_for = self.works_for.as_ref().map(|(marker, _)| marker);
        self.trains.get().or(works_for)
    }
}

fn known() -> Option<&'static Here> {
    // SAFETY: null, or made by `install` and never freed.
    unsafe { HERE.load(Ordering::Acquire).as_ref() }
}

/// From now on these slots are this process's.
fn install(made: Here) -> Option<&'static Here> {
    let before = HERE.load(Ordering::Acquire);
    // SAFETY: as in `known`.
    let was_here = unsafe { before.as_ref() }.is_some_and(|here| here.owner.is_here());
    let made = Box::into_raw(Box::new(made));
    match HERE.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if was_here {
                NUMBER.fetch_add(1, Ordering::Release);
            }
            // SAFETY: from `Box::into_raw`, and never freed.
            unsafe { made.as_ref() }
        }
        Err(theirs) => {
            // SAFETY: from `Box::into_raw` above, and shown to nobody. A region that it has stays
            // mapped: untouched pages, once.
            let unused = unsafe { Box::from_raw(made) };
            if let Some((_, file)) = &unused.works_for {
                file.discard();
            }
            // SAFETY: stored by another thread that was faster, which never frees it.
            unsafe { theirs.as_ref() }
        }
    }
}

/// Slots that nobody else sees.
fn alone() -> Option<Here> {
    Some(Here {
        owner: Owner::here(),
        slots: Slots::new(Region::private().ok()?),
        trains: OnceLock::new(),
        works_for: None,
    })
}

/// Slots in a file for the nearest trainer that this process descends from.
fn join() -> Option<Here> {
    let before = known().filter(|here| !here.owner.is_here());
    let inherited = before.and_then(Here::run).cloned();
    let marker = inherited.or_else(|| PLACES.nearest())?;
    let (label, ended_at_rest) =
        describe_worker(before.is_some_and(|here| here.works_for.is_some()));
    let create = |marker: &Marker| WorkerFile::create(marker, label.as_deref(), ended_at_rest).ok();
    let (marker, file) = match create(&marker) {
        Some(file) => (marker, file),
        // The session that was inherited has ended; there may be another.
        None if before.is_some() => {
            let marker = PLACES.nearest()?;
            let file = create(&marker)?;
            (marker, file)
        }
        None => return None,
    };
    file.note_termination(&marker);
    Some(Here {
        owner: Owner::here(),
        slots: file.slots(),
        trains: OnceLock::new(),
        works_for: Some((marker, file)),
    })
}

/// What Python knows of this worker; it is asked to tell of a normal end, too.
fn describe_worker(forked_from_worker: bool) -> (Option<String>, bool) {
    Python::attach(|py| {
        let describe = py
            .import("headspace._processes.worker")?
            .getattr("describe_worker")?;
        describe.call1((forked_from_worker,))?.extract()
    })
    .unwrap_or_default()
}

fn look_in_a_second() {
    /// The clock's ticks of a second.
    static SECOND: LazyLock<u64> = LazyLock::new(|| {
        const MANY: u64 = 1 << 32;
        let nanos = u128::from(clock().starting_at(0).nanos(MANY)).max(1);
        u64::try_from((u128::from(MANY) * 1_000_000_000) / nanos).unwrap_or(u64::MAX)
    });

    LOOK_AT.store(clock().ticks().saturating_add(*SECOND), Ordering::Relaxed);
}
