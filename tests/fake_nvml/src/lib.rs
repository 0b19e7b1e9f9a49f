//! A fake `libnvidia-ml.so.1`: NVML's C ABI, driven by a JSON script and a virtual clock.
//!
//! Every exported NVML function runs inside a wrapper such as [`world::call`] or
//! [`world::on_device`]. The wrapper counts the call, injects the script's faults and checks that
//! NVML is initialised. The function itself only computes the answer. README.md describes the
//! script.
//!
//! The library does not model a GPU: it returns the values of the script.

// NVML defines the exported names.
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
