//! The part of Perfetto's schema that a trace of a run needs, with the field numbers of
//! `protos/perfetto/trace/perfetto_trace.proto`.
//!
//! The whole schema as a crate would need the protobuf compiler on every machine that builds
//! headspace. Numbers of fields never change, so that a part of them is as good.

use prost::{Enumeration, Message, Oneof};

/// A trace, or packets of one: traces behind each other are one trace.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// In any order: the viewer sorts them by time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One thing that the trace says.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds of the trace's clock.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Who wrote it; never 0.
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    /// What it says.
    #[prost(oneof = "Data", tags = "6, 11, 60")]
    pub data: Option<Data>,
}

/// What a packet says.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// How clocks relate.
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    /// Something on a track.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// A track.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// How clocks relate.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// What each of them shows at one moment.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// The clock of the trace.
    #[prost(int32, tag = "2")]
    pub primary_trace_clock: i32,
}

/// What a clock shows.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Clock {
    /// Which one.
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    /// Its nanoseconds.
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// Wall-clock time, nanoseconds since 1970-01-01 UTC.
pub const REALTIME: u32 = 1;
/// The clock that packets have where they name none.
pub const BOOTTIME: u32 = 6;

/// Where events are shown.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number in the trace; never 0.
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    /// What it is called.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The process that it stands for.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The track above it.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// What it counts, where it does.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// The order of the tracks below it.
    #[prost(enumeration = "ChildOrder", optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Its place among its siblings, where their order is explicit.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
    /// Said where the mouse rests on it.
    #[prost(string, optional, tag = "14")]
    pub description: Option<String>,
}

/// The order of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ChildOrder {
    /// The viewer's choice.
    Unknown = 0,
    /// By name.
    Lexicographic = 1,
    /// As the trace tells of them.
    Chronological = 2,
    /// By [`TrackDescriptor::sibling_order_rank`].
    Explicit = 3,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Tells it from others of the trace.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Its arguments.
    #[prost(string, repeated, tag = "2")]
    pub cmdline: Vec<String>,
    /// What it is called.
    #[prost(string, tag = "6")]
    pub process_name: String,
    /// Shown beside its name.
    #[prost(string, repeated, tag = "8")]
    pub process_labels: Vec<String>,
}

/// What a track counts.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// Its unit.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// Something on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// What is known of it, by name.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// What it is.
    #[prost(enumeration = "EventType", tag = "9")]
    pub r#type: i32,
    /// Where it is shown.
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    /// Its category.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// What it is called.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The value from here on.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// Nothing.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The slice that began last on the track ends.
    SliceEnd = 2,
    /// A moment.
    Instant = 3,
    /// A counter has a value from here on.
    Counter = 4,
}

/// Something known of an event.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// What it is called.
    #[prost(string, tag = "10")]
    pub name: String,
    /// Its value.
    #[prost(oneof = "Known", tags = "2, 3, 5, 6")]
    pub value: Option<Known>,
}

/// A value.
#[derive(Clone, PartialEq, Oneof)]
pub enum Known {
    /// Yes or no.
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
