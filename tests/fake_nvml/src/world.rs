//! The library's global state, and the wrappers that every exported function runs in.
//!
//! One mutex guards the state. An injected delay sleeps without the mutex, so a slow call does not
//! block calls on other threads.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_uint;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::code::{Answer, Code, INVALID_ARGUMENT, NOT_SUPPORTED, UNINITIALIZED, returned};
use crate::pointer::Handle;
use crate::script::{ClockKind, Fault, Gpu, MigDevice, Script};
use crate::series::Series;

/// Environment variable with the script: JSON, or `@` followed by the path of a JSON file.
const VARIABLE: &str = "HEADSPACE_FAKE_NVML";

/// The first device handle. It is large, so zero or a small number is never a valid handle.
const HANDLES: usize = 0x00fa_4e00_0000;
/// Handles of one GPU: its own, and one for each MIG device.
const HANDLES_PER_GPU: usize = 0x100;

/// Functions that a fault with the function `*` does not affect.
const SPARED: &[&str] = &[
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlErrorString",
];

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    Mutex::new(match written() {
        Ok(script) => World::new(script, None),
        Err(problem) => {
            eprintln!("fake_nvml: `{VARIABLE}` is refused: {problem}");
            World::new(Script::default(), Some(problem))
        }
    })
});

/// Source and time of one GPM sample. `instance` is set if the sample is of a GPU instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stamp {
    pub(crate) gpu: usize,
    pub(crate) instance: Option<c_uint>,
    /// Seconds.
    pub(crate) time: f64,
}

/// The whole state of the library.
pub(crate) struct World {
    pub(crate) gpus: Vec<Arc<Gpu>>,
    pub(crate) script: Script,
    /// Why the script cannot be used. If set, every `nvmlInit` call fails.
    pub(crate) refused: Option<String>,
    /// The process that loaded the library.
    pub(crate) pid: c_uint,
    /// Successful inits minus shutdowns.
    pub(crate) inits: u64,
    pub(crate) calls: BTreeMap<String, u64>,
    /// GPM samples that are allocated and not freed. The value is `None` until a sample is filled.
    pub(crate) samples: HashMap<usize, Option<Stamp>>,
    pub(crate) next_sample: usize,
    began: Instant,
    /// Seconds.
    advanced: f64,
}

/// The device that a call names.
pub(crate) struct Target {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) index: usize,
    /// Index of the MIG device on its GPU. `None` for the whole GPU.
    pub(crate) mig: Option<usize>,
    /// Seconds.
    pub(crate) now: f64,
}

impl World {
    pub(crate) fn new(mut script: Script, refused: Option<String>) -> Self {
        Self {
            gpus: script.devices.drain(..).map(Arc::new).collect(),
            script,
            refused,
            pid: std::process::id(),
            inits: 0,
            calls: BTreeMap::new(),
            samples: HashMap::new(),
            next_sample: 1,
            began: Instant::now(),
            advanced: 0.0,
        }
    }

    /// The clock's time, in seconds.
    pub(crate) fn now(&self) -> f64 {
        match self.script.clock {
            ClockKind::Virtual => self.advanced,
            ClockKind::Real => self.advanced + self.began.elapsed().as_secs_f64(),
        }
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&mut self, seconds: f64) {
        self.advanced += seconds;
    }

    /// The handle of a GPU, or of a MIG device on it.
    pub(crate) fn handle(gpu: usize, mig: Option<usize>) -> Handle {
        Handle(HANDLES + gpu * HANDLES_PER_GPU + mig.map_or(0, |index| index + 1))
    }

    /// The device behind a handle.
    pub(crate) fn target(&self, handle: Handle) -> Result<Target, Code> {
        let offset = handle.0.checked_sub(HANDLES).ok_or(INVALID_ARGUMENT)?;
        let index = offset / HANDLES_PER_GPU;
        let gpu = Arc::clone(self.gpus.get(index).ok_or(INVALID_ARGUMENT)?);
        let mig = (offset % HANDLES_PER_GPU).checked_sub(1);
        let target = Target {
            gpu,
            index,
            mig,
            now: self.now(),
        };
        if mig.is_some() && target.mig_device().is_none() {
            return Err(INVALID_ARGUMENT);
        }
        Ok(target)
    }

    /// Counts the call. Returns the delay and the error code that the script injects into it.
    fn enter(&mut self, function: &str, gpu: Option<usize>) -> (Duration, Option<Code>) {
        let count = self.calls.entry(function.to_owned()).or_insert(0);
        *count += 1;
        let (call, now) = (*count, self.now());
        let mut delay = 0;
        let mut code = None;
        for fault in &self.script.faults {
            if applies(fault, function, gpu, now, call) {
                delay += fault.delay_ms;
                code = code.or(fault.code.map(Code));
            }
        }
        (Duration::from_millis(delay), code)
    }
}

impl Target {
    /// The MIG device, if the call names one and MIG is on.
    pub(crate) fn mig_device(&self) -> Option<&MigDevice> {
        let mig = self.gpu.mig.as_ref().filter(|mig| mig.enabled)?;
        mig.devices.get(self.mig?)
    }

