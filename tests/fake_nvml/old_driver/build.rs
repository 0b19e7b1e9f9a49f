//! Gives the library the soname of the driver's library, and sets `cfg(old_driver)`, which leaves
//! out the functions that an old driver lacks.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(old_driver)");
    println!("cargo:rustc-cfg=old_driver");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
