//! The debug log of headspace itself, on stderr. Off unless `HEADSPACE_LOG` is set.
//!
//! Examples: `HEADSPACE_LOG=debug`, or by part, `HEADSPACE_LOG=headspace_exporters=trace,h2=info`, in the
//! syntax of `tracing_subscriber`'s `EnvFilter`. At most [`MAX_LINES_PER_SECOND`] lines a second are written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::{Event, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// Log target of a session's events (docs/commands.md). The agent's own targets are in `model::log_target`.
pub(crate) const SESSION: &str = "headspace_py::session";

/// Log target of the notices to the user.
pub(crate) const NOTICE: &str = "headspace_py::notice";

const MAX_LINES_PER_SECOND: u64 = 200;

/// Starts the log if the environment variable is set, once in a process.
///
/// # Errors
///
/// A description of the invalid variable.
pub(crate) fn begin() -> Result<(), String> {
    let variable = std::env::var("HEADSPACE_LOG").unwrap_or_default();
    if variable.is_empty() {
        return Ok(());
    }
    let filter: EnvFilter = variable.parse().map_err(|_| {
        format!(
            "`{variable}` is not a filter (write `debug`, or `headspace_exporters=trace,h2=info`); \
             nothing is logged."
        )
    })?;
    let lines = fmt::layer()
        .with_ansi(false)
        .with_thread_names(true)
        .with_writer(std::io::stderr);
    // This library has its own copy of `tracing`, so only an earlier session may have a subscriber. It stays.
    let _ = Registry::default()
        .with(lines.with_filter(filter.and(Sampled::default())))
        .try_init();
    Ok(())
}

/// Passes the first [`MAX_LINES_PER_SECOND`] events of each second.
#[derive(Debug, Default)]
struct Sampled {
    second: AtomicU64,
    count: AtomicU64,
}

impl<S> Filter<S> for Sampled {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, _: &Event<'_>, _: &Context<'_, S>) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = now.map_or(0, |since| since.as_secs());
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) < MAX_LINES_PER_SECOND
    }
}
