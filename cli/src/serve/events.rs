//! Sends the page's updates as server-sent events.
//!
//! A listener has only a position in a bounded ring buffer. A listener that is too slow or asleep
//! receives the whole page when it returns. Nobody waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::live::{Live, News};

/// Interval of keep-alive messages while there are no updates, so that a closed connection is detected.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

struct Listener {
    live: Arc<Live>,
    first: Option<News>,
    news: Receiver<News>,
    _place: OwnedSemaphorePermit,
}

/// The page, and then its updates.
pub(super) fn events(
    live: Arc<Live>,
    place: OwnedSemaphorePermit,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (page, news) = live.listen();
    let listener = Listener {
        live,
        first: Some(page),
        news,
        _place: place,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let news = listener.next().await?;
        let event = Event::default().event(news.event).data(&*news.json);
        Some((Ok(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
}

impl Listener {
    async fn next(&mut self) -> Option<News> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.news.recv().await {
            Ok(news) => Some(news),
            Err(RecvError::Lagged(_)) => {
                let (page, news) = self.live.listen();
                self.news = news;
                Some(page)
            }
            Err(RecvError::Closed) => None,
        }
    }
}
