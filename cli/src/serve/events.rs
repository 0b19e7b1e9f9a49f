//! Sends the page's updates as server-sent events.
//!
//! A listener has only a position in a bounded ring buffer. A listener that is too slow or asleep
//! receives the whole page when it returns. Nobody waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;

use super::live::Live;

/// Interval of keep-alive messages while there are no updates, so that a closed connection is detected.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The page, and then its updates. The listener occupies its `place` until it disconnects.
pub(super) fn events(
    live: Arc<Live>,
    place: OwnedSemaphorePermit,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (page, news) = live.listen();
    let updates = stream::unfold((live, news, place), |(live, mut news, place)| async move {
        let next = match news.recv().await {
            Ok(next) => next,
            Err(RecvError::Lagged(_)) => {
                let page;
                (page, news) = live.listen();
                page
            }
            Err(RecvError::Closed) => return None,
        };
        Some((next, (live, news, place)))
    });
    let all = stream::once(async { page }).chain(updates);
    let events = all.map(|news| Ok(Event::default().event(news.event).data(&*news.json)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
}
