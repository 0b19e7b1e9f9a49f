//! The load of other programs on the same cores. It determines how much longer work takes at each time.

use std::collections::VecDeque;

use headspace_agent::statistics::bootstrap::Rng;

/// Nanoseconds in which the load is constant.
const SEGMENT: u64 = 10_000_000;

/// Programs that start and stop, and a slowly changing level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Others {
    /// Standard deviation of the logarithm of the slow-down by clock rates, caches and memory bandwidth, and
    /// its correlation time in seconds. This slow-down is not time spent waiting for a core.
    pub(crate) wave: f64,
    pub(crate) wave_s: f64,
    /// Slow-down factor while other programs use the same cores. The thread waits for a core in the
    /// additional time.
    pub(crate) burst: f64,
    /// Mean seconds of such a burst, and of the pause after it.
    pub(crate) on_s: f64,
    pub(crate) off_s: f64,
    /// Period in nanoseconds after which the same load repeats.
    pub(crate) repeats_ns: Option<u64>,
}

/// A time span with constant load.
#[derive(Debug, Clone, Copy)]
struct Segment {
    begins: u64,
    /// Slow-down factor, and the share of time spent waiting for a core.
    slower: f64,
    waits: f64,
}

/// The load over time, drawn segment by segment.
pub(crate) struct Load {
    others: Others,
    rng: Rng,
    segments: VecDeque<Segment>,
    wave: f64,
    on: bool,
    /// Number of segments until the burst begins or ends.
    left: u64,
}

impl Load {
    pub(crate) fn new(others: Others, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0707_0707);
        let on = rng.unit() < others.on_s / (others.on_s + others.off_s);
        let wave = others.wave * rng.normal();
        Self {
            others,
            rng,
            segments: VecDeque::new(),
            wave,
            on,
            left: 0,
        }
    }

    fn extend(&mut self) {
        let others = self.others;
        if self.left == 0 {
            self.on = !self.on;
            let mean = if self.on { others.on_s } else { others.off_s };
            let seconds = -mean * (1.0 - self.rng.unit()).ln();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let segments = (seconds * 1e9 / SEGMENT as f64) as u64;
            self.left = segments + 1;
        }
        self.left -= 1;
        let kept = (-(SEGMENT as f64) / 1e9 / others.wave_s).exp();
        self.wave = kept * self.wave + others.wave * (1.0 - kept * kept).sqrt() * self.rng.normal();
        let burst = if self.on { others.burst } else { 1.0 };
        let begins = self.segments.back().map_or(0, |last| last.begins + SEGMENT);
        self.segments.push_back(Segment {
            begins,
            slower: self.wave.exp() * burst,
            waits: 1.0 - 1.0 / burst,
        });
    }

    fn at(&mut self, time: u64) -> Segment {
        while self
            .segments
            .back()
            .is_none_or(|last| last.begins + SEGMENT <= time)
        {
            self.extend();
        }
        let index = (time - self.segments[0].begins) / SEGMENT;
        self.segments[usize::try_from(index).unwrap()]
    }

    /// The segment at that time. If the load is periodic, `begins` is moved to the current period.
    fn segment(&mut self, time: u64) -> Segment {
        let Some(period) = self.others.repeats_ns else {
            return self.at(time);
        };
        let period = period.next_multiple_of(SEGMENT);
        let again = time / period * period;
        let segment = self.at(time - again);
        Segment {
            begins: segment.begins + again,
            ..segment
        }
    }

    /// Duration of `work` from `from` on, and the part of it spent waiting for a core, in nanoseconds.
    pub(crate) fn time_for_work(&mut self, from: u64, mut work: f64) -> (f64, f64) {
        let (mut time, mut waited) = (from as f64, 0.0);
        loop {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let segment = self.segment(time as u64);
            let left = (segment.begins + SEGMENT) as f64 - time;
            let needed = work * segment.slower;
            if needed <= left {
                time += needed;
                return (time - from as f64, waited + needed * segment.waits);
            }
            work -= left / segment.slower;
            waited += left * segment.waits;
            time = (segment.begins + SEGMENT) as f64;
        }
    }

    /// Nanoseconds between `from` and `to` in which a runnable thread waits for a core.
    pub(crate) fn waiting_ns(&mut self, from: u64, to: u64) -> f64 {
        let (mut time, mut waiting) = (from, 0.0);
        while time < to {
            let segment = self.segment(time);
            let end = (segment.begins + SEGMENT).min(to);
            waiting += (end - time) as f64 * segment.waits;
            time = end;
        }
        waiting
    }

    /// The work that a thread finishes between `from` and `to`.
    pub(crate) fn progress(&mut self, from: u64, to: u64) -> f64 {
        let (mut time, mut done) = (from, 0.0);
        while time < to {
            let segment = self.segment(time);
            let end = (segment.begins + SEGMENT).min(to);
            done += (end - time) as f64 / segment.slower;
            time = end;
        }
        done
    }

    /// Drops the segments that end before this time.
    pub(crate) fn forget(&mut self, before: u64) {
        while self.others.repeats_ns.is_none()
            && self.segments.len() > 1
            && self.segments[1].begins <= before
        {
            self.segments.pop_front();
        }
    }
}
