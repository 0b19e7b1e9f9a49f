//! Declares the tracks of a trace, and writes their events.
//!
//! A track is declared before its first event. It is identified by its parent and its name, so callers
//! name the track of an event and need not keep ids.

use std::collections::HashMap;

use prost::Message;

use super::schema::BOOTTIME;
use super::schema::{
    ChildOrder, Clock, ClockSnapshot, CounterDescriptor, Data, DebugAnnotation, EventType,
    ProcessDescriptor, REALTIME, Trace, TracePacket, TrackDescriptor, TrackEvent, Value,
};

/// The id of the packet sequence.
const SEQUENCE: u32 = 1;

/// A track of the trace. A process is a track too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Track(u64);

/// The annotations of an event.
pub(super) type Notes = Vec<(&'static str, Value)>;

/// Writes packets, and remembers which tracks were declared.
#[derive(Debug, Default)]
pub(super) struct Writer {
    packets: Vec<u8>,
    tracks: HashMap<(Track, String), Track>,
    last: u64,
    has_clock: bool,
}

impl Writer {
    /// Returns the bytes written since the last call.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.packets)
    }

    /// Declares a new process.
    pub(super) fn process(&mut self, descriptor: ProcessDescriptor) -> Track {
        let track = self.next();
        self.describe(TrackDescriptor {
            uuid: track.0,
            process: Some(descriptor),
            child_ordering: Some(ChildOrder::Chronological.into()),
            ..TrackDescriptor::default()
        });
        track
    }

    /// The child track with that name, for slices or for more tracks.
    pub(super) fn below(&mut self, parent: Track, name: &str) -> Track {
        self.find(parent, name, None, None)
    }

    /// The child track with that name, and a text that the viewer shows for it.
    pub(super) fn described(&mut self, parent: Track, name: &str, help: &str) -> Track {
        self.find(parent, name, None, Some(help))
    }

    /// The child counter track with that name and unit.
    pub(super) fn counter(
        &mut self,
        parent: Track,
        name: &str,
        unit: &str,
        help: Option<&str>,
    ) -> Track {
        self.find(parent, name, Some(unit), help)
    }

    /// Adds a slice from one time to another, which must not be earlier.
    pub(super) fn slice(&mut self, track: Track, from: u64, to: u64, name: &str, notes: Notes) {
        self.begin(track, from, name, notes);
        self.end(track, to.max(from));
    }

    /// Begins a slice. Slices of a track must be nested.
    pub(super) fn begin(&mut self, track: Track, at: u64, name: &str, notes: Notes) {
        self.event(track, at, EventType::SliceBegin, Some(name), notes);
    }

    /// Ends the slice that began last.
    pub(super) fn end(&mut self, track: Track, at: u64) {
        self.event(track, at, EventType::SliceEnd, None, Notes::new());
    }

    /// Adds an instant event.
    pub(super) fn instant(&mut self, track: Track, at: u64, name: &str, notes: Notes) {
        self.event(track, at, EventType::Instant, Some(name), notes);
    }

    /// Sets a counter's value from a time on. A non-finite value is omitted.
    pub(super) fn count(&mut self, track: Track, at: u64, value: f64) {
        if value.is_finite() {
            let event = TrackEvent {
                r#type: EventType::Counter.into(),
                track_uuid: track.0,
                double_counter_value: Some(value),
                ..TrackEvent::default()
            };
            self.put(at, event);
        }
    }

    fn event(&mut self, track: Track, at: u64, kind: EventType, name: Option<&str>, notes: Notes) {
        let notes = notes.into_iter().map(|(name, value)| DebugAnnotation {
            name: name.to_owned(),
            value: Some(value),
        });
        let event = TrackEvent {
            debug_annotations: notes.collect(),
            r#type: kind.into(),
            track_uuid: track.0,
            name: name.map(str::to_owned),
            ..TrackEvent::default()
        };
        self.put(at, event);
    }

    fn find(&mut self, parent: Track, name: &str, unit: Option<&str>, help: Option<&str>) -> Track {
        let key = (parent, name.to_owned());
        if let Some(track) = self.tracks.get(&key) {
            return *track;
        }
        let track = self.next();
        self.describe(TrackDescriptor {
            uuid: track.0,
            name: Some(name.to_owned()),
            parent_uuid: Some(parent.0),
            counter: unit.map(|unit| CounterDescriptor {
                unit_name: Some(unit.to_owned()),
            }),
            child_ordering: unit.is_none().then(|| ChildOrder::Chronological.into()),
            description: help.map(str::to_owned),
            ..TrackDescriptor::default()
        });
        self.tracks.insert(key, track);
        track
    }

    fn next(&mut self) -> Track {
        self.last += 1;
        Track(self.last)
    }

    fn describe(&mut self, descriptor: TrackDescriptor) {
        self.packet(None, Data::TrackDescriptor(descriptor));
    }

    fn put(&mut self, at: u64, event: TrackEvent) {
        if !self.has_clock {
            self.has_clock = true;
            let clocks = [REALTIME, BOOTTIME].map(|clock_id| Clock {
                clock_id,
                timestamp: at,
            });
            let snapshot = ClockSnapshot {
                clocks: clocks.to_vec(),
                primary_trace_clock: i32::try_from(BOOTTIME).unwrap_or_default(),
            };
            self.packet(Some(at), Data::ClockSnapshot(snapshot));
        }
        self.packet(Some(at), Data::TrackEvent(event));
    }

    fn packet(&mut self, timestamp: Option<u64>, data: Data) {
        let trace = Trace {
            packet: vec![TracePacket {
                timestamp,
                trusted_packet_sequence_id: SEQUENCE,
                data: Some(data),
            }],
        };
        self.packets.extend(trace.encode_to_vec());
    }
}
