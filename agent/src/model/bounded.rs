//! Appends to a list of bounded length.

use std::collections::VecDeque;

/// Appends an item, and removes the oldest one if there are already `most`.
pub fn push_bounded<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}
