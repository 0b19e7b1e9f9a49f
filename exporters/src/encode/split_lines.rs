//! Splits a byte stream into lines, in bounded memory even if a line never ends.

use std::io::{self, BufRead, BufReader, Read};

/// Longest line that is kept, in bytes. A `run` record contains a command line, which Linux
/// limits to 2 MiB. All other records are much shorter.
pub(crate) const MAX_LINE: usize = 8 << 20;

/// Bytes per read: large enough that the cost of system calls is negligible, small enough for the L2
/// cache.
const CHUNK: usize = 256 << 10;

/// One line, without its `\n`.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// A complete line.
    Whole(&'a [u8]),
    /// The bytes after the last `\n`: the writer was stopped, or is still writing.
    Unterminated(&'a [u8]),
    /// A line longer than [`MAX_LINE`], which was skipped.
    TooLong,
}

/// Splits a stream into lines.
pub(super) struct Lines<R> {
    source: BufReader<R>,
    line: Vec<u8>,
    bytes: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(CHUNK, source),
            line: Vec::new(),
            bytes: 0,
        }
    }

    /// Number of bytes of the lines so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line, or `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        // After a long line, release its memory.
        self.line.shrink_to(CHUNK);
        let mut kept = self.source.by_ref().take(MAX_LINE as u64 + 1);
        let length = kept.read_until(b'\n', &mut self.line)?;
        self.bytes += length as u64;
        Ok(match self.line.split_last() {
            None => None,
            Some((b'\n', line)) => Some(Line::Whole(line)),
            Some(_) if length > MAX_LINE => {
                self.bytes += self.source.skip_until(b'\n')? as u64;
                Some(Line::TooLong)
            }
            Some(_) => Some(Line::Unterminated(&self.line)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(source: impl Read) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(source);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                Line::Whole(bytes) | Line::Unterminated(bytes) => Some(bytes.to_vec()),
                Line::TooLong => None,
            });
        }
        all
    }

    /// A source that returns a few bytes per read.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn the_rest_after_the_last_newline_is_unterminated() {
        let mut lines = Lines::new(&b"a\n\nbc"[..]);

        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"a")));
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"")));
        assert_eq!(lines.next().unwrap(), Some(Line::Unterminated(b"bc")));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn an_endless_line_is_skipped_in_bounded_memory() {
        let endless = io::repeat(b'x').take(200 << 20);
        let mut lines = Lines::new(endless.chain(&b"\nafter\n"[..]));

        assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
        let capacity = lines.line.capacity();
        assert!(capacity <= 4 * MAX_LINE, "{capacity}");
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"after")));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn a_line_of_the_longest_length_is_kept() {
        let mut text = vec![b'x'; MAX_LINE];
        text.extend_from_slice(b"\ny");

        assert_eq!(split(&text[..]).len(), 2);
        assert!(split(&text[..])[0].is_some());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_sizes_of_reads(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            step in 1usize..20,
        ) {
            let mut expected: Vec<_> =
                text.split(|b| *b == b'\n').map(|l| Some(l.to_vec())).collect();
            if expected.last().unwrap().as_deref() == Some(&[][..]) {
                expected.pop();
            }
            prop_assert_eq!(split(Drip(&text, step)), expected);
        }
    }
}
