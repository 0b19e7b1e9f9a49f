//! Opens the parsers of a service's answers to the fuzz targets. Not for users.

use std::time::SystemTime;

use super::http::{after, refused_in_json};

/// Parses an answer: its body, and the same text as its header `Retry-After`.
pub fn parse_answer(body: &[u8]) {
    let refused = refused_in_json(body);
    assert!(refused.is_none_or(|(count, ..)| count > 0));
    let _ = after(Some(&String::from_utf8_lossy(body)), SystemTime::UNIX_EPOCH);
}
