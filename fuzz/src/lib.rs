//! Common parts of the fuzz targets.

pub mod outputs;
pub mod run_files;
pub mod schema_records;
pub mod seeds;
