//! Reads records from a stream that may contain anything.
//!
//! A run's file may be read during writing, after a kill, after a full disk, or after people have
//! edited it. A line that is not a record is therefore skipped and counted by reason, and the records
//! around it are read. Records of unwanted kinds are validated as JSON and counted, but not kept. This
//! makes large files fast to read.

use std::io::{self, Read};
use std::ops::AddAssign;

use headspace_agent::analysis::tick_series::SeriesTick;
use headspace_agent::model::Record;
use memchr::memmem;

use super::json_lines::{BEGINNING, Envelope, Kind, LineError};
use super::split_lines::{Line, Lines};
use super::tick_line::series_tick;

/// Skipped lines, counted by reason. A line that is too long counts as damaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped([u64; LineError::UnknownKind as usize + 1]);

impl Skipped {
    /// Total number of skipped lines.
    pub fn total(self) -> u64 {
        self.0.iter().sum()
    }

    /// Number of lines that were skipped for this reason.
    pub fn count(self, reason: LineError) -> u64 {
        self.0[reason as usize]
    }

    /// Counts one line.
    pub fn add(&mut self, reason: LineError) {
        self.0[reason as usize] += 1;
    }
}

/// Counts of what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes read.
    pub bytes: u64,
    /// Records of any known kind, including unwanted ones.
    pub records: u64,
    /// Wall-clock time of the latest record, nanoseconds since 1970-01-01 UTC; 0 without records.
    pub last_unix_nano: u64,
    /// Lines that were skipped.
    pub skipped: Skipped,
}

impl Tally {
    fn count_record(&mut self, time_unix_nano: u64) {
        self.records += 1;
        self.last_unix_nano = self.last_unix_nano.max(time_unix_nano);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.records += other.records;
        self.last_unix_nano = self.last_unix_nano.max(other.last_unix_nano);
        for (count, more) in self.skipped.0.iter_mut().zip(other.skipped.0) {
            *count += more;
        }
    }
}

/// Reads records one by one. Memory is bounded by the longest line kept, 8 MiB.
///
/// ```
/// use headspace_exporters::encode::json_lines::LineError;
/// use headspace_exporters::encode::reader::Records;
///
/// let mut records = Records::new(&b"not a record\n"[..]);
/// assert!(records.next().is_none());
/// assert_eq!(records.tally().skipped.count(LineError::Foreign), 1);
/// ```
pub struct Records<R> {
    lines: Lines<R>,
    unwanted: &'static [Kind],
    tally: Tally,
}

impl<R: Read> Records<R> {
    /// Reads all records of `source`.
    pub fn new(source: R) -> Self {
        Self {
            lines: Lines::new(source),
            unwanted: &[],
            tally: Tally::default(),
        }
    }

    /// Counts records of the kinds in `unwanted`, but does not return them.
    #[must_use]
    pub fn without(self, unwanted: &'static [Kind]) -> Self {
        Self { unwanted, ..self }
    }

    /// Counts so far.
    pub fn tally(&self) -> Tally {
        Tally {
            bytes: self.lines.bytes(),
            ..self.tally
        }
    }
}

/// A callback for the ticks of a file that is read for its other records.
pub type OnTick<'a> = dyn FnMut(&SeriesTick<'_>) + 'a;

impl<R: Read> Records<R> {
    /// The next record of a wanted kind, except ticks. The ticks before it are passed to `on_tick`,
    /// with the fields that the run's tick series needs.
    pub fn next_after(&mut self, on_tick: &mut OnTick<'_>) -> Option<io::Result<Record>> {
        self.find(Some(on_tick)).transpose()
    }

