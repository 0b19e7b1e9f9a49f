//! Plain data: what a measurement is called, what a record holds. No behaviour beyond arithmetic
//! on itself, and no dependency on the rest of the crate.

pub mod attributes;
pub mod bounded_series;
pub mod comparison;
pub mod distribution;
pub mod history;
mod in_place;
pub mod log_target;
pub mod metric;
pub mod mode;
pub mod options;
pub mod ranks;
pub mod reading;
pub mod record;
pub mod series;
pub mod stage;
pub mod stage_history;
pub mod window;

pub use bounded_series::BoundedSeries;
pub use distribution::Distribution;
pub use history::History;
pub use in_place::InPlace;
pub use metric::{Metric, MetricKind};
pub use mode::Mode;
pub use options::{LoopOption, OptionsFrom};
pub use reading::{Reading, ReadingKey, Scope};
pub use record::{Record, RecordBody};
pub use series::{Series, StepSample};
pub use stage::{QueueSample, StageSample};
pub use stage_history::StageHistory;
pub use window::{ThreadReading, ThreadTimes, Window, WindowStep};
