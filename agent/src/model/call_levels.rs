//! The times of a stage's calls by the number of calls at once (the level).

/// Highest level. Calls with more at once count in it.
pub const LEVELS: usize = 16;

/// The calls of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelTotals {
    /// Number of calls.
    pub calls: u64,
    /// Sum of their durations, in nanoseconds.
    pub sum_ns: u64,
    /// Sum of the squares of their durations, in square microseconds.
    pub squares_us2: u64,
}

/// The calls of each level, from level 1. The list ends with the highest level that has calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallLevels(pub Vec<LevelTotals>);

impl LevelTotals {
    /// Adds the calls of the same level in another interval or process.
    pub fn merge(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.squares_us2 = self.squares_us2.saturating_add(other.squares_us2);
    }

    /// Mean duration in milliseconds. `None` without calls.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.sum_ns as f64 / 1e6 / self.calls as f64)
    }

    /// Standard deviation of the durations, in milliseconds. `None` for fewer than two calls.
    pub fn sd_ms(&self) -> Option<f64> {
        if self.calls < 2 {
            return None;
        }
        let calls = self.calls as f64;
        let mean_us = self.sum_ns as f64 / 1e3 / calls;
        let squares = self.squares_us2 as f64 - calls * mean_us * mean_us;
        Some((squares.max(0.0) / (calls - 1.0)).sqrt() / 1e3)
    }
}

impl CallLevels {
    /// Adds the calls of the same stage in another interval or process.
    pub fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), LevelTotals::default());
        }
        for (level, other) in self.0.iter_mut().zip(&other.0) {
            level.merge(other);
        }
    }

    /// Each level with its number of calls at once.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &LevelTotals)> {
        (1..).zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_calls() {
        // 1, 2 and 3 ms.
        let level = LevelTotals {
            calls: 3,
            sum_ns: 6_000_000,
            squares_us2: 14_000_000,
        };
        assert_eq!(level.mean_ms(), Some(2.0));
        assert_eq!(level.sd_ms(), Some(1.0));
        assert_eq!(LevelTotals::default().mean_ms(), None);
    }

    #[test]
    fn merged_lists_are_as_long_as_the_longer_one() {
        let one = LevelTotals {
            calls: 1,
            sum_ns: 10,
            squares_us2: 0,
        };
        let mut levels = CallLevels(vec![one]);
        levels.merge(&CallLevels(vec![one, one]));
        let calls: Vec<_> = levels.iter().map(|(calls, of)| (calls, of.calls)).collect();
        assert_eq!(calls, [(1, 2), (2, 1)]);
    }
}
