//! Command.
