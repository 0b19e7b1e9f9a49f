//! Gives the library the driver's name, and leaves out what an old driver lacks (`cfg(old_driver)`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(old_driver)");
    println!("cargo:rustc-cfg=old_driver");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
