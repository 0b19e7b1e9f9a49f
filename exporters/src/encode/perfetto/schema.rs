//! Defines the part of Perfetto's schema that a trace of a run needs, with the field numbers of
//! `protos/perfetto/trace/perfetto_trace.proto`.
//!
//! A crate with the whole schema would require the protobuf compiler on every machine that builds
//! headspace. A part is sufficient, because field numbers never change.

use prost::{Enumeration, Message, Oneof};

/// A trace, or a part of one: concatenated traces are one trace.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Packets in any order: the viewer sorts them by time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One packet of the trace.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Time in nanoseconds of the trace's clock.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// The id of the writer's sequence; never 0.
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    /// The content of the packet.
    #[prost(oneof = "Data", tags = "6, 11, 60")]
    pub data: Option<Data>,
}

/// The content of a packet.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// How clocks relate.
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    /// An event on a track.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// The declaration of a track.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// How clocks relate.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// The values of several clocks at one moment.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// The clock of the trace.
    #[prost(int32, tag = "2")]
    pub primary_trace_clock: i32,
}

/// The value of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Clock {
    /// The clock's id.
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    /// The clock's value in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// Wall-clock time, nanoseconds since 1970-01-01 UTC.
pub const REALTIME: u32 = 1;
/// The default clock of packets.
pub const BOOTTIME: u32 = 6;

/// A track, which is a row of events in the viewer.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// The track's id in the trace; never 0.
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    /// The track's name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The process that the track represents.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The id of the parent track.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// The counter's properties, if the track is a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// The order of the child tracks.
    #[prost(enumeration = "ChildOrder", optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Text shown when the mouse hovers over the track.
    #[prost(string, optional, tag = "14")]
    pub description: Option<String>,
}

/// The order of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ChildOrder {
    /// The viewer's choice.
    Unknown = 0,
    /// In the order of their declarations.
    Chronological = 2,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// The process id, which identifies the process in the trace.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Its arguments.
    #[prost(string, repeated, tag = "2")]
    pub cmdline: Vec<String>,
    /// The name of the process.
    #[prost(string, tag = "6")]
    pub process_name: String,
    /// Labels shown next to the name.
    #[prost(string, repeated, tag = "8")]
    pub process_labels: Vec<String>,
}

/// The properties of a counter.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// Its unit.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// An event on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Annotations by name.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// The type of the event.
    #[prost(enumeration = "EventType", tag = "9")]
    pub r#type: i32,
    /// The id of the track that shows the event.
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    /// The name of the event.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The counter's value from this time on.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// No type.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The slice that began last on the track ends.
    SliceEnd = 2,
    /// An instant event.
    Instant = 3,
    /// The counter has a new value from this time on.
    Counter = 4,
}

/// An annotation of an event.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// The name of the annotation.
    #[prost(string, tag = "10")]
    pub name: String,
    /// Its value.
    #[prost(oneof = "Value", tags = "2, 3, 5, 6")]
    pub value: Option<Value>,
}

/// A value.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A boolean.
    #[prost(bool, tag = "2")]
    Flag(bool),
    /// A count.
    #[prost(uint64, tag = "3")]
    Count(u64),
    /// A number.
    #[prost(double, tag = "5")]
    Number(f64),
    /// A text.
    #[prost(string, tag = "6")]
    Text(String),
}
