//! Encodes a record as one line of JSON, and decodes it.
//!
//! A line ends with `\n` and contains no other. [`decode`] first reads the fields that every record
//! has, and then only the fields of the record's kind. A record of an unwanted kind therefore costs one
//! pass over its bytes and no memory.

use std::borrow::Cow;
use std::io;

use headspace_agent::model::record::{SCHEMA, is_readable};
use headspace_agent::model::{Record, RecordBody};
use serde::de::IntoDeserializer;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};

use super::finite;

/// The beginning of every record that this crate writes.
pub(super) const BEGINNING: &str = r#"{"schema":"headspace/"#;

/// The kind of a record: the `kind` field of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A description of the process and its environment.
    Run,
    /// The measurements since the previous tick.
    Tick,
    /// An epoch ended.
    Epoch,
    /// The probe ended.
    Probe,
    /// A message that was shown to the user.
    Notice,
    /// The sampled stacks so far.
    Stacks,
    /// A summary of the run so far.
    Summary,
}

impl Kind {
    fn parse(name: &str) -> Option<Self> {
        let name: StrDeserializer<'_, value::Error> = name.into_deserializer();
        Self::deserialize(name).ok()
    }
}

/// Why a line is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A truncated record: the process was killed, or the disk was full.
    #[error("the line stops in the middle of a record")]
    Cut,
    /// Not a record: another program's output, or another format.
    #[error("the line is not a headspace record")]
    Foreign,
    /// A record whose bytes were changed after writing.
    #[error("the record is damaged")]
    Damaged,
    /// A record of another major version of the format.
    #[error("the record is of another major version than `{SCHEMA}`")]
    OtherSchema,
    /// A record of this version, of a kind that this program does not know.
    #[error("the record is of a kind that this version of headspace does not know")]
    UnknownKind,
}

/// Appends `record` to `out` as one line, its `\n` included.
///
/// A non-finite number is omitted, together with the smallest optional part that contains it.
///
/// # Errors
///
/// Returns an error if serde cannot serialize the record. No record of this version causes that. `out`
/// is then unchanged.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    let written = write_readable(record, out);
    match written {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(start),
    }
    Ok(written?)
}

/// Writes the record so that [`decode`] can read it back.
fn write_readable(record: &Record, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = out.len();
    let nulls = write(record, out)?;
    // A null is an absent value, or a number that JSON cannot represent. If the number is required, the
    // record cannot be read back.
    if nulls > 0 && decode(&out[start..]).is_err() {
        out.truncate(start);
        let mut readable = record.clone();
        finite::leave_out_unreadable(&mut readable);
        write(&readable, out)?;
    }
    Ok(())
}

/// Writes the record. Returns the number of nulls written.
fn write(record: &Record, out: &mut Vec<u8>) -> serde_json::Result<usize> {
    let mut nulls = 0;
    record.serialize(&mut serde_json::Serializer::with_formatter(
        out,
        CountNulls(&mut nulls),
    ))?;
    Ok(nulls)
}

/// A compact JSON formatter that counts nulls, which is how serde writes NaN. It writes whole numbers
/// without a fraction, because most readings are whole.
struct CountNulls<'a>(&'a mut usize);

/// Whole numbers up to this limit are exact as floats (2^53).
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
/// Returns [`LineError`] with the reason why the line is not a record.
pub fn decode(line: &[u8]) -> Result<Record, LineError> {
    Envelope::parse(line)?.decode()
}

/// A line that is valid JSON throughout, and the fields that every record has.
pub(super) struct Envelope<'a> {
    pub(super) kind: Kind,
    pub(super) fields: Fields<'a>,
    line: &'a str,
}

/// The fields that every record has.
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
    /// Checks the fields, and returns the envelope of `line`.
    pub(super) fn into_envelope(self, line: &'a str) -> Result<Envelope<'a>, LineError> {
        if !is_readable(&self.schema) {
            return Err(error_for_schema(&self.schema));
        }
        Ok(Envelope {
            kind: Kind::parse(&self.kind).ok_or(LineError::UnknownKind)?,
            fields: self,
            line,
        })
    }
}

impl<'a> Envelope<'a> {
    /// Reads the fields that every record has, and checks that the whole line is JSON.
    ///
    /// # Errors
    ///
    /// Returns [`LineError`] with the reason why the line is not a record.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        let text = std::str::from_utf8(line).map_err(|_| LineError::Damaged)?;
        if !text.starts_with('{') {
            return Err(stray(text));
        }
        let fields: Fields<'a> =
            serde_json::from_str(text).map_err(|error| refused(text, &error))?;
        fields.into_envelope(text)
    }

    /// Reads the rest of the record.
    ///
    /// # Errors
    ///
    /// Returns [`LineError::Damaged`] if the line is JSON but not a record of its kind.
    pub(super) fn decode(self) -> Result<Record, LineError> {
        let body = match self.kind {
            Kind::Run => self.body().map(RecordBody::Run),
            Kind::Tick => self.body().map(RecordBody::Tick),
            Kind::Epoch => self.body().map(RecordBody::Epoch),
            Kind::Probe => self.body().map(RecordBody::Probe),
            Kind::Notice => self.body().map(RecordBody::Notice),
            Kind::Stacks => self.body().map(RecordBody::Stacks),
            Kind::Summary => self.body().map(RecordBody::Summary),
        };
        Ok(Record {
            schema: SCHEMA.to_owned(),
            time_unix_nano: self.fields.time_unix_nano,
            run_id: self.fields.run_id.into_owned(),
            rank: self.fields.rank,
            pid: self.fields.pid,
            body: body.map_err(|_| LineError::Damaged)?,
        })
    }

    /// Reads the kind's own fields directly from the line. Serde's tagged enum would first copy every
    /// number.
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
    // The part that was read is JSON, but its fields are not those of a record.
    match serde_json::from_str::<Named<'_>>(text) {
        Ok(Named {
            schema: Some(schema),
        }) => error_for_schema(&schema),
        Ok(Named { schema: None }) => LineError::Foreign,
        Err(_) => stray(text),
    }
}

/// Why a line with a `schema` field is not a record of this version.
fn error_for_schema(schema: &str) -> LineError {
    if is_readable(schema) {
        LineError::Damaged
    } else if schema.starts_with("headspace/") {
        LineError::OtherSchema
    } else {
        LineError::Foreign
    }
}

/// Why a line is not JSON: it is another program's text, or a fragment of a record.
fn stray(text: &str) -> LineError {
    let unprintable = |c: char| c.is_control() && c != '\t' && c != '\r' && c != '\x1b';
    if names_us(text) || text.contains(unprintable) {
        LineError::Damaged
    } else {
        LineError::Foreign
    }
}

/// Whether the text contains [`BEGINNING`], or is a prefix of it.
fn names_us(text: &str) -> bool {
    text.contains(r#""headspace/"#) || BEGINNING.starts_with(text)
}

#[cfg(test)]
mod tests;
