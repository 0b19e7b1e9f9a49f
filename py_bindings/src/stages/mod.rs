//! Stages and queues that Python code declares: their calls, counted from any thread.

pub(crate) mod calls;
pub(crate) mod fast_block;
pub(crate) mod queues;
pub(crate) mod slots;
pub(crate) mod stage;
pub(crate) mod task;
pub(crate) mod timed_call;
