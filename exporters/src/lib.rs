//! Records out.
