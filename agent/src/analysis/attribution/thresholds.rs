//! The constants that decide what limits a loop, in one place.
//!
//! Each has a unit and a source. Without a named source, the value was chosen on pipelines of `make study` that
//! tests do not use. `make study` makes each constant alone a fifth smaller and larger, and prints in how many
//! of its pipelines the bottleneck changes: no verdict should depend on one constant.

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
            #[must_use]
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

    /// A loop that waits a smaller share of its step than this is limited by its compute. Source: a headspace
    /// below three points is within the error of a probe (`floor`).
    negligible_wait: 0.03, "share of the step";

    /// Relief of a bottleneck must shorten the step at least by this. Source: as `negligible_wait`.
    min_gain: 0.03, "share of the step";

    /// A term is as good a bottleneck as the best one if its relief gains this share of the best gain.
    comparable_gain: 0.8, "share of the best gain";

    /// The bottleneck is less certain if the relief of a second term gains more than this.
    close_second: 0.75, "share of the best gain";

    /// By law, a stage or a resource is the bottleneck if its limit is at least this.
    reached_limit: 0.93, "share of the step";

    /// By law, a limit counts as longer than another one from this ratio on.
    longer_limit: 1.03, "ratio";

    /// A stage is tried as the bottleneck if its limit is above this.
    candidate_limit: 0.5, "share of the step";

    /// Cores or decoders are tried as the bottleneck at this utilization or above.
    candidate_utilization: 0.7, "share of the supply";

    /// At this utilization or above, the time of a call includes waiting for the resource, and the disk is
    /// tried as the bottleneck: its utilization is the share of time in which it has any request, which is
    /// high long before it is the bottleneck. Waiting rises steeply near full use (Kleinrock, *Queueing
    /// Systems*, 1975); where that begins is chosen.
    saturated_utilization: 0.85, "share of the supply";

    /// At this utilization of the cores or above, hardly any time is left.
    exhausted_cores: 0.87, "share of the cores";

    /// A queue that is full for at least this share of the time counts as always full.
    always_full_pct: 95.0, "% of time";

    /// The training thread lacks a core if it waits for one at least this long. For comparison: two busy
    /// threads on one core wait half of the time, three on two cores a third.
    starved_thread_pct: 15.0, "% of time";

    /// A training thread that waits for a core less than this hardly waits for one.
    negligible_core_wait: 0.05, "share of time";

    /// The CPU quota, not the cores, is the resource if it runs out at least this often.
    throttled_pct: 5.0, "% of periods";

    /// The garbage collector is tried as the bottleneck from here on. Source: as `negligible_wait`.
    gc_pct: 3.0, "% of time";

    // The interpreter lock (GIL).

    /// A wait for the lock is long from here on. Source: a fifth of Python's switch interval
    /// (`sys.getswitchinterval()`, 5 ms), which is the longest wait for one other thread.
    gil_wait_ms: 1.0, "ms";

    /// A wait for the lock delays the loop from here on.
    gil_wait_share: 0.1, "share of the step";

    /// Other threads hold the lock if they use at least this.
    gil_other_threads: 0.2, "cores";

    /// The lock is fully used if the stages' threads together work at least this much …
    min_gil_work: 0.8, "cores";

    /// … and at most this much: more work cannot hold the lock all the time.
    max_gil_work: 1.2, "cores";

    /// A stage holds the lock if its threads work for at least this share of a call …
    gil_holder_cpu: 0.02, "share of a call";

    /// … and waits for it if they work at least this share …
    gil_waiter_cpu: 0.05, "share of a call";

    /// … but less than this: a stage that always works does not wait for the lock.
    gil_free_cpu: 0.9, "share of a call";

    /// If the lock makes calls longer than this, their other waits cannot be separated from it.
    max_gil_slowdown: 2.5, "ratio";

    /// The rest of a call beside work and lock is ignored below this.
    negligible_gil_rest: 0.05, "share of a call";

    // Memory.

    /// A thread waits for memory below this.
    stalled_ipc: 0.6, "instructions per cycle";

    /// The same if the loop is also slower than alone.
    slow_ipc: 0.9, "instructions per cycle";

    /// The loop is slower than alone from here on, if the instructions per cycle are low.
    contention_with_ipc: 0.1, "share of the floor";

    /// The same if the instructions per cycle are not known …
    contention_without_ipc: 0.2, "share of the floor";

    /// … and at least so many calls run at once.
    calls_without_ipc: 4.0, "calls at once";

    // The queueing model.

    /// The simulation is not used if its step differs from the measured one by this or more.
    max_simulation_error: 0.15, "share of the step";

    /// Two numbers of concurrent calls that differ by at most this are of the same calls.
    same_calls: 0.15, "share";

    /// Below this utilization of the cores, nothing waits for a core.
    uncontended_cores: 0.5, "share of the cores";

    /// Stages with less work than this do not show how much work is slowed.
    measurable_cpu: 0.05, "share of a call";

    /// The rest of a call beside its work is ignored below this.
    negligible_rest: 0.03, "share of a call";

    /// The loop's own part is work on the cores, not waiting for a device, from here on.
    loop_cores: 0.3, "cores";

    /// A floor longer than the loop's own part by this ratio is the time of an asynchronous device.
    device_floor: 1.03, "ratio";

    /// A slowdown of the loop's own part by the loader is ignored below this.
    negligible_contention: 0.01, "share of compute";

    /// The loop's own part contains at least this much work, however long its thread waits for a core.
    min_work: 0.2, "share of compute";

    /// Other programs count from this use on.
    other_programs: 0.1, "cores";

    /// Stages on the training thread explain at least this part of the wait. The rest of the loader's work,
    /// such as a copy to page-locked memory, is no stage.
    min_explained_wait: 0.6, "share of the wait";

    /// The same if the loader does not say that it works on the training thread.
    min_explained_wait_unknown: 0.85, "share of the wait";

    /// Stages on the training thread explain at most this part of the wait.
    max_explained_wait: 1.15, "share of the wait";

    /// Video decoders are in use from here on.
    min_decoding: 0.05, "engines";

    /// The decoding stage has at least this many calls at once for each busy engine …
    decoding_calls: 0.7, "calls per engine";

    /// … and its calls work on a core less than this.
    decoding_cpu: 0.5, "share of a call";

    /// The disk is in use from here on.
    min_disk: 0.3, "share of time";

    /// The reading stage waits for something other than a core at least this much.
    min_reading: 0.1, "calls at once";

    // Remedies. They change no bottleneck, so the study shows 0 % for them.

    /// A remedy must gain at least this.
    min_remedy_gain: 0.02, "share of the step";

    /// If compute is the bottleneck, tuning the loader further is worth it from this gain on.
    worth_tuning_pct: 5.0, "% of the step";

    /// More concurrency is tried for a stage with a limit above this.
    concurrency_limit: 0.6, "share of the step";

    /// Concurrency that is needed on average, times this: calls vary.
    spare_concurrency: 1.05, "ratio";

    /// A pool's queue that is empty at least this long gets too few calls.
    starved_pool_pct: 80.0, "% of time";

    /// More calls decode at once than there are engines from this ratio on.
    oversubscribed_engines: 1.05, "ratio";

    /// Fewer calls are tried for a stage that slows others through memory if its limit is above this.
    memory_limit: 0.5, "share of the step";

    /// Fewer calls are tried at this utilization of the cores …
    oversubscribed_cores: 0.9, "share of the cores";

    /// … for a stage that works at least this much.
    oversubscribing_cpu: 0.1, "share of a call";

    /// More cores help from this utilization on.
    scarce_cores: 0.85, "share of the cores";

    /// Stopping other programs is proposed from this use on.
    stoppable_programs: 0.3, "cores";

    /// Collecting garbage between epochs is proposed from here on.
    proposed_gc_pct: 1.0, "% of time";

    /// Of numbers of workers, the smallest is proposed whose step is at most this much longer than the
    /// shortest one.
    as_short_step: 1.03, "ratio";

    /// The step with more processes than cores counts as this much longer. With two workers on two cores
    /// 16 ms were measured for a predicted 12, and 13 for 11.
    oversubscribed_step: 1.15, "ratio";

    /// The remedy must still gain if the cost of batches from workers is this many times the estimate: 2.9 ms
    /// were measured for an estimate of 1.9.
    uncertain_cost: 1.5, "ratio";

    /// An error of the cost of batches from workers matters if it takes more than this.
    high_cost: 0.5, "share of the gain";

    // Evidence that is mentioned. It changes no bottleneck either.

    /// Use of cores by a stage or by other programs.
    told_cores: 0.1, "cores";

    /// Wait of the training thread for a core.
    told_core_wait_pct: 5.0, "% of time";

    /// Time in which a queue is full or empty.
    told_queue_pct: 20.0, "% of time";

    /// Slow calls of a stage.
    told_slow_pct: 2.0, "% of calls";

    /// Part of a stage that a nested stage takes …
    told_inner: 0.3, "share of the stage";

    /// … at most: more is a nested stage that also runs elsewhere.
    max_inner: 1.05, "share of the stage";
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
            varied[0].2.reached_limit.to_bits(),
            all.reached_limit.to_bits()
        );
    }
}