    fn find(&mut self, mut on_tick: Option<&mut OnTick<'_>>) -> io::Result<Option<Record>> {
        loop {
            let (bytes, terminated) = match self.lines.next()? {
                Some(Line::Whole(bytes)) => (bytes, true),
                Some(Line::Unterminated(bytes)) => (bytes, false),
                Some(Line::TooLong) => {
                    self.tally.skipped.add(LineError::Damaged);
                    continue;
                }
                None => return Ok(None),
            };
            let bytes = bytes.trim_ascii();
            if bytes.is_empty() {
                continue;
            }
            let mut read = |line| {
                let on_tick = on_tick.as_mut().map(|on_tick| &mut **on_tick as _);
                read_line(line, self.unwanted, &mut self.tally, on_tick)
            };
            let error = match read(bytes) {
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) => continue,
                Err(error) => error,
            };
            // A record that was appended after a truncated one is complete.
            let behind = memmem::rfind(bytes, BEGINNING.as_bytes())
                .filter(|at| *at > 0)
                .and_then(|at| read(bytes.get(at..)?).ok().flatten());
            // The end of a file that is still being written, or whose writer was killed.
            let cut_short = !terminated && error == LineError::Damaged;
            let reason = if cut_short { LineError::Cut } else { error };
            self.tally.skipped.add(reason);
            if behind.is_some() {
                return Ok(behind);
            }
        }
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.find(None).transpose()
    }
}

/// Reads a line, counts it if it is a record, and keeps it if it is wanted. Ticks are not kept but
/// passed to the callback, if there is one.
fn read_line(
    line: &[u8],
    unwanted: &'static [Kind],
    tally: &mut Tally,
    mut on_tick: Option<&mut OnTick<'_>>,
) -> Result<Option<Record>, LineError> {
    if let Some(on_tick) = &mut on_tick
        && begins_as_tick(line)
        && let Some((envelope, tick)) = series_tick(line)
    {
        tally.count_record(envelope.fields.time_unix_nano);
        on_tick(&tick);
        return Ok(None);
    }
    let envelope = Envelope::parse(line)?;
    let time = envelope.fields.time_unix_nano;
    let record = match (envelope.kind, on_tick) {
        // Written by another program with another field order, or not a tick.
        (Kind::Tick, Some(on_tick)) => {
            let (_, tick) = series_tick(line).ok_or(LineError::Damaged)?;
            on_tick(&tick);
            None
        }
        (kind, _) if unwanted.contains(&kind) => None,
        _ => Some(envelope.decode()?),
    };
    tally.count_record(time);
    Ok(record)
}

