//! Runs the export thread: it passes every batch of records to every exporter, and isolates their errors.

use std::sync::Arc;
use std::time::Duration;

use super::record_queue::RecordQueue;
use crate::model::log_target;
use crate::notice::{Notice, NoticeLog};
use crate::port::catch_panics::contain;
use crate::port::clock::thread_cpu_time;
use crate::port::{ExportError, Exporter, Lost};

/// Delivers all batches of the queue, until the queue is closed and empty.
pub(crate) fn run(
    queue: &Arc<RecordQueue>,
    exporters: Vec<Box<dyn Exporter>>,
    notice_log: &NoticeLog,
) {
    let mut exporters: Vec<Option<Box<dyn Exporter>>> = exporters.into_iter().map(Some).collect();
    // Losses of retired exporters.
    let mut lost_before = Lost::default();
    while let Some(batch) = queue.pop() {
        let _batch = tracing::debug_span!(
            target: log_target::EXPORT,
            "export",
            records = batch.len()
        )
        .entered();
        for slot in &mut exporters {
            let Some(exporter) = slot else {
                queue.count_dropped(batch.len());
                continue;
            };
            let name = exporter.name();
            let outcome = contain(|| exporter.export(&batch));
            match outcome {
                Ok(Ok(())) => {
                    tracing::trace!(target: log_target::EXPORT, to = name, "delivered");
                    for notice in contain(|| exporter.take_notices()).unwrap_or_default() {
                        notice_log.post(&notice);
                    }
                }
                Ok(Err(ExportError::Transient(reason))) => {
                    queue.count_dropped(batch.len());
                    tracing::debug!(target: log_target::EXPORT, to = name, reason, "not delivered");
                    let count = queue.dropped();
                    notice_log.post(&Notice::RecordsDropped { count, reason });
                }
                Ok(Err(ExportError::Closed(reason))) | Err(reason) => {
                    queue.count_dropped(batch.len());
                    tracing::info!(target: log_target::EXPORT, to = name, reason, "retired");
                    notice_log.post(&Notice::ExporterOff {
                        exporter: name,
                        reason,
                    });
                    // A panicked exporter's `drop` may panic as well.
                    if let Some(exporter) = slot.take() {
                        lost_before += contain(|| exporter.lost()).unwrap_or_default();
                        let _ = contain(|| drop(exporter));
                    }
                }
            }
        }
        let open = || exporters.iter().flatten();
        let mut lost = lost_before;
        open().for_each(|e| lost += contain(|| e.lost()).unwrap_or_default());
        queue.set_lost(lost);
        if let Some(used) = thread_cpu_time() {
            let apart = open().map(|e| contain(|| e.cpu_time()).unwrap_or_default());
            queue.set_cpu_time(used + apart.sum::<Duration>());
        }
    }
    close(exporters, notice_log);
    queue.end();
}

/// Closes all exporters, which deliver their remaining records concurrently.
fn close(mut exporters: Vec<Option<Box<dyn Exporter>>>, notice_log: &NoticeLog) {
    for exporter in exporters.iter_mut().flatten() {
        let _ = contain(|| exporter.close());
    }
    for mut exporter in exporters.into_iter().flatten() {
        let _ = contain(|| {
            exporter.finish();
            for notice in exporter.take_notices() {
                notice_log.post(&notice);
            }
            drop(exporter);
        });
    }
}
