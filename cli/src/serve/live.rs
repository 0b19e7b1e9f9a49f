//! The run as it stands, shared by those who look at it, and what is new for those who stay.
//!
//! A thread reads the run's files. What is new is told relative to the page that was told last, under
//! one lock, so that whoever begins to listen gets that page first and misses nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headspace_agent::model::Record;
use headspace_exporters::encode::prometheus::{self, Form};
use headspace_exporters::encode::snapshot::Snapshot;
use headspace_exporters::run_folder::{Follower, Polled};
use tokio::sync::broadcast;

use crate::page::{Page, Update, Watched};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// News that a slow listener may be behind. One that is further behind is given the whole page.
const BEHIND: usize = 16;

/// What those who stay are told: one event's name and its data.
#[derive(Debug, Clone)]
pub(super) struct News {
    pub(super) event: &'static str,
    pub(super) json: Arc<str>,
}

/// The run as it stands.
pub(super) struct Live {
    now: Mutex<Now>,
    news: broadcast::Sender<News>,
}

#[derive(Default)]
struct Now {
    watched: Watched,
    snapshots: BTreeMap<u32, Snapshot>,
    /// As it was told last.
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
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a look at the files found.
    pub(super) fn take(&self, polled: Polled, follower: &Follower) {
        if !polled.another_run && polled.records.is_empty() {
            return;
        }
        let mut now = self.lock();
        if polled.another_run || now.watched.is_empty() {
            let place = follower.run().unwrap_or_else(|| "".as_ref());
            now.watched = Watched::new(place);
            now.snapshots.clear();
        }
        for (rank, record) in polled.records {
            now.snapshots.entry(rank).or_default().take(&record);
            now.watched.take(rank, record);
        }
        if self.news.receiver_count() > 0 {
            self.tell(&mut now);
        }
    }

    /// Remembers why the files could not be read, or that they were.
    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        let mut now = self.lock();
        if now.watched.set_trouble(trouble) && self.news.receiver_count() > 0 {
            self.tell(&mut now);
        }
    }

    /// Tells those who listen what is new. Nobody waits for them.
    fn tell(&self, now: &mut Now) {
        let page = now.watched.page();
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

    /// Begins to listen: the page, and what will be new since.
    pub(super) fn listen(&self) -> (News, broadcast::Receiver<News>) {
        let mut now = self.lock();
        self.tell(&mut now);
        let json = serde_json::to_string(&now.page).unwrap_or_else(|_| "null".to_owned());
        let page = News {
            event: "page",
            json: json.into(),
        };
        (page, self.news.subscribe())
    }

    /// The page as it stands.
    pub(super) fn page(&self) -> Page {
        self.lock().watched.page()
    }

    /// What `report --json` prints; `None` before the first summary.
    pub(super) fn summary(&self) -> Option<Record> {
        self.lock().watched.summary()
    }

    /// All ranks as Prometheus reads them.
    pub(super) fn metrics(&self, form: Form) -> String {
        prometheus::encode(self.lock().snapshots.values(), form)
    }
}

/// Keeps the thread that reads; dropped, it ends.
pub(super) struct Following(#[expect(dead_code, reason = "its drop is its use")] mpsc::Sender<()>);

/// Reads the run's files in a thread of its own, until what is returned is dropped.
pub(super) fn follow(live: Arc<Live>, mut follower: Follower) -> io::Result<Following> {
    let (keep, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("headspace-follow".to_owned())
        .spawn(move || {
            loop {
                let more = match follower.poll() {
                    Ok(polled) => {
                        let more = polled.more;
                        live.take(polled, &follower);
                        live.set_trouble(None);
                        more
                    }
                    // The next look tries again.
                    Err(error) => {
                        live.set_trouble(Some(error.to_string()));
                        false
                    }
                };
                let wait = if more { Duration::ZERO } else { LOOK };
                if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
    Ok(Following(keep))
}
