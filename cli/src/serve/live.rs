//! Holds the current state of the run for all viewers, and publishes its updates.
//!
//! A thread reads the run's files. Each update is relative to the page that was last published, under
//! one lock. A new listener therefore first gets that page and then misses no update.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::model::Record;
use headspace_exporters::encode::prometheus::{self, Form};
use headspace_exporters::encode::snapshot::Snapshot;
use headspace_exporters::run_folder::{Follower, Polled};
use tokio::sync::broadcast;

use crate::page::{Page, PageState, Update};

/// Interval between two reads of the files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of updates that a listener may be behind. Beyond that it receives the whole page.
const BEHIND: usize = 16;

/// An event for listeners: its name and its data.
#[derive(Debug, Clone)]
pub(super) struct News {
    pub(super) event: &'static str,
    pub(super) json: Arc<str>,
}

/// The current state of the run.
pub(super) struct Live {
    now: Mutex<Now>,
    news: broadcast::Sender<News>,
}

#[derive(Default)]
struct Now {
    state: PageState,
    snapshots: BTreeMap<u32, Snapshot>,
    /// The page as last published.
    page: Page,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            now: Mutex::default(),
            news: broadcast::channel(BEHIND).0,
        }
    }
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, Now> {
        lock(&self.now)
    }

    /// Adds the records of a poll.
    pub(super) fn add_records(&self, polled: Polled, follower: &Follower) {
        if !polled.another_run && polled.records.is_empty() {
            return;
        }
        let mut now = self.lock();
        if polled.another_run || now.state.is_empty() {
            let place = follower.run().unwrap_or_else(|| "".as_ref());
            now.state = PageState::new(place);
            now.snapshots.clear();
        }
        for (rank, record) in polled.records {
            now.snapshots.entry(rank).or_default().add_record(&record);
            now.state.add_record(rank, record);
        }
        if self.news.receiver_count() > 0 {
            self.publish(&mut now);
        }
    }

    /// Stores why the files could not be read, or clears it.
    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        let mut now = self.lock();
        if now.state.set_trouble(trouble) && self.news.receiver_count() > 0 {
            self.publish(&mut now);
        }
    }

    /// Publishes the changes to listeners. Never waits for them.
    fn publish(&self, now: &mut Now) {
        let page = now.state.page();
        let news = match page.since(&now.page) {
            Some(update) if update == Update::default() => None,
            Some(update) => Some(("update", serde_json::to_string(&update))),
            None => Some(("page", serde_json::to_string(&page))),
        };
        now.page = page;
        if let Some((event, Ok(json))) = news {
            let json = Arc::from(json);
            let _ = self.news.send(News { event, json });
        }
    }

    /// Starts to listen: the page, and a receiver of its updates.
    pub(super) fn listen(&self) -> (News, broadcast::Receiver<News>) {
        let mut now = self.lock();
        self.publish(&mut now);
        let json = serde_json::to_string(&now.page).unwrap_or_else(|_| "null".to_owned());
        let page = News {
            event: "page",
            json: json.into(),
        };
        (page, self.news.subscribe())
    }

    /// The current page.
    pub(super) fn page(&self) -> Page {
        self.lock().state.page()
    }

    /// What `report --json` prints; `None` before the first summary.
    pub(super) fn summary(&self) -> Option<Record> {
        self.lock().state.summary()
    }

    /// The metrics of all ranks in a Prometheus format.
    pub(super) fn metrics(&self, form: Form) -> String {
        prometheus::encode(self.lock().snapshots.values(), form)
    }
}

/// A handle of the reading thread. Dropping it ends the thread.
pub(super) struct Following(#[expect(dead_code, reason = "its drop is its use")] mpsc::Sender<()>);

/// Reads the run's files on a separate thread, until the returned handle is dropped.
pub(super) fn follow(live: Arc<Live>, mut follower: Follower) -> io::Result<Following> {
    let (keep, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("headspace-follow".to_owned())
        .spawn(move || {
            loop {
                let more = match follower.poll() {
                    Ok(polled) => {
                        let more = polled.more;
                        live.add_records(polled, &follower);
                        live.set_trouble(None);
                        more
                    }
                    // The next poll tries again.
                    Err(error) => {
                        live.set_trouble(Some(error.to_string()));
                        false
                    }
                };
                let wait = if more { Duration::ZERO } else { POLL_INTERVAL };
                if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
    Ok(Following(keep))
}
