//! What a remedy asks the user to do.

use crate::analysis::attribution::stage_names::{has_decoding_name, has_word};
use crate::model::record::RemedyCode;
use crate::model::stack::LOADER;

/// A change to the program, its loader or its machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Look at the model: the training is compute-bound.
    Stop,
    /// Load in worker processes. From 0: on the training thread until now.
    MoreProcesses {
        /// Worker processes now.
        from: u32,
        /// Worker processes proposed.
        to: u32,
        /// How many fit into the memory; `None` if unknown.
        memory: Option<WorkerMemory>,
        /// Whether the program must split the stream among them.
        splits_stream: bool,
    },
    /// Let each worker process take less memory, and load in more of them. At present, no further one fits into the memory.
    SmallerProcesses {
        /// Worker processes now.
        from: u32,
        /// Worker processes that would be proposed if the memory were enough.
        to: u32,
        /// What they take, and what the memory is enough for.
        memory: WorkerMemory,
        /// Whether the program must split the stream among them.
        splits_stream: bool,
    },
    /// Run more calls of a stage at once.
    MoreCalls {
        /// The stage.
        stage: String,
        /// Calls at once now.
        from: u32,
        /// Calls at once proposed.
        to: u32,
        /// Whether each call needs a video decoder.
        on_decoders: bool,
    },
    /// Run fewer calls of a stage at once.
    FewerCalls {
        /// The stage.
        stage: String,
        /// Calls at once now.
        from: u32,
        /// Calls at once proposed.
        to: u32,
        /// What they share.
        shared: Shared,
    },
    /// Load in fewer worker processes.
    FewerProcesses {
        /// Worker processes now.
        from: u32,
        /// Worker processes proposed.
        to: u32,
        /// What they share.
        shared: Shared,
    },
    /// Submit more calls ahead, so that the pool has work.
    SubmitAhead {
        /// The stage.
        stage: String,
        /// The queue of its pool.
        queue: String,
    },
    /// Give a pool more threads.
    MoreThreads {
        /// The queue of the pool.
        pool: String,
        /// Threads now.
        from: u32,
        /// Threads proposed.
        to: u32,
    },
    /// Let each worker prefetch more batches.
    MorePrefetch {
        /// Batches ahead now.
        from: u32,
        /// Batches ahead proposed.
        to: u32,
    },
    /// Let a queue hold more items.
    BiggerQueue {
        /// The queue.
        queue: String,
        /// Its capacity now.
        from: u32,
        /// The capacity proposed.
        to: u32,
    },
    /// Load the next batch while the loop computes.
    Background {
        /// In a process instead of a thread.
        in_process: bool,
        /// Number of batches that are loaded at once.
        at_once: u32,
    },
    /// Halve what a call costs.
    CheaperCalls {
        /// The stage.
        stage: String,
        /// What it seems to do.
        work: GuessedWork,
    },
    /// Run the loader's threads in processes.
    Subprocess {
        /// Whether the interpreter lock alone binds, so that each busy thread needs its own process.
        each_thread: bool,
    },
    /// Let each rank load only its own samples.
    ShardData {
        /// Ranks that load the same samples now.
        ranks: u32,
    },
    /// Pass fewer tensors and other objects in a batch.
    PackBatch {
        /// Tensors in a batch now, if many.
        tensors: Option<u64>,
        /// Other objects in a batch now, if many.
        objects: Option<u64>,
        /// Whether workers of torch make the batch.
        from_torch: bool,
    },
    /// Pass arrays and strings as tensors.
    ShareArrays {
        /// Their bytes in a batch now.
        bytes: u64,
    },
    /// Pass the tensors in a type of half the size.
    SmallerTensors {
        /// Their bytes in a batch now.
        bytes: u64,
    },
    /// Pass several batches in one message.
    LargerMessages {
        /// Batches in a message.
        batches: u32,
    },
    /// Load in threads of the training process.
    LoadInThreads {
        /// Their number.
        threads: u32,
        /// The stage that they run.
        stage: String,
        /// Share of a call in which it holds the interpreter lock.
        lock_share: f64,
    },
    /// Free the interpreter lock from the work of a thread.
    FreeLock {
        /// Function that holds the lock.
        function: String,
        /// Path of the source file.
        file: String,
        /// Line in that file.
        line: u32,
    },
    /// Let the calls of a stage not wait for one another's lock.
    SeparateLocks {
        /// The stage.
        stage: String,
        /// Path of the source file in which they wait longest.
        file: String,
        /// Line in that file.
        line: u32,
    },
    /// Collect garbage between epochs only.
    CollectBetweenEpochs,
    /// Keep the data in memory.
    KeepInMemory,
    /// Give the process more cores.
    MoreCores {
        /// Cores now.
        from: f64,
        /// Cores proposed.
        to: f64,
    },
    /// Raise the CPU quota.
    RaiseQuota {
        /// Cores now.
        from: f64,
        /// Cores proposed.
        to: f64,
    },
    /// Stop other programs.
    StopOthers {
        /// Cores that they use.
        used: f64,
        /// Cores there are.
        usable: f64,
    },
    /// Copy batches to the GPU from page-locked memory.
    PinMemory,
    /// Copy fewer bytes to and from the GPU.
    FewerGpuBytes {
        /// Bytes per step now, in the busier direction.
        bytes_per_step: f64,
    },
}

