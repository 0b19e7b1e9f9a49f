//! Stages and queues that Python code declares: calls of stages, counted on any thread, and depths of queues.

pub(crate) mod call_across_frames;
pub(crate) mod changed_calls;
pub(crate) mod declare;
pub(crate) mod fast_calls;
pub(crate) mod handles_by_name;
pub(crate) mod how_ended;
pub(crate) mod local_switch;
pub(crate) mod loop_body;
pub(crate) mod open_calls;
pub(crate) mod process_slots;
pub(crate) mod queue_depths;
pub(crate) mod stage;
pub(crate) mod timed_function;
