//! The constants that decide what limits a loop and what would help, in one place.
//!
//! Each has a unit and a source. Without a named source, the value was chosen on pipelines of `make study`
//! that tests do not use. `make study` makes each threshold alone a fifth smaller and larger, and prints in
//! how many of its pipelines the bottleneck changes: no verdict should depend on one constant. Counts are
//! whole numbers and are not varied.
//!
//! - `thresholds/bounds.rs`: bounds that keep the model's numbers finite.
//! - `thresholds/confidence.rs`: the confidence of each conclusion.
//! - `thresholds/counts.rs`: whole numbers.
//! - `thresholds/findings.rs`: the values from which a measurement is a finding, where attribution has no such
//!   value.
//! - `thresholds/stacks.rs`: the constants of sampled stacks.
//! - `thresholds/stages.rs`: the constants of the summary of stages.
//!
//! `MIN_CALL_SHARE` is in `model/stage_series.rs`: it is applied while samples are added, and `model/`
//! imports nothing from here.

pub(super) mod bounds;
pub(crate) mod confidence;
pub(super) mod counts;
pub(super) mod findings;
pub(super) mod stacks;
pub(super) mod stages;

/// Declares the thresholds: their documentation, default and unit.
macro_rules! thresholds {
    ($($(#[$doc:meta])+ $name:ident: $value:expr, $unit:literal;)+) => {
        /// Constants of attribution.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Thresholds {
            $($(#[$doc])+ pub $name: f64,)+
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $value,)+ }
            }
        }

        impl Thresholds {
            /// Name and unit of each, and the same thresholds with it `factor` times as large.
            pub fn varied(self, factor: f64) -> Vec<(&'static str, &'static str, Self)> {
                vec![$((
                    stringify!($name),
                    $unit,
                    Self { $name: factor * self.$name, ..self },
                ),)+]
            }
        }
    };
}

