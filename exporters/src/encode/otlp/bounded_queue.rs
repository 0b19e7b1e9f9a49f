//! Queues items that are each sent once: spans and log records.
//!
//! The queue is bounded. When it is full, the newest item is dropped and counted, so a slow collector
//! does not cost memory.

use std::collections::VecDeque;

/// Maximum number of items that wait for the next export.
const MOST_WAITING: usize = 4096;

/// Items in the order of their creation.
#[derive(Debug, Clone, Default)]
pub struct BoundedQueue<T> {
    items: VecDeque<T>,
    dropped: u64,
}

impl<T: Clone> BoundedQueue<T> {
    /// Adds an item, or drops it if the queue is full.
    pub fn push(&mut self, item: T) {
        if self.items.len() < MOST_WAITING {
            self.items.push_back(item);
        } else {
            self.dropped += 1;
        }
    }

    /// Copies of the oldest items, at most `most`.
    pub fn first(&self, most: usize) -> Vec<T> {
        self.items.iter().take(most).cloned().collect()
    }

    /// Removes the oldest `items` after they were delivered.
    pub fn done(&mut self, items: usize) {
        self.items.drain(..items.min(self.items.len()));
    }

    /// Removes the oldest `items` and counts them as lost.
    pub fn give_up(&mut self, items: usize) {
        let items = items.min(self.items.len());
        self.done(items);
        self.dropped += items as u64;
    }

    /// Number of items lost so far, because the queue was full or they were refused.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_the_newest_item_and_counts_it() {
        let mut waiting = BoundedQueue::default();
        (0..MOST_WAITING + 3).for_each(|number| waiting.push(number));
        assert_eq!(waiting.dropped(), 3);
        let all = waiting.first(usize::MAX);
        assert_eq!(all.last(), Some(&(MOST_WAITING - 1)));
        waiting.done(MOST_WAITING - 2);
        waiting.give_up(1);
        assert_eq!(waiting.dropped(), 4);
        assert_eq!(waiting.first(9), [MOST_WAITING - 1]);
    }
}
