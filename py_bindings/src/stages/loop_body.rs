//! Which threads execute the body of a loop that has a what-if. Stages that the body calls are the training itself, so they
//! are not changed.

use std::cell::Cell;

use headspace_agent::runtime::fork::Owner;

thread_local! {
    /// The process in which this thread executes the body of a loop that has a what-if. None outside it.
    static LOOP_BODY: Cell<Option<Owner>> = const { Cell::new(None) };
}

/// Notes that this thread executes the loop's body from now on, or no longer.
pub(crate) fn set_in_loop_body(is_in_body: bool) {
    let owner = is_in_body.then(Owner::here);
    let _ = LOOP_BODY.try_with(|body| body.set(owner));
}

/// Whether this thread executes the loop's body.
pub(crate) fn is_in_loop_body() -> bool {
    let body = LOOP_BODY.try_with(Cell::get).ok().flatten();
    body.is_some_and(Owner::is_here)
}
