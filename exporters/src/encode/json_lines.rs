//! A record as one line of JSON, and back.
//!
//! A line ends with `\n` and holds no other. [`decode`] reads the fields that every record has
//! first, and then only what the record's kind needs, so that a record nobody asked for costs one
//! pass over its bytes and no memory.

use std::borrow::Cow;
use std::io;

use headspace_agent::model::record::SCHEMA;
use headspace_agent::model::{Record, RecordBody};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};

use super::finite;

/// What every record written by this crate begins with.
pub(super) const BEGINNING: &str = r#"{"schema":"headspace/"#;

/// What kind of record a line holds: the `kind` of design and schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// What runs where.
    Run,
    /// What happened since the tick before.
    Tick,
    /// An epoch ended.
    Epoch,
    /// The probe ended.
    Probe,
    /// Something the user was told.
    Notice,
    /// The run so far.
    Summary,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: &'static [Self] = &[
        Self::Run,
        Self::Tick,
        Self::Epoch,
        Self::Probe,
        Self::Notice,
        Self::Summary,
    ];

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "run" => Self::Run,
            "tick" => Self::Tick,
            "epoch" => Self::Epoch,
            "probe" => Self::Probe,
            "notice" => Self::Notice,
            "summary" => Self::Summary,
            _ => return None,
        })
    }
}

/// Why a line is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A record that stops in the middle: the process was killed, or the disk was full.
    #[error("the line stops in the middle of a record")]
    Cut,
    /// Something that never was a record: another program's output, or another format.
    #[error("the line is not a headspace record")]
    Foreign,
    /// A record whose bytes are not those that were written.
    #[error("the record is damaged")]
    Damaged,
    /// A record of another version of the format.
    #[error("the record is of another version than `{SCHEMA}`")]
    OtherSchema,
    /// A record of this version, of a kind that this program does not know.
    #[error("the record is of a kind that this version of headspace does not know")]
    UnknownKind,
}

/// Appends `record` to `out` as one line, its `\n` included.
///
/// A number that is not finite is left out with the smallest optional thing around it.
///
/// # Errors
///
/// When serde refuses the record, which no record of this version makes it do. `out` is then as it
/// was.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    let nulls = match write(record, out) {
        Ok(nulls) => nulls,
        Err(error) => {
            out.truncate(start);
            return Err(error.into());
        }
    };
    // A null is an absent value, or a number that JSON cannot write. A required one does not read.
    if nulls > 0 && decode(&out[start..]).is_err() {
        out.truncate(start);
        let mut readable = record.clone();
        finite::leave_out_unreadable(&mut readable);
        if let Err(error) = write(&readable, out) {
            out.truncate(start);
            return Err(error.into());
        }
    }
    out.push(b'\n');
    Ok(())
}

/// How many nulls it wrote.
fn write(record: &Record, out: &mut Vec<u8>) -> serde_json::Result<usize> {
    let mut nulls = 0;
    record.serialize(&mut serde_json::Serializer::with_formatter(
        out,
        CountNulls(&mut nulls),
    ))?;
    Ok(nulls)
}

/// Compact JSON that knows whether it wrote a null, which is how serde writes a NaN, and that
/// writes a whole number as one (most readings are).
struct CountNulls<'a>(&'a mut usize);

/// Whole numbers up to here are exact as floats (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Formatter for CountNulls<'_> {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < EXACT {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole, and within the range"
            )]
            CompactFormatter.write_i64(writer, value as i64)
        } else {
            CompactFormatter.write_f64(writer, value)
        }
    }

    fn write_null<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        *self.0 += 1;
        CompactFormatter.write_null(writer)
    }
}

/// Reads one line, with or without its `\n`.
///
/// # Errors
///
/// [`LineError`] says why it is not a record.
pub fn decode(line: &[u8]) -> Result<Record, LineError> {
    Envelope::parse(line)?.decode()
}

/// What every record has, read from a line that is JSON throughout.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope<'a> {
    /// The record's kind.
    pub kind: Kind,
    /// Wall-clock time of writing, nanoseconds since 1970-01-01 UTC.
    pub time_unix_nano: u64,
    run_id: Cow<'a, str>,
    rank: u32,
    pid: u32,
    line: &'a str,
}