/// Whether the line begins like the ticks of this crate. Their `kind` comes after the common fields.
fn begins_as_tick(line: &[u8]) -> bool {
    let beginning = line.get(..256).unwrap_or(line);
    memmem::find(beginning, br#""kind":"tick""#).is_some()
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::RecordBody;
    use headspace_agent::model::record::{NoticeRecord, Severity};
    use proptest::prelude::*;

    use super::super::test_records;
    use super::*;

    fn skipped(lines: &[LineError]) -> Skipped {
        let mut skipped = Skipped::default();
        for reason in lines {
            skipped.add(*reason);
        }
        skipped
    }

    fn read(bytes: &[u8], unwanted: &'static [Kind]) -> (Vec<Record>, Tally) {
        let mut records = Records::new(bytes).without(unwanted);
        let all = records.by_ref().map(Result::unwrap).collect();
        (all, records.tally())
    }

    fn notice(text: &str) -> Record {
        let body = NoticeRecord {
            code: "test".to_owned(),
            severity: Severity::Info,
            text: text.to_owned(),
        };
        test_records::record(5, RecordBody::Notice(body))
    }

    #[test]
    fn reader_counts_a_truncated_last_line_and_reads_the_records_before_it() {
        let whole = test_records::line(&notice("whole"));
        for length in 1..whole.len() - 1 {
            let text = format!("{whole}{}", &whole[..length]);
            let (records, tally) = read(text.as_bytes(), &[]);

            assert_eq!(records, [notice("whole")], "{length}");
            assert_eq!(tally.skipped, skipped(&[LineError::Cut]), "{length}");
        }
    }

    #[test]
    fn reader_accepts_a_last_record_without_newline() {
        let whole = test_records::line(&notice("whole"));
        let (records, tally) = read(whole.trim_end().as_bytes(), &[]);

        assert_eq!(records.len(), 1);
        assert_eq!(tally.skipped.total(), 0);
    }

    #[test]
    fn reader_returns_a_record_appended_after_a_truncated_one() {
        let whole = test_records::line(&notice("behind"));
        let text = format!("{}{whole}", &whole[..40]);
        let (records, tally) = read(text.as_bytes(), &[]);

        assert_eq!(records, [notice("behind")]);
        assert_eq!(tally.skipped, skipped(&[LineError::Damaged]));
    }

    #[test]
    fn reader_counts_unwanted_records_and_detects_damaged_ones() {
        let tick = test_records::line(&test_records::record(
            9,
            RecordBody::Tick(test_records::tick(3)),
        ));
        let damaged = tick.replacen(r#""steps":100"#, r#""steps":1x0"#, 1);
        assert_ne!(tick, damaged);
        let text = format!(
            "{tick}{damaged}{tick}{}",
            test_records::line(&notice("last"))
        );

        let (records, tally) = read(text.as_bytes(), &[Kind::Tick]);

        assert_eq!(records, [notice("last")]);
        assert_eq!((tally.records, tally.last_unix_nano), (3, 9));
        assert_eq!(tally.skipped, skipped(&[LineError::Damaged]));
        assert_eq!(tally.bytes, text.len() as u64);
    }

    #[test]
    fn reader_distinguishes_foreign_lines_from_other_versions() {
        let text = format!(
            "epoch 1\r\n\n  \n{{\"a\": 1}}\n{}{}{}",
            test_records::line(&notice("x")).replace("headspace/1.1", "headspace/10"),
            test_records::line(&notice("x")).replace(r#""notice""#, r#""dream""#),
            test_records::line(&notice("good")),
        );
        let (records, tally) = read(text.as_bytes(), &[]);

        assert_eq!(records, [notice("good")]);
        assert_eq!(
            tally.skipped,
            skipped(&[
                LineError::Foreign,
                LineError::Foreign,
                LineError::OtherSchema,
                LineError::UnknownKind
            ])
        );
    }

    /// Bytes without a newline: noise, text, JSON, or a modified record.
    fn rubbish() -> impl Strategy<Value = Vec<u8>> {
        let tampered = (
            test_records::any_record(),
            any::<prop::sample::Index>(),
            any::<u8>(),
        )
            .prop_map(|(record, at, byte)| {
                let mut line = test_records::line(&record).into_bytes();
                line.pop();
                let at = at.index(line.len());
                line[at] = byte;
                line
            });
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            ".{0,40}".prop_map(String::into_bytes),
            tampered,
        ]
        .prop_map(|bytes| bytes.into_iter().filter(|b| *b != b'\n').collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn reader_returns_all_good_lines_between_any_others(
            pairs in prop::collection::vec((test_records::any_record(), rubbish()), 0..6),
            end in rubbish(),
        ) {
            let mut bytes = Vec::new();
            for (record, rubbish) in &pairs {
                bytes.extend_from_slice(test_records::line(record).as_bytes());
                bytes.extend_from_slice(rubbish);
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(&end);

            let (read, tally) = read(&bytes, &[]);

            // A modified line may still be a record, so the good records are a subsequence.
            let mut found = read.iter();
            for (record, _) in &pairs {
                prop_assert!(found.any(|r| r == record), "a good record is missing");
            }
            prop_assert_eq!(tally.bytes, bytes.len() as u64);
            prop_assert_eq!(tally.records, read.len() as u64);
        }

        #[test]
        fn reading_any_bytes_does_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let (records, _) = read(&bytes, &[]);
            prop_assert!(records.is_empty());
        }
    }
}
