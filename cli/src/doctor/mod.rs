//! Runs `headspace doctor`, which reports the working sources, the reasons why others are off, and the cost
//! of measuring. With `--data`, it examines a data set (`data.rs`).
//!
//! It contains no list of sources. It opens and reads what [`Catalog::open`] lists and what the caller
//! adds, as a session does.

mod data;
mod examine;
mod layout;
mod show;

use std::io;
use std::time::Duration;

use headspace_agent::port::MonotonicClock;
use headspace_agent::recording::recorder::cost_per_batch_ns;
use headspace_collectors::catalog::{Catalog, Settings};

use self::examine::{Patience, examine};
use self::show::Findings;
use crate::args::DoctorArgs;
use crate::{Context, EXIT_OK, output};

/// How long a driver may take to open before its sources are reported as unresponsive. It takes
/// milliseconds, or seconds if it must first initialise many GPUs.
const DRIVER_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn doctor(args: &DoctorArgs, context: &mut Context<'_>) -> io::Result<i32> {
    if !args.data.is_empty() {
        return data::examine_data(args, context);
    }
    let mut catalog = Catalog::open(&Settings {
        driver_patience: DRIVER_PATIENCE,
        ..context.settings.clone()
    });
    context.settings.consumer.set_here();
    catalog.entries.extend((context.more_sources)());
    let examined = examine(catalog.entries, Patience::default());
    let batch_ns = cost_per_batch_ns(&MonotonicClock::new());
    let findings = Findings::new(&examined, batch_ns);
    let text = if args.json {
        output::json(&findings)?
    } else {
        findings.to_text()
    };
    context.out.write_all(text.as_bytes())?;
    Ok(EXIT_OK)
}