/// How many worker processes fit into the memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerMemory {
    /// Bytes of a worker process, on average.
    pub each: f64,
    /// Bytes that further worker processes of this rank may take.
    pub available: f64,
    /// Worker processes that fit, with those that run.
    pub fits: u32,
}

/// A resource that concurrent calls share and compete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// Video decoders.
    Decoders,
    /// Memory bandwidth.
    Memory,
    /// Cores.
    Cores,
    /// The interpreter lock of the training process.
    InterpreterLock,
    /// Another lock.
    Lock,
    /// It is not known what. The measured times of the calls show that they slow each other.
    Unknown,
}

/// What a stage seems to do, by its name, and by how long its calls wait. The sampled kinds of work
/// ([`Work`](crate::model::record::Work)) do not replace it: they exist only for stages of several kinds, and do not
/// distinguish videos from images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuessedWork {
    /// Decode video.
    Video,
    /// Decode or transform images.
    Images,
    /// Read or fetch samples.
    Reading,
    /// Something else.
    Unknown,
}

impl Action {
    /// Whether the same work is done by more threads or processes.
    pub(super) fn adds_concurrency(&self) -> bool {
        matches!(
            self,
            Self::MoreProcesses { .. }
                | Self::SmallerProcesses { .. }
                | Self::MoreCalls { .. }
                | Self::MoreThreads { .. }
                | Self::SubmitAhead { .. }
                | Self::Background { .. }
        )
    }

    /// Whether it starts processes that a loader does not have yet.
    pub(super) fn starts_processes(&self) -> bool {
        matches!(
            self,
            Self::MoreProcesses { from: 0, .. }
                | Self::Background {
                    in_process: true,
                    ..
                }
                | Self::Subprocess { .. }
        )
    }

    /// Whether one stage has less work, or does its work with more threads or processes. A loader that gets worker processes
    /// or threads for the first time does all of its work there.
    pub(super) fn relieves_stage(&self) -> bool {
        match self {
            Self::MoreProcesses { from, .. } | Self::SmallerProcesses { from, .. } => *from > 0,
            Self::MoreCalls { .. } | Self::CheaperCalls { .. } => true,
            _ => false,
        }
    }

    /// Whether it makes a buffer larger.
    pub(super) fn enlarges_buffer(&self) -> bool {
        matches!(self, Self::MorePrefetch { .. } | Self::BiggerQueue { .. })
    }

    /// Stable name for programs.
    pub fn code(&self) -> RemedyCode {
        match self {
            Self::Stop => RemedyCode::Stop,
            Self::MoreProcesses { .. } | Self::MoreCalls { .. } => RemedyCode::MoreWorkers,
            Self::SmallerProcesses { .. } => RemedyCode::SmallerProcesses,
            Self::FewerCalls { .. } | Self::FewerProcesses { .. } => RemedyCode::FewerWorkers,
            Self::SubmitAhead { .. } => RemedyCode::SubmitAhead,
            Self::MoreThreads { .. } => RemedyCode::MoreThreads,
            Self::MorePrefetch { .. } | Self::BiggerQueue { .. } => RemedyCode::BiggerBuffer,
            Self::Background { .. } => RemedyCode::Background,
            Self::CheaperCalls { .. } => RemedyCode::CheaperCalls,
            Self::Subprocess { .. } => RemedyCode::Subprocess,
            Self::ShardData { .. } => RemedyCode::ShardData,
            Self::PackBatch { .. } => RemedyCode::PackBatch,
            Self::ShareArrays { .. } => RemedyCode::ShareArrays,
            Self::SmallerTensors { .. } => RemedyCode::SmallerTensors,
            Self::LargerMessages { .. } => RemedyCode::LargerMessages,
            Self::LoadInThreads { .. } => RemedyCode::LoadInThreads,
            Self::FreeLock { .. } => RemedyCode::FreeLock,
            Self::SeparateLocks { .. } => RemedyCode::SeparateLocks,
            Self::CollectBetweenEpochs => RemedyCode::GcBetweenEpochs,
            Self::KeepInMemory => RemedyCode::PageCache,
            Self::MoreCores { .. } => RemedyCode::MoreCores,
            Self::RaiseQuota { .. } => RemedyCode::Quota,
            Self::StopOthers { .. } => RemedyCode::OthersAway,
            Self::PinMemory => RemedyCode::PinMemory,
            Self::FewerGpuBytes { .. } => RemedyCode::FewerGpuBytes,
        }
    }
}

impl GuessedWork {
    /// What a stage of that name seems to do. `mostly_waits` tells whether its calls hardly use a core.
    pub(super) fn of(name: &str, mostly_waits: bool) -> Self {
        // headspace's own name for a loader without stages says nothing about its work.
        let words: Vec<&str> = name.split(' ').filter(|word| *word != LOADER).collect();
        let name = &words.join(" ");
        let has = |words: &[&str]| has_word(name, words);
        if has_decoding_name(name) || has(&["demux", "clip", "frame"]) {
            Self::Video
        } else if has(&[
            "image",
            "jpeg",
            "png",
            "resize",
            "crop",
            "augment",
            "transform",
        ]) {
            Self::Images
        // `fetch` is also headspace's own name for all that a worker of torch does.
        } else if mostly_waits || has(&["read", "load", "download", "open"]) {
            Self::Reading
        } else {
            Self::Unknown
        }
    }
}
