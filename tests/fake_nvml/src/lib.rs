//! A scripted `libnvidia-ml.so.1`: NVML's C ABI over a JSON script and a virtual clock.
//!
//! Every exported function goes through [`world::call`] or [`world::on_device`], which count it,
//! apply the script's faults and check what NVML checks; what is left in each function is the
//! answer. README.md describes the script.
//!
//! It is not a model of a GPU: it returns the values of the script.

// The exported names are NVML's.
#![allow(non_snake_case)]
#![cfg_attr(old_driver, allow(dead_code))]

mod code;
mod control;
mod gpm_metrics;
mod identity;
mod layout;
mod memory;
mod pointer;
mod processes;
mod script;
mod sensors;
mod series;
mod system;
mod utilization;
mod world;

#[cfg(not(old_driver))]
mod fields;
#[cfg(not(old_driver))]
mod gpm;
#[cfg(not(old_driver))]
mod mig;
#[cfg(not(old_driver))]
mod newer;
