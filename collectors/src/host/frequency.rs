//! The source `frequency` reads the clock frequency of the cores that the process may use.
//!
//! Linux before 5.18 may sleep 10 ms or more for each core that it is asked about (`arch_freq_get_on_cpu`). So the source is
//! read in the background, and only a few cores are asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headspace_agent::model::{Reading, Scope, metric};
use headspace_agent::port::{CollectError, Collector, Pace};

use super::usable_cores::Limits;
use crate::procfs::{self, float};

/// This source's name.
pub const NAME: &str = "frequency";

/// What it reads.
pub const READS: &str = "clock frequency of the usable cores";

/// Maximum number of cores that are read.
const MOST_CORES: usize = 8;

const PACE: Duration = Duration::from_secs(2);

/// The source `frequency`.
#[derive(Debug)]
pub struct Frequency {
    files: Vec<PathBuf>,
    buffer: Vec<u8>,
}

impl Frequency {
    /// Watches cores of this machine.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the kernel reports no frequency.
    pub fn new() -> Result<Self, CollectError> {
        Self::with_root("/")
    }

    /// Watches the cores that `proc` and `sys` below `root` describe.
    ///
    /// # Errors
    ///
    /// [`CollectError::Unsupported`] if the kernel reports no frequency.
    pub fn with_root(root: impl AsRef<Path>) -> Result<Self, CollectError> {
        let root = root.as_ref();
        let mut limits = Limits::with_root(root);
        limits.read();
        let folder = procfs::below(root, "/sys/devices/system/cpu");
        let file = |core| folder.join(format!("cpu{core}/cpufreq/scaling_cur_freq"));
        let cores = limits.affinity().iter().map(file);
        let mut source = Self {
            files: cores.take(MOST_CORES).collect(),
            buffer: Vec::new(),
        };
        if source.mean_hertz().is_none() {
            let reason = format!(
                "`{}` reports no frequency of the cores, as in most virtual machines",
                folder.display()
            );
            return Err(CollectError::unsupported(reason));
        }
        Ok(source)
    }

    /// Mean over the cores that can be read.
    fn mean_hertz(&mut self) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        for file in &self.files {
            let kilohertz = procfs::read(file, &mut self.buffer).ok();
            let kilohertz = kilohertz.and_then(|bytes| procfs::number(bytes.trim_ascii()));
            if let Some(kilohertz) = kilohertz.filter(|kilohertz| *kilohertz > 0) {
                sum += 1e3 * float(kilohertz);
                count += 1.0;
            }
        }
        (count > 0.0).then_some(sum / count)
    }
}

impl Collector for Frequency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pace(&self) -> Pace {
        Pace::Background(PACE)
    }

    fn collect(&mut self, _at: Duration, out: &mut Vec<Reading>) -> Result<(), CollectError> {
        let before = out.len();
        let mean = [(&metric::HOST_CPU_FREQUENCY, self.mean_hertz())];
        procfs::append_plain(out, &Scope::Host, mean);
        procfs::anything_since(out, before, "no frequency could be read")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_frequency_is_the_mean_of_the_usable_cores() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/status", "Cpus_allowed_list:\t0,2\n");
        write("sys/devices/system/cpu/online", "0-2\n");
        for (core, kilohertz) in [(0, "2000000\n"), (1, "900000\n"), (2, "3000000\n")] {
            let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
            write(&path, kilohertz);
        }
        let mut out = Vec::new();

        let mut source = Frequency::with_root(root.path()).unwrap();
        source.collect(Duration::ZERO, &mut out).unwrap();

        assert_eq!(out.len(), 1);
        assert!((out[0].value - 2.5e9).abs() < 1.0, "{out:?}");
    }

    #[test]
    fn a_machine_without_frequencies_has_no_source() {
        let root = tempfile::tempdir().unwrap();

        assert!(Frequency::with_root(root.path()).is_err());
    }
}
