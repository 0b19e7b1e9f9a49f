//! Splits a byte stream into lines, in bounded memory even if a line never ends.

use std::io::{self, Read};

/// Longest line that is kept, in bytes. A `run` record contains a command line, which Linux limits to 2
/// MiB. All other records are much shorter.
pub(super) const MAX_LINE: usize = 8 << 20;

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
    source: R,
    buffer: Vec<u8>,
    /// Index in `buffer` at which the next line begins.
    start: usize,
    /// Index in `buffer` at which the valid bytes end.
    end: usize,
    /// Index up to which no `\n` was found; not less than `start`.
    searched: usize,
    /// Whether the bytes at `start` continue a line that is too long.
    passing_over: bool,
    bytes: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            searched: 0,
            passing_over: false,
            bytes: 0,
        }
    }

    /// Number of bytes read from the source so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line, or `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let unsearched = self.buffer.get(self.searched..self.end).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unsearched) {
                let line = self.start..self.searched + at;
                self.start = line.end + 1;
                self.searched = self.start;
                if std::mem::take(&mut self.passing_over) {
                    return Ok(Some(Line::TooLong));
                }
                return Ok(self.buffer.get(line).map(Line::Whole));
            }
            self.searched = self.end;
            if self.end - self.start > MAX_LINE {
                self.passing_over = true;
            }
            if self.passing_over {
                self.start = self.end;
            }
            if self.fill()? == 0 {
                return Ok(self.rest());
            }
        }
    }

    /// The bytes that remain at the end of the source.
    fn rest(&mut self) -> Option<Line<'_>> {
        let line = self.start..self.end;
        self.start = self.end;
        if std::mem::take(&mut self.passing_over) {
            return Some(Line::TooLong);
        }
        self.buffer
            .get(line)
            .filter(|rest| !rest.is_empty())
            .map(Line::Unterminated)
    }

    /// Frees space and reads more. Returns 0 at the end of the source.
    fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        if self.end == 0 {
            // After a long line, release its memory.
            self.buffer.truncate(CHUNK);
            self.buffer.shrink_to_fit();
        } else if self.buffer.len() - self.end < CHUNK / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.source.read(room) {
                Ok(read) => {
                    self.end += read;
                    self.bytes += read as u64;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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
        assert!(
            lines.buffer.capacity() <= 4 * MAX_LINE,
            "{}",
            lines.buffer.capacity()
        );
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
