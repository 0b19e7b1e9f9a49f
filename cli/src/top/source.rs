//! Reads records from a run's files, or from a pipe or socket to which the trainer writes.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use headspace_agent::model::Record;
use headspace_exporters::encode::reader::Records;
use headspace_exporters::run_folder::Follower;

use super::state::State;

/// Maximum number of records that wait to be shown. While the queue is full nothing is read, and the
/// trainer drops records.
const QUEUE_CAPACITY: usize = 4096;

/// Interval between attempts to connect to a socket on which nobody listens.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// A source of records.
pub(super) enum Source {
    Files(Box<Follower>),
    Stream(Receiver<Record>),
}

/// The result of polling a source.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Polled {
    /// Whether any record came.
    pub(super) came: bool,
    /// Whether more records are available already.
    pub(super) more: bool,
}

impl Source {
    /// Opens `path`, or else the folder of runs `base`, which may not exist yet. Also returns the name
    /// to show.
    pub(super) fn open(path: Option<&Path>, base: &Path) -> Result<(Self, String), String> {
        let Some(path) = path else {
            let follower = Follower::in_base(base);
            return Ok((Self::Files(Box::new(follower)), base.display().to_string()));
        };
        let shown = path.display().to_string();
        if let Some(socket) = shown.strip_prefix("unix:") {
            return Ok((Self::stream(socket.into(), true), shown));
        }
        let kind = std::fs::metadata(path).map(|meta| meta.file_type());
        let source = match kind {
            Ok(kind) if kind.is_socket() => Self::stream(path.into(), true),
            Ok(kind) if kind.is_fifo() => Self::stream(path.into(), false),
            _ => Self::Files(Box::new(Follower::open(path).map_err(|error| {
                format!(
                    "{error} (name a folder of runs, a run, a rank's file, a pipe, or `unix:` and \
                     a socket)"
                )
            })?)),
        };
        Ok((source, shown))
    }

    fn stream(path: PathBuf, socket: bool) -> Self {
        let (send, receive) = sync_channel(QUEUE_CAPACITY);
        // This thread is detached: it may wait for a writer forever.
        std::thread::spawn(move || read(&path, socket, &send));
        Self::Stream(receive)
    }

    /// Adds new records to the state.
    pub(super) fn poll(&mut self, state: &mut State) -> Result<Polled, String> {
        match self {
            Self::Files(follower) => {
                let polled = follower.poll().map_err(|error| error.to_string())?;
                if polled.another_run {
                    let run = follower.run().and_then(Path::file_name);
                    state.begin(run.unwrap_or_default().to_string_lossy().into_owned());
                }
                let came = polled.another_run || !polled.records.is_empty();
                for (rank, record) in polled.records {
                    state.add_record(rank, record);
                }
                let more = polled.more;
                Ok(Polled { came, more })
            }
            Self::Stream(receive) => {
                let mut polled = Polled::default();
                for _ in 0..QUEUE_CAPACITY {
                    match receive.try_recv() {
                        Ok(record) => {
                            state.add_record(record.rank, record);
                            polled.came = true;
                        }
                        Err(TryRecvError::Empty) => return Ok(polled),
                        Err(TryRecvError::Disconnected) => {
                            return Err("the stream's reader ended".to_owned());
                        }
                    }
                }
                polled.more = true;
                Ok(polled)
            }
        }
    }
}

/// Reads one stream after the other, until the receiver is dropped.
fn read(path: &Path, socket: bool, send: &SyncSender<Record>) {
    loop {
        let has_receiver = if socket {
            UnixStream::connect(path).map(|stream| forward(Records::new(stream), send))
        } else {
            // Blocks until a process opens the pipe for writing.
            File::open(path).map(|pipe| forward(Records::new(pipe), send))
        };
        match has_receiver {
            Ok(true) | Err(_) => std::thread::sleep(RETRY_INTERVAL),
            Ok(false) => return,
        }
    }
}

/// Sends the records of a stream. Returns whether the receiver still exists.
fn forward<R: std::io::Read>(records: Records<R>, send: &SyncSender<Record>) -> bool {
    // A read error ends the stream.
    let mut records = records.map_while(Result::ok);
    records.all(|record| send.send(record).is_ok())
}
