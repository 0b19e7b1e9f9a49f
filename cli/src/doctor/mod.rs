//! `headspace doctor`: which sources work here, why the others do not, and what all of it costs.
//!
//! It knows no source by name. What [`Catalog::open`] lists, and what the caller adds, is opened and
//! read as a session would.

mod examine;
mod layout;
mod show;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headspace_agent::port::MonotonicClock;
use headspace_agent::record::recorder::cost_per_batch_ns;
use headspace_collectors::catalog::{Catalog, Settings};

use self::examine::{Patience, examine};
use self::show::Findings;
use crate::args::DoctorArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE};

/// How long the sources of the catalog may take to open. They take milliseconds.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn doctor(args: &DoctorArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let Some(mut catalog) = open(context.settings.clone()) else {
        writeln!(
            context.err,
            "headspace: the sources did not open within {} s: a driver does not answer (does \
             `nvidia-smi`?)",
            OPEN_TIMEOUT.as_secs()
        )?;
        return Ok(EXIT_UNREADABLE);
    };
    context.settings.consumer.set_here();
    catalog.entries.extend((context.more_sources)());
    let examined = examine(catalog.entries, Patience::default());
    let batch_ns = cost_per_batch_ns(&MonotonicClock::new());
    let findings = Findings::new(&examined, batch_ns);
    let text = if args.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else {
        findings.to_text()
    };
    context.out.write_all(text.as_bytes())?;
    Ok(EXIT_OK)
}

/// The catalog, unless a driver keeps it from opening.
fn open(settings: Settings) -> Option<Catalog> {
    let (done, opened) = mpsc::channel();
    let work = move || {
        // Nobody waits any more where the time was up.
        let _ = done.send(Catalog::open(&settings));
    };
    // Not joined: what is stuck ends with the process.
    thread::Builder::new().spawn(work).ok()?;
    opened.recv_timeout(OPEN_TIMEOUT).ok()
}
