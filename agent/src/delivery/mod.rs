//! Delivers records from the sampler to the exporters, on the export thread.
//!
//! A slow or full destination delays neither training nor sampling. Each drops and counts in one place:
//!
//! | destination | what is dropped | where |
//! |---|---|---|
//! | run folder | new ticks, stacks and interim summaries, while its write blocks the export thread | `record_queue` |
//! | OTLP, Prometheus's text file | deliveries that are late: the next one has the same data | `headspace_exporters::transport::background` |
//! | OTLP spans and log records | the newest, once 4,096 wait | `headspace_exporters::encode::otlp::bounded_queue` |
//! | numbers for experiment trackers | the oldest, if a library takes them too slowly | `headspace_exporters::transport::tracker_scalars` |
//! | pipes | lines for a reader that is too slow | `headspace_exporters::transport::pipe` |

pub(crate) mod export_thread;
pub mod record_queue;

pub use record_queue::RecordQueue;
