//! The agent's own log, for whoever looks for a fault in it: off unless `HEADSPACE_LOG` says what.
//!
//! `HEADSPACE_LOG=debug`, or by part, `HEADSPACE_LOG=headspace_exporters=trace,h2=info`, writes lines
//! to stderr, in the syntax of `tracing_subscriber`'s `EnvFilter`. It is sampled: of a flood only the
//! first lines of each second are written.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::{Event, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// Target of what a session does (docs/commands.md; the agent's own are in `model::log_target`).
pub(crate) const SESSION: &str = "headspace_py::session";

/// Target of what the user is told.
pub(crate) const NOTICE: &str = "headspace_py::notice";

/// Lines a second at most.
const MOST_A_SECOND: u64 = 200;

/// Begins to log where the environment asks for it; once in a process.
///
/// # Errors
///
/// What is wrong with the variable.
pub(crate) fn begin() -> Result<(), String> {
    static ONCE: Once = Once::new();
    let Some(asked) = std::env::var("HEADSPACE_LOG")
        .ok()
        .filter(|v| !v.is_empty())
    else {
        return Ok(());
    };
    let chosen: EnvFilter = asked.parse().map_err(|_| {
        format!(
            "`{asked}` is not a filter (write `debug`, or `headspace_exporters=trace,h2=info`); \
             nothing is logged."
        )
    })?;
    ONCE.call_once(|| {
        let lines = fmt::layer()
            .with_ansi(false)
            .with_thread_names(true)
            .with_writer(std::io::stderr);
        // No other subscriber can be there: this library's `tracing` is its own.
        let _ = Registry::default()
            .with(lines.with_filter(chosen.and(Sampled::default())))
            .try_init();
    });
    Ok(())
}

/// Lets so many events of a second pass.
#[derive(Debug, Default)]
struct Sampled {
    second: AtomicU64,
    seen: AtomicU64,
}

impl Sampled {
    fn passes(&self, second: u64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.seen.store(0, Ordering::Relaxed);
        }
        self.seen.fetch_add(1, Ordering::Relaxed) < MOST_A_SECOND
    }
}

impl<S> Filter<S> for Sampled {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, _: &Event<'_>, _: &Context<'_, S>) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.passes(now.map_or(0, |since| since.as_secs()))
    }
}
