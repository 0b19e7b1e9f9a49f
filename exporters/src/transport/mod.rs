//! Destinations, one a module. Siblings do not import each other.

pub mod file;
pub mod pipe;
pub mod prometheus;
pub mod textfile;
