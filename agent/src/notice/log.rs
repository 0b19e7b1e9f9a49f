//! Prints each notice once, and keeps it for the records.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::lock::lock;
use crate::model::record::NoticeRecord;
use crate::notice::Notice;

/// Prints a notice to the user. [`NoticeLog::post`] calls it on its own thread, once for each notice.
pub type PrintNotice = Box<dyn Fn(&Notice) + Send + Sync>;

/// Collects notices from all threads until the sampler writes them to the records.
pub struct NoticeLog {
    print: PrintNotice,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    posted: HashSet<(&'static str, String)>,
    unwritten: Vec<NoticeRecord>,
}

impl std::fmt::Debug for NoticeLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeLog").finish_non_exhaustive()
    }
}

impl NoticeLog {
    /// An empty log that prints each notice through `print`.
    pub fn new(print: PrintNotice) -> Self {
        Self {
            print,
            state: Mutex::default(),
        }
    }

    /// Prints `notice`, unless a notice with the same code and subject was printed before.
    pub fn post(&self, notice: &Notice) {
        {
            let mut state = lock(&self.state);
            if !state.posted.insert(notice.identity()) {
                return;
            }
            state.unwritten.push(notice.to_record());
        }
        (self.print)(notice);
    }

    /// The notices posted since the last call.
    pub fn take_records(&self) -> Vec<NoticeRecord> {
        let mut state = lock(&self.state);
        std::mem::take(&mut state.unwritten)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_same_notice_is_printed_and_written_once() {
        let printed = Arc::new(AtomicU32::new(0));
        let notice_log = {
            let printed = Arc::clone(&printed);
            NoticeLog::new(Box::new(move |_| {
                printed.fetch_add(1, Ordering::Relaxed);
            }))
        };
        notice_log.post(&Notice::StepsDropped);
        notice_log.post(&Notice::StepsDropped);
        notice_log.post(&Notice::ConcurrentIteration {
            loop_name: "a".into(),
        });
        notice_log.post(&Notice::ConcurrentIteration {
            loop_name: "b".into(),
        });

        assert_eq!(printed.load(Ordering::Relaxed), 3);
        assert_eq!(notice_log.take_records().len(), 3);
        assert!(notice_log.take_records().is_empty());
    }
}
