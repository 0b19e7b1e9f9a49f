//! Data types: metrics, readings, series, distributions and records. They have only arithmetic on
//! themselves, and do not depend on the rest of the crate.

pub mod attributes;
pub mod bounded;
pub mod bounded_series;
mod cached_batches;
pub mod call_levels;
pub mod census;
pub mod comparison;
pub mod distribution;
mod gpu_activity;
mod hand_off;
pub mod log_target;
mod loop_totals;
pub mod metric;
pub mod mode;
pub mod options;
mod point_time;
pub mod reading;
pub mod reading_series;
pub mod record;
pub mod stack;
pub mod stage;
pub mod stage_series;
pub mod step_history;
pub mod step_series;
pub mod what_if;
pub mod window;

pub use bounded_series::BoundedSeries;
pub use cached_batches::{CacheFacts, InPlace};
pub use call_levels::CallLevels;
pub use distribution::Distribution;
pub use gpu_activity::GpuActivity;
pub use hand_off::HandOffEnd;
pub use loop_totals::{LoopTotals, RunningMean, SizedBatch};
pub use metric::{Metric, MetricKind};
pub use mode::Mode;
pub use options::{LoopOption, OptionsFrom};
pub use reading::{Reading, ReadingKey, Scope};
pub use reading_series::ReadingSeries;
pub use record::{Record, RecordBody};
pub use stage::{QueueSample, StageSample};
pub use stage_series::StageSeries;
pub use step_history::StepHistory;
pub use step_series::{StepSample, StepSeries};
pub use what_if::{Intervention, InterventionKind, WhatIfWindow};
pub use window::{ThreadReading, ThreadTimes, Window, WindowStep};