#[derive(Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(borrow)]
    pub(super) schema: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) time_unix_nano: u64,
    #[serde(borrow)]
    pub(super) run_id: Cow<'a, str>,
    pub(super) rank: u32,
    pub(super) pid: u32,
}

impl<'a> Fields<'a> {
    /// The envelope of the line that they are of.
    pub(super) fn of(self, line: &'a str) -> Result<Envelope<'a>, LineError> {
        if self.schema != SCHEMA {
            return Err(of_schema(&self.schema));
        }
        Ok(Envelope {
            kind: Kind::parse(&self.kind).ok_or(LineError::UnknownKind)?,
            time_unix_nano: self.time_unix_nano,
            run_id: self.run_id,
            rank: self.rank,
            pid: self.pid,
            line,
        })
    }
}

impl<'a> Envelope<'a> {
    /// Reads the fields that every record has, and checks that the whole line is JSON.
    ///
    /// # Errors
    ///
    /// [`LineError`] says why the line is not a record.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        let text = std::str::from_utf8(line).map_err(|_| LineError::Damaged)?;
        if !text.starts_with('{') {
            return Err(stray(text));
        }
        let fields: Fields<'a> =
            serde_json::from_str(text).map_err(|error| refused(text, &error))?;
        fields.of(text)
    }

    /// Reads the rest of the record.
    ///
    /// # Errors
    ///
    /// [`LineError::Damaged`] when the line is JSON but not a record of its kind.
    pub fn decode(self) -> Result<Record, LineError> {
        let body = match self.kind {
            Kind::Run => self.body().map(RecordBody::Run),
            Kind::Tick => self.body().map(RecordBody::Tick),
            Kind::Epoch => self.body().map(RecordBody::Epoch),
            Kind::Probe => self.body().map(RecordBody::Probe),
            Kind::Notice => self.body().map(RecordBody::Notice),
            Kind::Summary => self.body().map(RecordBody::Summary),
        };
        Ok(Record {
            schema: SCHEMA.to_owned(),
            time_unix_nano: self.time_unix_nano,
            run_id: self.run_id.into_owned(),
            rank: self.rank,
            pid: self.pid,
            body: body.map_err(|_| LineError::Damaged)?,
        })
    }

    /// Reads the kind's own fields straight from the line: going through serde's tagged enum
    /// would copy every number first.
    fn body<T: Deserialize<'a>>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.line)
    }
}

/// Why a line that begins like an object is not a record.
fn refused(text: &str, error: &serde_json::Error) -> LineError {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow, default)]
        schema: Option<Cow<'a, str>>,
    }

    if error.is_eof() && names_us(text) {
        return LineError::Cut;
    }
    if !error.is_data() {
        return stray(text);
    }
    // JSON as far as it was read, with fields that are not ours.
    match serde_json::from_str::<Named<'_>>(text) {
        Ok(Named {
            schema: Some(schema),
        }) => of_schema(&schema),
        Ok(Named { schema: None }) => LineError::Foreign,
        Err(_) => stray(text),
    }
}

/// Why a line that names `schema` and is not a record of ours is not one.
fn of_schema(schema: &str) -> LineError {
    if schema == SCHEMA {
        LineError::Damaged
    } else if schema.starts_with("headspace/") {
        LineError::OtherSchema
    } else {
        LineError::Foreign
    }
}

/// Why a line that is not JSON is there: text of another program, or what is left of a record.
fn stray(text: &str) -> LineError {
    let unprintable = |c: char| c.is_control() && c != '\t' && c != '\r' && c != '\x1b';
    if names_us(text) || text.contains(unprintable) {
        LineError::Damaged
    } else {
        LineError::Foreign
    }
}

/// Whether the text holds, or is the beginning of, what every record begins with.
fn names_us(text: &str) -> bool {
    text.contains(r#""headspace/"#) || BEGINNING.starts_with(text)
}

#[cfg(test)]
mod tests;