thresholds! {
    // The bottleneck.

    /// The loop's wait (or what the floor says that free data saves). Below this, the loop is limited by its
    /// compute. Source: a headspace below three points is within the error of a probe (`floor`).
    negligible_wait: 0.03, "share of the step";

    /// The loop's wait. Below this, the thread's own times show how long it sleeps in compute.
    short_wait: 0.1, "share of the step";

    /// The part of a run that its steps fill. From this on, what the thread does between them does not matter.
    filled_by_steps: 0.95, "share of the time";

    /// The training thread's time to receive a batch that is there. From this on, it can be the bottleneck, and
    /// remedies are proposed for it.
    long_hand_off: 0.1, "share of the step";

    /// Share of a call's time in which it waits for a lock that several processes share. From this
    /// share on, the model contains the lock.
    long_shared_lock_wait: 0.05, "share of a call";

    /// Share of the time of loading on the training thread in which it waits for a lock. From this on, loading waits
    /// for other work, and is not slow itself: the rest of it runs at the same time as that work. In a loop of the
    /// clinic whose device is always busy (`async_device_false_wait`), it is 54 to 71 %.
    long_blocked_loading: 0.4, "share of the time of loading";

    /// The wait for data that is left with free data, if loading runs on the training thread. From this on, the loop waits
    /// for a device.
    mostly_left_wait: 0.5, "share of the wait";

    /// Share of a call's time in which a core works for it. Below this, the call mostly waits, probably for data.
    mostly_waiting_cpu: 0.5, "share of a call";

    /// Share of the time in which the GPU works. From this on, free data can shorten the step by at most a third, so the
    /// GPU limits a loop that loads on the training thread.
    mostly_busy_gpu: 0.67, "share of time";

    /// The training thread's wait for a core. Below this, the loop may be limited by its compute. From this on,
    /// it is a finding and part of the evidence.
    negligible_core_wait_pct: 5.0, "% of time";

    /// The gain from relief of a term. Only from this on can the term be the bottleneck. Source: as
    /// `negligible_wait`.
    min_gain: 0.03, "share of the step";

    /// The gain from relief of a term, compared with the best gain. From this on, the term is as good a
    /// bottleneck as the best one.
    comparable_gain: 0.8, "share of the best gain";

    /// The gain from relief of a second term, compared with the bottleneck's. Above this, the bottleneck is
    /// less certain.
    close_second_gain: 0.75, "share of the best gain";

    /// The limit of a stage, a resource or compute. From this on, it fills the step and is the
    /// bottleneck by law.
    min_binding_limit: 0.93, "share of the step";

    /// The limit of one term, compared with another's. Above this, it counts as longer.
    longer_limit: 1.03, "ratio";

    /// The limit of a stage. Above this, the stage is tried as the bottleneck.
    candidate_limit: 0.5, "share of the step";

    /// The utilization of the cores or decoders. From this on, they are tried as the bottleneck. Below it,
    /// cores are free enough to suspect the memory.
    candidate_utilization: 0.7, "share of the supply";

    /// The utilization of the disk or decoders. From this on, the time of a call includes waiting for them,
    /// and the disk is tried as the bottleneck. The disk has no lower `candidate_utilization`: its
    /// utilization is the share of time in which it has any request, which is high long before the disk is
    /// the bottleneck. Also the utilization of a shared lock, from which on no further calls are proposed, and the CPU
    /// share of a call, from which on the call always works. Waiting rises steeply
    /// near full use (Kleinrock, *Queueing Systems*, 1975); where that begins is chosen.
    saturated_utilization: 0.85, "share of the supply";

    /// The use of the `PCIe` link of a GPU, in one direction. From this on, the link is the bottleneck. Copies without a pause
    /// use 91 % of it (one H100, docs/gpu.md); how far below that it begins to limit a step is chosen.
    saturated_link: 0.75, "share of the link";

    /// The reads from a network file system that are in progress. From this on, the file system limits the stage.
    min_mount_share: 0.5, "share of the stage's calls";

    /// The utilization of the cores. From this on, a wait for the interpreter lock is a wait for a core.
    exhausted_core_utilization: 0.87, "share of the cores";

    /// The time in which the queue after a stage is full. From this on, the stage waits for the next one and
    /// is not the bottleneck.
    always_full_queue_pct: 95.0, "% of time";

    /// The time that the queue before a stage is full, and that the queue after it is empty. From this on, the
    /// stage limits the pipeline, and not the cores, while cores are left.
    bound_stage_queue_pct: 85.0, "% of time";

    /// The training thread's wait for a core. From this on, compute only appears slow. For comparison:
    /// two busy threads on one core wait half of the time, three on two cores a third.
    starved_thread_pct: 15.0, "% of time";

    /// The periods in which the CPU quota runs out. From this on, the quota is the resource, not the cores, and
    /// it is a finding.
    exhausted_quota_pct: 5.0, "% of periods";

    /// The pauses of the garbage collector. From this on, it is tried as the bottleneck, and the loop is not
    /// limited by its compute. Source: as `negligible_wait`.
    candidate_gc_pct: 3.0, "% of time";

    // The interpreter lock (GIL).

    /// The wait for the lock. From this on, it is long, and (from `min_gil_threads` on) a finding. Source: a
    /// fifth of Python's switch interval (`sys.getswitchinterval()`, 5 ms), which is the longest wait for one
    /// other thread.
    long_gil_wait_ms: 1.0, "ms";

    /// The wait for the lock. From this on (and from `long_gil_wait_ms` on), it delays the loop. The finding has
    /// no such condition: it says that threads wait, and not what this costs the loop.
    long_gil_wait: 0.1, "share of the step";

    /// The work of threads beside the training thread. From this on, they hold the lock.
    min_gil_threads: 0.2, "cores";

    /// The work of the stages' threads together. From this on, it uses all of the lock.
    min_gil_work: 0.8, "cores";

    /// The work of the stages' threads together. Above this, it cannot all need the lock.
    max_gil_work: 1.2, "cores";

    /// The work of a stage's thread in a call. Above this, the stage holds the lock.
    min_gil_holder_cpu: 0.02, "share of a call";

    /// The work of a stage's thread in a call. Above this, the stage may wait for the lock.
    min_gil_waiter_cpu: 0.05, "share of a call";

    /// The work of a stage's thread in a call. From this on, the stage always works, so it does not wait for
    /// the lock.
    max_gil_waiter_cpu: 0.9, "share of a call";

    /// The factor by which the lock makes calls longer. Above this, their other waits cannot be separated
    /// from the wait for the lock.
    max_gil_slowdown: 2.5, "ratio";

    /// The rest of a call beside its work and its wait for the lock. Below this, it is ignored.
    negligible_gil_rest: 0.05, "share of a call";

    // Memory.

    /// The instructions per cycle of the training thread. Below this, the thread waits for memory.
    stalled_ipc: 0.6, "instructions per cycle";

    /// The instructions per cycle of the training thread. Below this, the thread waits for memory if the loop
    /// is also slower than alone.
    slow_ipc: 0.9, "instructions per cycle";

    /// The slowdown of compute by the loader. Above this, it confirms `slow_ipc`.
    contention_with_ipc: 0.1, "share of the floor";

    /// The slowdown of compute by the loader. Above this, it shows waiting for memory if the
    /// instructions per cycle are not known and the stage has `calls_without_ipc`.
    contention_without_ipc: 0.2, "share of the floor";

    /// The concurrent calls of a stage. From this on, slower compute shows waiting for memory, even if the
    /// instructions per cycle are not known.
    calls_without_ipc: 4.0, "concurrent calls";

    /// The concurrent calls of a stage. Fewer do not slow each other through memory.
    min_memory_calls: 2.0, "concurrent calls";

    // The stages and their order.

    /// The concurrent calls of a stage above its declared concurrency. Above this, the declaration is too
    /// low. Source: SPDL's ordered stages start up to two extra calls; the value is chosen.
    max_over_declared: 0.25, "share of the declaration";

    /// The items that make a batch, as counted. Below this, the first stage takes several items per call.
    min_whole_item: 0.99, "items";

    /// The difference between the items of a batch and a whole number. Below this, the whole number is meant.
    whole_batch_error: 0.02, "share of the items";

    // The queueing model.

    /// The calls per batch. From this on, the pipeline is not simulated. Source: a run simulates about 5,000
    /// calls and at least 48 batches, and takes milliseconds.
    max_simulated_calls: 20_000.0, "calls per batch";

    /// The difference between the simulated and the measured step. From this on, the simulation is not used.
    max_simulation_error: 0.15, "share of the step";

    /// The difference between two numbers of concurrent calls. Up to this, they count the same calls.
    same_calls_error: 0.15, "share of the calls";

    /// Threads that run several stages: the share of their time in which they are in a call. From this on, they limit the
    /// loop. Chosen.
    busy_pool: 0.9, "share of time";

    /// Threads that run several stages: the share of their calls' time that one stage takes. From this on, this stage is the
    /// limit, and not the number of threads. Chosen.
    dominant_stage: 0.9, "share of the calls' time";

    /// The training thread's share of the sampled calls of the stages. Below this, loading does not run on it. Chosen: the
    /// share is nearly 0 or nearly 1.
    loads_itself: 0.5, "share of the samples";

    /// The utilization of the cores. Below this, nothing waits for a core.
    uncontended_core_utilization: 0.5, "share of the cores";

    /// The work of a stage in a call. Above this, the stage shows how much work is slowed.
    measurable_cpu: 0.05, "share of a call";

    /// The rest of a call beside its work. Below this, it is ignored.
    negligible_rest: 0.03, "share of a call";

    /// The cores that compute uses. Above this, it is work on the cores, not waiting for a
    /// device.
    min_loop_cores: 0.3, "cores";

    /// The floor, compared with compute. Above this, it is the time of an asynchronous device.
    device_floor: 1.03, "ratio";

    /// The slowdown of compute by the loader. Up to this, it is ignored.
    negligible_contention: 0.01, "share of compute";

    /// The work in compute. It is at least this, however long its thread waits for a core.
    min_loop_work: 0.2, "share of compute";

    /// The cores that the run uses outside the training process and outside all stages, such as those of Ray's own
    /// processes. From this on, the gain of more calls is only assumed.
    large_unknown_work: 0.25, "share of the cores used";

    /// The cores that other programs use. From this on, other programs are part of the model.
    min_other_programs: 0.1, "cores";

    /// The time of stages on the training thread, compared with the wait. From this on, it explains the wait.
    /// The rest of the loader's work, such as a copy to page-locked memory, is no stage.
    min_explained_wait: 0.6, "share of the wait";

    /// The same if the loader does not report that it works on the training thread.
    min_explained_wait_unknown: 0.85, "share of the wait";

    /// The same time. Above this, it does not explain the wait.
    max_explained_wait: 1.15, "share of the wait";

    /// The use of the video decoders. From this on, a stage may decode.
    min_decoder_use: 0.05, "engines";

    /// The concurrent calls of a stage, compared with the busy decoders. From this on, the stage may decode,
    /// unless its calls need more of a core than `max_decoding_cpu`.
    min_decoding_calls: 0.7, "calls per engine";

    /// The part of a call in which a core works for it. From this on, the stage does not decode on the GPU.
    max_decoding_cpu: 0.5, "share of a call";

    /// The utilization of the disk. From this on, a stage may read.
    min_disk_use: 0.3, "share of time";

    /// The concurrent waits of a stage for something other than a core. Above this, the stage may read.
    min_reading_calls: 0.1, "concurrent calls";

    // Remedies. They change no bottleneck, so the study shows 0 % for them.

    /// The gain of a remedy. Below this, the remedy is not proposed.
    min_remedy_gain: 0.02, "share of the step";

    /// The longer step that a smaller buffer may cause.
    allowed_longer_step: 0.01, "share of the step";

    /// Difference between the simulated and the measured step. Above this, no smaller buffer is proposed. Chosen: a tenth
    /// of the step is more than the variation between runs, and less than `max_simulation_error`.
    max_smaller_buffer_error: 0.1, "share of the step";

    /// The time in which a queue is full, and the time in which it is empty. From this on (both), it absorbs more than
    /// independent slow calls, and no smaller one is proposed. Chosen.
    swinging_queue_pct: 5.0, "% of time";

    /// The share of a line in its stage's calls or in compute. Below this, its gain is not
    /// predicted.
    min_line_share: 0.03, "share of the time";

    /// The gain of every remedy and of free data. Below this, a compute-bound loop is done. Also the wait from
    /// which the lack of a bottleneck is a conclusion, and not just nothing to explain.
    worth_tuning_pct: 5.0, "% of the step";

    /// The largest gain of free data within the floor's interval. From this on, a compute-bound loop is not
    /// done. Source: twice `worth_tuning_pct`.
    possibly_worth_tuning_pct: 10.0, "% of the step";

    /// The limit of a stage. Above this, more concurrency is tried for the stage.
    concurrency_limit: 0.6, "share of the step";

    /// The proposed concurrency, compared with the mean concurrency that is needed: calls vary.
    concurrency_margin: 1.05, "ratio";

    /// The next limit after a stage or a pool has enough concurrency. It is at least this, so that the
    /// concurrency that is needed stays finite.
    min_next_limit: 0.02, "share of the step";

    /// The time in which a queue is empty. Below it, nothing waits for the queue, so a larger one gains nothing: a remedy
    /// that gains [`min_remedy_gain`](Self::min_remedy_gain) of the step needs longer waits.
    min_empty_of_bigger_queue_pct: 1.0, "% of time";

    /// The time in which a pool's queue is empty. From this on, the loop submits too few calls ahead.
    empty_pool_queue_pct: 80.0, "% of time";

    /// The concurrent calls of the decoding stage, compared with the engines. Above this, fewer are proposed.
    oversubscribed_engines: 1.05, "ratio";

    /// The limit of a stage that slows others through memory. Above this, fewer calls are tried.
    memory_limit: 0.5, "share of the step";

    /// The utilization of the cores that more concurrency can reach. Processes that wait for each other leave
    /// cores idle. Source: programs of the clinic reached 0.9 to 1.
    attainable_core_utilization: 0.95, "share of the cores";

    /// The slope of the time of a call over the number of calls at once. From this on, the calls slow each other.
    /// Source: by chance, 1 of 700 stages has as much. Calls near each other are alike, so it is not less.
    significant_call_growth: 3.0, "standard errors";

    /// The growth of the time of a call from the lowest to the highest measured number of calls at once. Below this,
    /// it is ignored. Chosen.
    notable_call_growth: 0.1, "share of the call";

    /// The gain of fewer calls, compared with the error of the measured time of a call. Below this, they are not proposed.
    /// Source: an interval of 95 %.
    significant_gain: 2.0, "standard errors";

    /// The available memory that further worker processes may take. The rest is for the page cache and for
    /// growth. Chosen, not measured.
    usable_memory: 0.8, "share of the available memory";

    /// The threads that are ready to run. From this on, they slow each other by more than the cores that they
    /// lack, so the gain of fewer calls is not predicted. Source: a program of the clinic with 5.5 used 3 times the CPU
    /// time.
    oversubscribing_threads: 3.0, "threads per core";

    /// The utilization of the cores. From this on, fewer calls are tried
    /// for a stage with `min_oversubscribing_cpu`.
    oversubscribed_core_utilization: 0.9, "share of the cores";

    /// The part of a call in which a core works for it. From this on, the stage can oversubscribe the cores.
    min_oversubscribing_cpu: 0.1, "share of a call";

    /// The utilization of the cores. From this on, more cores are proposed.
    scarce_core_utilization: 0.85, "share of the cores";

    /// The next limit after there are enough cores. It is at least this, so that their number stays finite.
    min_next_limit_of_cores: 0.05, "share of the step";

    /// The number of proposed cores, compared with the cores there are. It is at most this.
    max_core_increase: 8.0, "ratio";

    /// The cores that other programs use. From this on, stopping them is proposed.
    stoppable_programs: 0.3, "cores";

    /// Pauses of the garbage collector. From this share on, they are a finding, and collection between epochs is
    /// proposed.
    notable_gc_pct: 1.0, "% of time";

    /// The part of a call that a cheaper one saves. The texts of the remedy say "half".
    cheaper_call_saving: 0.5, "share of a call";

    /// The work of a stage for which it is not measured, to find the stage with most work.
    assumed_cpu: 0.5, "share of a call";

    // Worker processes for a loop that loads by itself.

    /// The number of worker processes that is tried at most if the cores are not known, or are more.
    max_workers: 16.0, "processes";

    /// The step with a number of workers, compared with the shortest step with any number. The smallest
    /// number of workers up to this is proposed.
    max_over_shortest_step: 1.03, "ratio";

    /// The step with more processes than cores counts as this much longer. Source: with two workers on two
    /// cores 16 ms were measured for a predicted 12, and 13 for 11.
    oversubscribed_step: 1.15, "ratio";

    /// The cost of a message itself, compared with the cost to pass a batch. Below this, larger messages are not
    /// proposed. Chosen.
    large_message_cost: 0.4, "share of the cost";

    /// The share of a worker's call in which it holds the interpreter lock. Above this, threads are not proposed
    /// instead of workers. Chosen.
    threads_lock_share: 0.3, "share of the call";

    /// The cost of batches from workers, compared with the estimate, at which the remedy must still gain.
    /// Source: 2.9 ms were measured for an estimate of 1.9.
    worker_cost_margin: 1.5, "ratio";

    /// The cost of batches from workers. Above this, its error matters, and the remedy is less certain.
    high_worker_cost: 0.5, "share of the gain";

    // The cost of a batch from a worker process. Source, without another one: the reference machine of
    // `attribution/hand_off_cost.rs`. A constant may be wrong by a quarter.

    /// The time to request the next batch, to wake up, and to send the next task to a worker.
    worker_batch_ms: 0.8, "ms per batch";

    /// The time to request a tensor's memory from a worker: six messages, for which its other thread has to
    /// wake up.
    worker_tensor_ms: 0.42, "ms per tensor";

    /// The time to unpickle an object.
    worker_object_ms: 0.8e-4, "ms per object";

    /// The time to read a mebibyte from a pipe and to copy it. The pipe is small, so the reader also waits for the
    /// writer. Source: 1.2, 10.2 and 30 ms were measured for arrays of 1, 8 and 24 MiB.
    worker_pipe_ms: 1.2, "ms per MiB";

    /// The time in which a new process gets a mebibyte of pickled arrays: the training process pickles and writes it,
    /// the new one reads and copies it. Source: CPU time of both for 400 MiB. It may be wrong by a factor of 2.
    process_start_mib_ms: 4.0, "ms per MiB";

    /// The same for an object, in a list of a million pairs of text and number.
    process_start_object_ms: 0.7e-3, "ms per object";

    /// The time to map and to read a mebibyte of shared memory, if it was not measured on this machine.
    worker_shared_memory_ms: 0.23, "ms per MiB";

    /// The time to read all of the shared memory, compared with the measured time (which reads one byte of
    /// each page). Source: 8 ms were measured for 24 MB.
    worker_memory_read: 1.45, "ratio";

    /// The same for a worker that writes the memory: the kernel clears each page, the batch is copied into
    /// it, and the original is freed. Source: for 24 MB, 18 ms of a worker that collates into shared memory,
    /// and 25 ms of a worker whose data set makes the batch.
    worker_memory_write: 3.9, "ratio";

    /// A worker's time to send messages and objects, compared with the time to receive them. Source: for 16
    /// tensors 4.8 of 6.4 ms.
    worker_send: 0.75, "ratio";

    /// The factor by which receiving takes longer if more processes work than there are cores. Source: with
    /// two workers on two cores 2.7 instead of 1.5 ms (2 tensors), 8.7 instead of 4.3 ms (10 tensors).
    worker_message_slowdown: 1.9, "ratio";

    /// The mean wait for a thread that does not release the interpreter lock by itself. Source: half of
    /// Python's switch interval (`sys.getswitchinterval()`, 5 ms).
    worker_lock_wait_ms: 2.5, "ms";

    // The simulation.

    /// The ratio of two neighbouring percentiles of a stage's calls. Above this, hardly any call lies between
    /// them. The known percentiles of a log-normal distribution are closer.
    far_percentiles: 3.0, "ratio";

    // Evidence. From these values on, a measurement is part of the evidence. They change no bottleneck
    // either.

    /// The cores that a stage or other programs use.
    shown_cores: 0.1, "cores";

    /// The time in which a queue is full or empty.
    shown_queue_pct: 20.0, "% of time";

    /// The slow calls of a stage.
    shown_slow_calls_pct: 2.0, "% of calls";

    /// The time of a nested stage. Above this, the nested stage is named.
    shown_nested_stage: 0.3, "share of the stage";

    /// The time of a nested stage. Above this, the nested stage is not named: it also runs elsewhere.
    max_nested_stage: 1.05, "share of the stage";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variation_changes_one_threshold() {
        let all = Thresholds::default();
        let varied = all.varied(1.2);

        assert!(varied.iter().all(|(.., one)| *one != all));
        let names: Vec<_> = varied.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names[0], "negligible_wait");
        assert!((varied[0].2.negligible_wait - 0.036).abs() < 1e-12);
        assert_eq!(
            varied[0].2.candidate_limit.to_bits(),
            all.candidate_limit.to_bits()
        );
    }
}
