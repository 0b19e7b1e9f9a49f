//! Where the stages and queues of this process are counted.
//!
//! The slots outlive sessions: a decorator takes one at import, long before a session starts and
//! also where none ever does. A forked child has slots of its own, since its parent's are the
//! parent's to write.

use std::sync::atomic::{AtomicPtr, Ordering};

use headspace_agent::record::stage::{Region, Slots};
use headspace_agent::runtime::fork::Owner;

/// The slots, and the process that may write them.
struct Here {
    owner: Owner,
    slots: Slots,
}

/// Null, or the slots of this process or of one that it was forked from. Never freed: handles keep
/// references.
static HERE: AtomicPtr<Here> = AtomicPtr::new(std::ptr::null_mut());

/// The slots of this process; `None` where the system gives no memory for them.
///
/// No lock: a thread that held one may not have come along through a fork.
pub(crate) fn slots() -> Option<&'static Slots> {
    let known = HERE.load(Ordering::Acquire);
    // SAFETY: not null, hence made by `make` and never freed.
    if let Some(here) = unsafe { known.as_ref() }
        && here.owner.is_here()
    {
        return Some(&here.slots);
    }
    let made = Box::into_raw(Box::new(Here {
        owner: Owner::here(),
        slots: Slots::new(region()?),
    }));
    let chosen = match HERE.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        // Another thread was faster. Ours stays unused: untouched pages, once.
        Err(theirs) => theirs,
    };
    // SAFETY: from `Box::into_raw`, here or in the thread that was faster, and never freed.
    unsafe { chosen.as_ref() }.map(|here| &here.slots)
}

/// Memory for the slots of this process.
fn region() -> Option<&'static Region> {
    Region::private().ok()
}
