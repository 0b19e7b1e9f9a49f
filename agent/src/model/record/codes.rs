//! Stable names in records, as enums.
//!
//! Code compares the enums, not the texts. A field whose names may grow is text in its record, so that a reader
//! accepts a name that a newer version added.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

/// The variant of an enum that has this name in the records.
pub(in crate::model) fn named<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
    let name: StrDeserializer<'a, Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

/// Declares an enum, with a function that returns the name of a value, and one that finds the value of a name.
macro_rules! codes {
    ($(#[$doc:meta])+ $type:ident { $($(#[$of:meta])+ $code:ident = $name:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $type {
            $($(#[$of])+ #[serde(rename = $name)] $code,)+
        }

        impl $type {
            /// Name of the value in records.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }

            /// The value with this name. `None` if a newer version added it.
            pub fn named(name: &str) -> Option<Self> {
                $crate::model::record::named(name)
            }
        }
    };
}
pub(crate) use codes;

codes! {
    /// Subject of a finding.
    FindingCode {
        /// The CPU quota ran out.
        CpuThrottled = "cpu_throttled",
        /// More threads wanted to run than there are cores.
        Oversubscribed = "oversubscribed",
        /// Threads waited for the interpreter lock.
        GilContended = "gil_contended",
        /// The garbage collector stopped the process.
        GcPauses = "gc_pauses",
        /// Tasks waited for storage.
        IoPressure = "io_pressure",
        /// Tasks waited for memory.
        MemoryPressure = "memory_pressure",
        /// Memory grew with each step.
        MemoryGrows = "memory_grows",
        /// All video decoders of a GPU were busy.
        DecodersBusy = "decoders_busy",
        /// The clocks of a GPU were reduced.
        GpuThrottled = "gpu_throttled",
        /// A GPU had memory errors that it could not correct.
        GpuMemoryErrors = "gpu_memory_errors",
        /// The `PCIe` link of a GPU is slower than it could be.
        GpuSlowLink = "gpu_slow_link",
        /// Other processes hold memory of a GPU.
        GpuShared = "gpu_shared",
        /// The steps did not reach a steady state.
        NoSteadyState = "no_steady_state",
        /// Several ranks load and prepare the same samples.
        SameSamples = "same_samples",
        /// The worker processes of a loader load the same batches.
        SameBatchesInWorkers = "same_batches_in_workers",
        /// The samples are split among the ranks twice.
        SplitTwice = "split_twice",
        /// The loop changed cached batches.
        BatchesMutated = "batches_mutated",
        /// A probe gave no result.
        NoHeadspace = "no_headspace",
        /// The windows of a probe differ.
        UnsteadyProbe = "unsteady_probe",
        /// A what-if measured another bottleneck than the model found.
        WhatIfDisagrees = "what_if_disagrees",
        /// The model predicts another step than a what-if measured.
        ModelDisagrees = "model_disagrees",
        /// Calls of a stage ended in exceptions.
        CallsFail = "calls_fail",
    }
}

codes! {
    /// What a remedy asks the user to do.
    RemedyCode {
        /// Do not tune the loader further: the training is compute-bound.
        Stop = "stop",
        /// Run more calls of a stage at once, or load in more worker processes.
        MoreWorkers = "more_workers",
        /// Let each worker process take less memory, so that more of them fit.
        SmallerProcesses = "smaller_processes",
        /// Run fewer calls of a stage at once.
        FewerWorkers = "fewer_workers",
        /// Submit more calls ahead.
        SubmitAhead = "submit_ahead",
        /// Give a pool more threads.
        MoreThreads = "more_threads",
        /// Let a queue hold more items, or let each worker prefetch more batches.
        BiggerBuffer = "bigger_buffer",
        /// Load the next batch while the loop computes.
        Background = "background",
        /// Reduce the time of a call.
        CheaperCalls = "cheaper_calls",
        /// Run the loader's threads in processes.
        Subprocess = "subprocess",
        /// Let each rank load only its own samples.
        ShardData = "shard_data",
        /// Pass fewer tensors and other objects in a batch.
        PackBatch = "pack_batch",
        /// Pass arrays between processes as tensors.
        ShareArrays = "share_arrays",
        /// Pass tensors between processes in a smaller type.
        SmallerTensors = "smaller_tensors",
        /// Pass several batches between processes in one message.
        LargerMessages = "larger_messages",
        /// Load in threads of the training process.
        LoadInThreads = "load_in_threads",
        /// Free the interpreter lock from the work of a thread.
        FreeLock = "free_lock",
        /// Let the calls of a stage not wait for one another's lock.
        SeparateLocks = "separate_locks",
        /// Collect garbage only between epochs.
        GcBetweenEpochs = "gc_between_epochs",
        /// Keep the data in memory.
        PageCache = "page_cache",
        /// Give the process more cores.
        MoreCores = "more_cores",
        /// Raise the CPU quota.
        Quota = "quota",
        /// Stop other programs.
        OthersAway = "others_away",
        /// Copy batches to the GPU from page-locked memory.
        PinMemory = "pin_memory",
        /// Copy fewer bytes to and from the GPU.
        FewerGpuBytes = "fewer_gpu_bytes",
    }
}

codes! {
    /// Processes whose memory grows.
    MemoryScope {
        /// This process.
        Process = "process",
        /// The children of this process, and not this process.
        #[serde(alias = "tree")]
        Children = "children",
    }
}

codes! {
    /// Source of the SM utilisation of a GPU.
    SmSource {
        /// Samples of the whole GPU (GPM).
        Gpm = "gpm",
        /// Samples of a slice of the GPU (GPM and MIG).
        GpmMig = "gpm_mig",
    }
}

codes! {
    /// Reason why the clocks of a GPU were reduced.
    ThrottleReason {
        /// The power cap.
        Power = "power",
        /// The temperature.
        Thermal = "thermal",
        /// Power brake, or another slowdown that heat did not cause.
        Hardware = "hardware",
    }
}
