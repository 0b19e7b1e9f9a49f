//! The constants that decide what limits a loop, in one place.
//!
//! Each has its unit and its source; where none is named, the value was chosen on the pipelines of
//! `make study` that tests do not use. `make study` varies each alone by a fifth either way and prints in
//! how many of its pipelines the bottleneck changes: a verdict that hangs on one constant is no verdict.

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
    /// A step that waits less than this for data is limited by its compute. Source: a headspace below
    /// three points is within what a probe is off by (`floor`).
    hardly_waits: 0.03, "share of the step";

    /// What relief of a term must gain for the term to be called the bottleneck. Source: as
    /// `hardly_waits`.
    least_gain: 0.03, "share of the step";

    /// A term whose relief gains this share of the best relief's gain is as good.
    as_good: 0.8, "share of the best gain";

    /// A stage or a resource whose limit is this near to the step binds by law.
    binds: 0.93, "share of the step";

    /// A stage whose limit is above this is tried as the bottleneck.
    near_step: 0.5, "share of the step";

    /// Cores or decoders used this much are tried as the bottleneck.
    may_bind: 0.7, "share of the supply";

    /// Use of a resource from which on a call's time includes waiting for it. Waiting
    /// rises steeply near full use (Kleinrock, *Queueing Systems*, 1975); where that begins is chosen.
    busy: 0.85, "share of the supply";

    /// Use of the cores from which on hardly any time is left.
    all_cores: 0.87, "share of the cores";

    /// A queue that is full for this share of the time is full always.
    always_pct: 95.0, "% of time";

    /// The training thread that waits for a core this long lacks one. For comparison: two busy threads
    /// on one core wait half of the time, three on two cores a third.
    starved_pct: 15.0, "% of time";

    /// The CPU quota that runs out this often is what the cores lack.
    throttled_pct: 5.0, "% of periods";

    /// The garbage collector may bind from here on. Source: as `hardly_waits`.
    gc_pct: 3.0, "% of time";

    /// A wait for the interpreter lock that is long. Source: a fifth of Python's switch interval
    /// (`sys.getswitchinterval()`, 5 ms), which is what a thread waits at most for one other.
    gil_wait_ms: 1.0, "ms";

    /// The same as a part of the step, where it holds the loop up.
    gil_wait_share: 0.1, "share of the step";

    /// Work of other threads from which on they hold the lock.
    gil_others: 0.2, "cores";

    /// How many times longer a call takes for want of the lock before its other waiting cannot be
    /// separated from that.
    gil_hides_waits: 2.5, "ratio";

    /// Instructions in a cycle below which a thread waits for memory.
    stalled_ipc: 0.6, "instructions per cycle";

    /// The same where the loop is also slower than alone. Source: as `stalled_ipc`.
    slow_ipc: 0.9, "instructions per cycle";

    /// By how much the loop is then slower.
    slower_seen: 0.1, "share of the floor";

    /// By how much the loop is slower where no counter shows why.
    slower_unseen: 0.2, "share of the floor";

    /// Calls at once that memory contention then needs.
    crowd_unseen: 4.0, "calls at once";

    /// How far the simulation may be from the measured step and still be believed.
    believed: 0.15, "share of the step";

    /// How far two numbers of calls at once may differ and be of the same calls.
    alike: 0.15, "share";

    /// Share of the waiting that stages on the training thread explain at least. What a loader does
    /// besides, such as a copy to page-locked memory, is no stage.
    least_explained: 0.6, "share of the wait";

    /// The same where the loader does not say that it works on the training thread.
    explained: 0.85, "share of the wait";

    /// Other programs count from this use on.
    least_others: 0.1, "cores";

    /// Share of the loop's own part that is work at least, however long its thread waits for a core.
    least_work: 0.2, "share of compute";
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
        assert_eq!(names[0], "hardly_waits");
        assert!((varied[0].2.hardly_waits - 0.036).abs() < 1e-12);
        assert_eq!(varied[0].2.binds.to_bits(), all.binds.to_bits());
    }
}
