//! Builds the fake NVML (`tests/fake_nvml`) and loads copies of it.
//!
//! cargo does not build a `cdylib` for the tests of another workspace member, so the first test that
//! needs it runs cargo. Because of cargo's lock, parallel test processes build it only once. Each
//! [`FakeNvml`] loads its own copy, so tests in one process do not share a clock.

#![allow(clippy::expect_used, clippy::panic, reason = "all of it is test code")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::{CString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::{Library, Symbol};
use serde_json::Value;

/// The name under which programs load the driver's library.
pub(crate) const FILE_NAME: &str = "libnvidia-ml.so.1";

/// The packages of the libraries of a current driver and of an old driver.
const PACKAGES: [&str; 2] = ["headspace-fake-nvml", "headspace-fake-nvml-old"];

/// A separate instance of the fake NVML, with its own clock, counters and script.
pub(crate) struct FakeNvml {
    library: Library,
    folder: tempfile::TempDir,
}

impl FakeNvml {
    /// Loads the library of a current driver, with this script.
    pub(crate) fn start(script: &Value) -> Self {
        Self::load(&built()[0], script)
    }

    /// Loads the library of an old driver, with this script.
    pub(crate) fn start_old_driver(script: &Value) -> Self {
        Self::load(&built()[1], script)
    }

    fn load(built: &Path, script: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE_NAME);
        std::fs::copy(built, &path).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        // SAFETY: the library is Rust code, and has no initialisers that run when it is loaded.
        let library = unsafe { Library::new(&path) }.expect("the fake NVML loads");
        let fake = Self { library, folder };
        fake.script(script);
        fake
    }

    /// The path of the library, for `lib_path`.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(FILE_NAME)
    }

    /// Loads a new script and resets the clock, the counters, the samples and the inits.
    pub(crate) fn script(&self, script: &Value) {
        let text = CString::new(script.to_string()).expect("JSON has no zero");
        // SAFETY: the type is that of `control.rs`.
        let function: Symbol<unsafe extern "C" fn(*const c_char) -> c_int> =
            unsafe { self.library.get(b"fake_nvml_script") }.expect("fake_nvml_script");
        // SAFETY: `text` is NUL-terminated and outlives the call.
        let refused = unsafe { function(text.as_ptr()) };
        assert_eq!(refused, 0, "the script is refused: {script}");
    }

    /// Loads a new script and initialises the library again: a new script resets the initialisation, and headspace
    /// initialises a driver only once.
    pub(crate) fn script_after_init(&self, script: &Value) {
        self.script(script);
        // SAFETY: the type is that of `nvml.h`.
        let function: Symbol<unsafe extern "C" fn() -> c_uint> =
            unsafe { self.library.get(b"nvmlInit_v2") }.expect("nvmlInit_v2");
        // SAFETY: the function takes no pointer.
        assert_eq!(unsafe { function() }, 0, "the driver starts");
    }

    /// Moves the clock forward by `seconds`.
    pub(crate) fn advance(&self, seconds: f64) {
        // SAFETY: the type is that of `control.rs`.
        let function: Symbol<unsafe extern "C" fn(f64)> =
            unsafe { self.library.get(b"fake_nvml_advance") }.expect("fake_nvml_advance");
        // SAFETY: the function takes no pointer.
        unsafe { function(seconds) }
    }

    /// How often a function was called, refused calls included.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("a name has no zero");
        // SAFETY: the type is that of `control.rs`.
        let function: Symbol<unsafe extern "C" fn(*const c_char) -> u64> =
            unsafe { self.library.get(b"fake_nvml_calls") }.expect("fake_nvml_calls");
        // SAFETY: `name` is NUL-terminated and outlives the call.
        unsafe { function(name.as_ptr()) }
    }

    /// Number of GPM samples that are allocated and not freed.
    pub(crate) fn samples_alive(&self) -> u64 {
        self.count(b"fake_nvml_samples_alive")
    }

    /// Successful inits minus shutdowns.
    pub(crate) fn inits_alive(&self) -> u64 {
        self.count(b"fake_nvml_inits_alive")
    }

    fn count(&self, function: &[u8]) -> u64 {
        // SAFETY: both counters have this type in `control.rs`.
        let function: Symbol<unsafe extern "C" fn() -> u64> =
            unsafe { self.library.get(function) }.expect("a counter");
        // SAFETY: the function takes no arguments.
        unsafe { function() }
    }
}

/// The paths of the two libraries. The first call builds them.
fn built() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--message-format", "json"]);
        // Uses the target folder of this test, however it was set.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        cargo.arg("--target-dir").args(target);
        cargo.args(PACKAGES.map(|package| format!("--package={package}")));
        cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let answer = cargo.output().expect("cargo runs");
        let messages = String::from_utf8_lossy(&answer.stdout);
        assert!(
            answer.status.success(),
            "cargo cannot build the fake NVML:\n{}\n{messages}",
            String::from_utf8_lossy(&answer.stderr)
        );
        PACKAGES.map(|package| artifact(&messages, package))
    })
}

/// The path of a package's shared library, from cargo's messages.
fn artifact(messages: &str, package: &str) -> PathBuf {
    let name = package.strip_prefix("headspace-").unwrap_or(package);
    let name = name.replace('-', "_");
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["name"] == name.as_str())
        .filter_map(|message| Some(PathBuf::from(message["filenames"][0].as_str()?)))
        .find(|path| path.extension().is_some_and(|end| end == "so"))
        .unwrap_or_else(|| panic!("cargo made no library of `{package}`:\n{messages}"))
}
