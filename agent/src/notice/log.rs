//! What the user was told, each thing once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::model::record::NoticeRecord;
use crate::notice::Notice;

/// Says a notice aloud. Called from the thread that found it, once a notice.
pub type Say = Box<dyn Fn(&Notice) + Send + Sync>;

/// Collects notices from all threads until the sampler writes them down.
pub struct NoticeLog {
    say: Say,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    said: HashSet<(&'static str, String)>,
    unwritten: Vec<NoticeRecord>,
}

impl std::fmt::Debug for NoticeLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeLog").finish_non_exhaustive()
    }
}

impl NoticeLog {
    /// An empty log that prints each notice through `say`.
    #[must_use]
    pub fn new(say: Say) -> Self {
        Self {
            say,
            state: Mutex::default(),
        }
    }

    /// Says `notice`, unless one with the same code and subject was said before.
    pub fn post(&self, notice: &Notice) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.said.insert(notice.identity()) {
                return;
            }
            state.unwritten.push(notice.to_record());
        }
        (self.say)(notice);
    }

    /// The notices posted since the last call.
    pub fn take(&self) -> Vec<NoticeRecord> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.unwritten)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_same_notice_is_said_and_written_once() {
        let said = Arc::new(AtomicU32::new(0));
        let notice_log = {
            let said = Arc::clone(&said);
            NoticeLog::new(Box::new(move |_| {
                said.fetch_add(1, Ordering::Relaxed);
            }))
        };
        notice_log.post(&Notice::StepsDropped { count: 1 });
        notice_log.post(&Notice::StepsDropped { count: 2 });
        notice_log.post(&Notice::ConcurrentIteration {
            loop_name: "a".into(),
        });
        notice_log.post(&Notice::ConcurrentIteration {
            loop_name: "b".into(),
        });

        assert_eq!(said.load(Ordering::Relaxed), 3);
        assert_eq!(notice_log.take().len(), 3);
        assert!(notice_log.take().is_empty());
    }
}
