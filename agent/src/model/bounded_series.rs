//! A time series of buckets in bounded memory.
//!
//! At first, each item is a bucket. When all buckets are in use, neighbours are merged until about half of
//! the buckets are left. From then on, each bucket holds twice as much. Each item has a weight: 1 if all
//! items count the same, or its seconds if buckets should last equally long.

/// Default number of buckets.
pub const DEFAULT_CAPACITY: usize = 256;

/// A series of at most a given number of buckets, in the order of their items.
#[derive(Debug, Clone)]
pub struct BoundedSeries<T> {
    buckets: Vec<T>,
    /// Total weight of the items in each bucket.
    weights: Vec<f64>,
    /// Maximum number of buckets.
    capacity: usize,
    /// Maximum weight of a bucket; 0 while each item is a bucket.
    bucket_weight: f64,
}

/// A series of [`DEFAULT_CAPACITY`] buckets.
impl<T> Default for BoundedSeries<T> {
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }
}

impl<T> BoundedSeries<T> {
    /// An empty series of at most `capacity` buckets, at least 2.
    pub fn new(capacity: usize) -> Self {
        Self {
            buckets: Vec::new(),
            weights: Vec::new(),
            capacity: capacity.max(2),
            bucket_weight: 0.0,
        }
    }

    /// Changes the maximum number of buckets, at least 2. It takes effect at the next item.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.max(2);
    }

    /// The buckets, in order. The last one may not be complete.
    pub fn buckets(&self) -> &[T] {
        &self.buckets
    }

    /// The buckets, in order, to change them.
    pub fn buckets_mut(&mut self) -> &mut [T] {
        &mut self.buckets
    }

    /// Appends an item. `merge` adds the later of two neighbours to the earlier.
    pub fn push(&mut self, item: T, weight: f64, merge: impl Fn(&mut T, T)) {
        match self.open_bucket(weight) {
            Some(last) => merge(last, item),
            None => self.append(item, weight, merge),
        }
    }

    /// The bucket for an item of this weight: the last bucket if it has room, else a new one. For items
    /// that are cheaper to add to a bucket than to convert into one.
    pub fn bucket_for(&mut self, weight: f64, merge: impl Fn(&mut T, T)) -> Option<&mut T>
    where
        T: Default,
    {
        if self.open_bucket(weight).is_none() {
            self.append(T::default(), weight, merge);
        }
        self.buckets.last_mut()
    }

    /// The last bucket, if it has room for this weight, which then counts as its own.
    fn open_bucket(&mut self, weight: f64) -> Option<&mut T> {
        let last = self.weights.last_mut()?;
        if *last + weight > self.bucket_weight {
            return None;
        }
        *last += weight;
        self.buckets.last_mut()
    }

    fn append(&mut self, item: T, weight: f64, merge: impl Fn(&mut T, T)) {
        if self.buckets.len() >= self.capacity {
            self.halve(merge);
        }
        self.buckets.push(item);
        self.weights.push(weight);
    }

    /// Merges neighbours until about half of the buckets are left.
    fn halve(&mut self, merge: impl Fn(&mut T, T)) {
        let total: f64 = self.weights.iter().sum();
        let most = (2.0 * total / self.capacity as f64).max(2.0 * self.bucket_weight);
        self.bucket_weight = most;
        self.merge_neighbours(&merge, |_, weight| weight <= most);
        if self.buckets.len() >= self.capacity {
            // A few heavy items between light ones: merge by number instead.
            self.merge_neighbours(&merge, |number, _| number % 2 == 1);
        }
    }

    /// Merges a bucket into the previous one if `fits` returns true for the bucket's number and the weight
    /// of both.
    fn merge_neighbours(&mut self, merge: impl Fn(&mut T, T), fits: impl Fn(usize, f64) -> bool) {
        let weights = std::mem::take(&mut self.weights);
        let buckets = std::mem::take(&mut self.buckets);
        for (number, (bucket, weight)) in buckets.into_iter().zip(weights).enumerate() {
            match (self.buckets.last_mut(), self.weights.last_mut()) {
                (Some(last), Some(sum)) if fits(number, *sum + weight) => {
                    merge(last, bucket);
                    *sum += weight;
                }
                _ => {
                    self.buckets.push(bucket);
                    self.weights.push(weight);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A series of the numbers from 0 to `items`, each bucket a list of those in it.
    fn series(capacity: usize, items: u32, weight: impl Fn(u32) -> f64) -> Vec<Vec<u32>> {
        let mut series = BoundedSeries::new(capacity);
        for item in 0..items {
            series.push(vec![item], weight(item), Extend::extend);
            assert!(series.buckets().len() <= capacity);
        }
        series.buckets().to_vec()
    }

    #[test]
    fn neighbours_merge_pairwise_when_all_buckets_are_in_use() {
        let buckets = series(4, 6, |_| 1.0);
        assert_eq!(buckets, [vec![0, 1], vec![2, 3], vec![4, 5]]);

        let buckets = series(4, 9, |_| 1.0);
        assert_eq!(buckets, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]]);
    }

    #[test]
    fn no_item_is_lost_and_their_order_is_kept() {
        for weight in [0.0, 1.0, 0.1] {
            let buckets = series(16, 5000, |_| weight);
            assert!(buckets.concat().into_iter().eq(0..5000), "{weight}");
        }
    }

    #[test]
    fn buckets_last_equally_long_if_weights_are_seconds() {
        // Ten long items, then a hundred short ones.
        let seconds = |item| if item < 10 { 10.0 } else { 1.0 };
        let buckets = series(32, 110, seconds);

        let long: Vec<f64> = buckets
            .iter()
            .map(|items| items.iter().map(|item| seconds(*item)).sum())
            .collect();
        assert!(long.iter().all(|seconds| *seconds <= 14.0), "{long:?}");
        assert_eq!(buckets[0], [0]);
    }

    #[test]
    fn a_few_heavy_items_between_light_ones_leave_room_for_more() {
        let buckets = series(4, 400, |item| if item % 2 == 0 { 1e9 } else { 1.0 });

        assert!(buckets.concat().into_iter().eq(0..400));
    }

    #[test]
    fn a_smaller_capacity_takes_effect_at_the_next_item() {
        let mut series = BoundedSeries::new(64);
        for item in 0..64 {
            series.push(vec![item], 1.0, Extend::extend);
        }
        series.set_capacity(8);
        series.push(vec![64], 1.0, Extend::extend);

        assert!(series.buckets().len() <= 8, "{:?}", series.buckets());
        assert!(series.buckets().concat().into_iter().eq(0..65));
    }
}