    /// Whether MIG is on for this GPU.
    pub(crate) fn is_split(&self) -> bool {
        self.gpu.mig.as_ref().is_some_and(|mig| mig.enabled)
    }

    /// Refuses MIG devices. For functions that NVML answers only for a whole GPU.
    pub(crate) fn whole(&self) -> Answer {
        if self.mig.is_some() {
            return Err(NOT_SUPPORTED);
        }
        Ok(())
    }

    /// Refuses MIG devices and GPUs with MIG on. For functions that NVML does not answer under MIG.
    pub(crate) fn unsplit(&self) -> Answer {
        if self.is_split() {
            return Err(NOT_SUPPORTED);
        }
        Ok(())
    }

    /// The current value of a series.
    pub(crate) fn read(&self, series: Option<&Series>) -> Result<f64, Code> {
        series
            .and_then(|series| series.at(self.now))
            .ok_or(NOT_SUPPORTED)
    }

    /// The integral of a rate from second 0 until now.
    pub(crate) fn total(&self, rate: Option<&Series>) -> Result<f64, Code> {
        self.read(rate)?;
        Ok(rate.map_or(0.0, |rate| rate.integral(0.0, self.now)))
    }
}

/// Locks the world, even if a thread that held the lock panicked.
pub(crate) fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a function that takes no device.
pub(crate) fn call(function: &str, answer: impl FnOnce(&mut World) -> Answer) -> c_uint {
    returned(run(function, None, true, answer))
}

/// Runs a function that concerns a GPU but does not take its handle.
pub(crate) fn call_about(
    function: &str,
    gpu: Option<usize>,
    answer: impl FnOnce(&mut World) -> Answer,
) -> c_uint {
    returned(run(function, gpu, true, answer))
}

/// Runs a function that may be called before `nvmlInit`.
pub(crate) fn call_uninitialized(
    function: &str,
    answer: impl FnOnce(&mut World) -> Answer,
) -> c_uint {
    returned(run(function, None, false, answer))
}

/// Runs a function that takes a device handle.
pub(crate) fn on_device(
    function: &str,
    device: Handle,
    answer: impl FnOnce(&mut World, &Target) -> Answer,
) -> c_uint {
    let gpu = world().target(device).ok().map(|target| target.index);
    returned(run(function, gpu, true, |world| {
        let target = world.target(device)?;
        answer(world, &target)
    }))
}

fn run(
    function: &str,
    gpu: Option<usize>,
    initialized: bool,
    answer: impl FnOnce(&mut World) -> Answer,
) -> Answer {
    let (delay, code) = world().enter(function, gpu);
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
    if let Some(code) = code {
        return Err(code);
    }
    let mut world = world();
    if initialized && world.inits == 0 {
        return Err(UNINITIALIZED);
    }
    answer(&mut world)
}

fn applies(fault: &Fault, function: &str, gpu: Option<usize>, now: f64, call: u64) -> bool {
    let named = if fault.function == "*" {
        !SPARED.contains(&function)
    } else {
        fault.function == function
    };
    named
        && (fault.device.is_none() || fault.device == gpu)
        && fault.from_time.is_none_or(|from| now >= from)
        && fault.until_time.is_none_or(|until| now < until)
        && fault.from_call.is_none_or(|from| call >= from)
        && fault.until_call.is_none_or(|until| call < until)
}

/// Reads the script from the environment, or returns the default script.
fn written() -> Result<Script, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => parse(&text),
        Err(std::env::VarError::NotPresent) => Ok(Script::default()),
        Err(problem) => Err(problem.to_string()),
    }
}

/// Parses a script from JSON, or from the file whose path follows `@`.
pub(crate) fn parse(text: &str) -> Result<Script, String> {
    let json = match text.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|e| format!("cannot read `{path}`: {e}"))?
        }
        None => text.to_owned(),
    };
    serde_json::from_str(&json).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> Fault {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_fault_applies_from_its_first_call_until_before_its_last() {
        let third = fault(r#"{"function": "f", "from_call": 3, "until_call": 4}"#);

        let hit = [2, 3, 4].map(|call| applies(&third, "f", None, 0.0, call));

        assert_eq!(hit, [false, true, false]);
    }

    #[test]
    fn a_star_means_every_function_except_init_and_shutdown() {
        let lost = fault(r#"{"function": "*", "device": 1, "code": 15, "from_time": 5}"#);

        assert!(applies(&lost, "nvmlDeviceGetName", Some(1), 5.0, 1));
        assert!(!applies(&lost, "nvmlDeviceGetName", Some(0), 5.0, 1));
        assert!(!applies(&lost, "nvmlDeviceGetName", Some(1), 4.0, 1));
        assert!(!applies(&lost, "nvmlShutdown", Some(1), 5.0, 1));
    }

    #[test]
    fn only_a_valid_handle_resolves_to_a_device() {
        let world = World::new(Script::default(), None);

        assert_eq!(world.target(World::handle(0, None)).unwrap().index, 0);
        assert!(world.target(World::handle(1, None)).is_err());
        assert!(world.target(World::handle(0, Some(0))).is_err());
        assert!(world.target(Handle(0)).is_err());
    }
}
