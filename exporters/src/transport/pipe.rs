//! Sends records as lines to readers in other processes, through a named pipe or a Unix socket.
//!
//! Lines are written only while a reader is connected, and writing never blocks. Each reader has a
//! bounded backlog for lines that it has not read yet. When the backlog is full, whole lines are
//! dropped and counted. Each reader first receives the `run` record and the last summary. Readers may
//! connect and leave at any time during training. A named pipe is one stream, which several readers
//! would share line by line. A socket has a separate stream for each reader.
//!
//! The export thread writes lines if there is room at once. A thread of this module waits for readers
//! and for room. Only that thread accesses the path, and it holds no lock meanwhile, so a file system
//! that hangs blocks no other thread.

mod address;
mod endpoint;
mod reader;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headspace_agent::lock::lock;
use headspace_agent::model::{Record, RecordBody};
use headspace_agent::notice::Notice;
use headspace_agent::port::catch_panics::contain;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::{ExportError, Exporter, Lost};
use headspace_agent::runtime::fork::Owner;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub use self::address::Address;
use self::endpoint::Endpoint;
use self::reader::{Reader, never_signal};
use crate::encode::json_lines;

/// Why the pipe or socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// Another file is at the path.
    #[error("`{path}` {found} (use a path that does not exist, or {way_out})")]
    InUse {
        /// The path.
        path: String,
        /// What is wrong with that file: a verb and its object.
        found: String,
        /// What the user can do instead.
        way_out: &'static str,
    },
    /// The system returned an error.
    #[error("cannot create `{path}`: {source} (choose a folder that can be written)")]
    Io {
        /// The path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl PipeError {
    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.display().to_string(),
            source: source.into(),
        }
    }

    fn path_in_use(path: &Path, found: impl Into<String>, way_out: &'static str) -> Self {
        Self::InUse {
            path: path.display().to_string(),
            found: found.into(),
            way_out,
        }
    }
}

/// How long the end of a session waits for readers to receive the remaining lines.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// How much longer the end of a session waits for the thread to exit.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Interval between attempts to open a named pipe that has no reader.
const TRY_PIPE: Duration = Duration::from_millis(200);

/// Maximum number of concurrent readers of a socket. Further readers wait until one leaves.
const MAX_READERS: usize = 16;

/// Sends records to all connected readers.
pub struct PipeExporter {
    shared: Arc<Shared>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
    owner: Owner,
    /// Whether it was reported that a reader is too slow.
    reported_slow: bool,
    /// The line that is being encoded.
    buffer: Vec<u8>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    alarm: OwnedFd,
    /// CPU time of the thread.
    cpu: ThreadTime,
}

#[derive(Default)]
struct State {
    readers: Vec<Reader>,
    /// The `run` record, the first line for each reader.
    run: Arc<[u8]>,
    summary: Arc<[u8]>,
    lost: u64,
    /// The reason why no reader can connect.
    problem: Option<String>,
    /// Set when no more records come: the remaining lines are delivered until this time.
    ends: Option<Instant>,
}

impl PipeExporter {
    /// Creates the pipe or socket, and starts to wait for readers.
    ///
    /// # Errors
    ///
    /// Returns [`PipeError`] if another file is at the path, or if the system returns an error.
    pub fn open(address: &Address) -> Result<Self, PipeError> {
        let mut endpoint = Endpoint::open(address)?;
        Self::start(move |shared| shared.serve(&mut endpoint))
            .map_err(|error| PipeError::io(address.path(), error))
    }

    /// Starts the thread.
    fn start(work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<Self> {
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            alarm,
            cpu: ThreadTime::default(),
        });
        let served = Arc::clone(&shared);
        let (running, ended) = channel();
        std::thread::Builder::new()
            .name("headspace-pipe".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                // Dropped even after a panic, so that nobody waits for a thread that has exited.
                let _running: Sender<()> = running;
                let _ = contain(|| work(&served));
            })?;
        Ok(Self {
            shared,
            ended,
            owner: Owner::here(),
            reported_slow: false,
            buffer: Vec::new(),
        })
    }

    fn line(&mut self, record: &Record) -> Result<Arc<[u8]>, ExportError> {
        self.buffer.clear();
        json_lines::encode(record, &mut self.buffer).map_err(|error| {
            ExportError::Transient(format!("a record cannot be written: {error}"))
        })?;
        Ok(self.buffer.as_slice().into())
    }
}

impl Exporter for PipeExporter {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        never_signal();
        for record in records {
            let begins = matches!(record.body, RecordBody::Run(_) | RecordBody::Summary(_));
            if !begins && self.shared.lock().readers.is_empty() {
                continue;
            }
            let line = self.line(record)?;
            let mut state = self.shared.lock();
            // Push and store under one lock, so that a new reader gets each line exactly once.
            let State { readers, lost, .. } = &mut *state;
            for reader in readers {
                *lost += u64::from(!reader.push(&line));
            }
            match record.body {
                RecordBody::Run(_) => state.run = line,
                RecordBody::Summary(_) => state.summary = line,
                _ => {}
            }
        }
        let mut state = self.shared.lock();
        let mut wake = false;
        for reader in &mut state.readers {
            reader.write();
            wake |= reader.waits() || reader.gone();
        }
        drop(state);
        if wake {
            self.shared.ring();
        }
        Ok(())
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        let exporter = "pipe";
        let (problem, lost) = {
            let mut state = self.shared.lock();
            (state.problem.take(), state.lost)
        };
        let failing = problem.map(|reason| Notice::ExportFailing { exporter, reason });
        let is_slow = lost > 0 && !self.reported_slow;
        self.reported_slow |= is_slow;
        let slow = is_slow.then_some(Notice::ReaderTooSlow { exporter });
        failing.into_iter().chain(slow).collect()
    }

    fn lost(&self) -> Lost {
        Lost {
            lines: self.shared.lock().lost,
            ..Lost::default()
        }
    }

    fn cpu_time(&self) -> Duration {
        self.shared.cpu.get()
    }

    fn close(&mut self) {
        self.shared.lock().ends = Some(Instant::now() + LAST_WAIT);
        self.shared.ring();
    }

    fn finish(&mut self) {
        let until = self.shared.lock().ends.map(|end| end + LAST_WORD);
        let left = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        // A thread that hangs is detached.
        let _ = self.ended.recv_timeout(left);
    }
}

impl Drop for PipeExporter {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        if self.shared.lock().ends.is_none() {
            self.close();
        }
        self.finish();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn ring(&self) {
        // If the counter is full, the alarm is already set.
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
    }

    /// Removes readers that left, and accepts new ones.
    fn accept(&self, endpoint: &mut Endpoint) {
        let most = endpoint.most_readers(MAX_READERS);
        let room = || {
            let mut state = self.lock();
            state.readers.retain(|reader| !reader.gone());
            state.ends.is_none() && state.readers.len() < most
        };
        while room() {
            let next = endpoint.next_reader();
            let mut state = self.lock();
            let mut reader = match next {
                Ok(Some(reader)) => reader,
                Ok(None) => return,
                Err(problem) => {
                    state.problem = Some(problem);
                    return;
                }
            };
            reader.begin(&state.run);
            reader.begin(&state.summary);
            state.readers.push(reader);
        }
    }

    /// The thread's body: waits for readers and for room until the session ends.
    fn serve(&self, endpoint: &mut Endpoint) {
        never_signal();
        // `pending`: a reader tries to connect but could not be accepted, for example because no
        // descriptor is left. The pending connection stays readable, so polling again at once would be
        // a busy loop.
        let (mut pending, mut before) = (false, 0);
        loop {
            self.accept(endpoint);
            let mut state = self.lock();
            state.write_to_readers();
            let refused = pending && state.readers.len() <= before;
            before = state.readers.len();
            let left = state
                .ends
                .map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero() || !state.readers.iter().any(Reader::waits)) {
                for reader in &state.readers {
                    reader.end();
                }
                state.readers.clear();
                drop(state);
                endpoint.close();
                return;
            }
            let watched: Vec<_> = state
                .readers
                .iter()
                .map(|reader| (reader.descriptor(), reader.waits()))
                .collect();
            drop(state);
            let listener = endpoint
                .listener()
                .filter(|_| watched.len() < MAX_READERS && !refused);
            let tries = refused || matches!(endpoint, Endpoint::Fifo(_)) && watched.is_empty();
            let wait = match (left, tries) {
                (Some(left), true) => Some(left.min(TRY_PIPE)),
                (None, true) => Some(TRY_PIPE),
                (left, false) => left,
            };
            let (is_pending, gone) = self.wait(listener.as_deref(), &watched, wait);
            pending = is_pending;
            let mut state = self.lock();
            for (reader, gone) in state.readers.iter_mut().zip(gone) {
                if gone {
                    reader.leave();
                }
            }
        }
    }

    /// Waits at most `wait` for the alarm, for a new connection, or for room at readers with queued
    /// lines. Returns whether a connection is pending, and which of the readers left.
    fn wait(
        &self,
        listener: Option<&OwnedFd>,
        watched: &[(Arc<OwnedFd>, bool)],
        wait: Option<Duration>,
    ) -> (bool, Vec<bool>) {
        let mut polled = vec![PollFd::new(&self.alarm, PollFlags::IN)];
        polled.extend(listener.iter().map(|l| PollFd::new(l, PollFlags::IN)));
        for (descriptor, waits) in watched {
            let events = if *waits {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            polled.push(PollFd::new(descriptor, events));
        }
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        self.cpu.note();
        let answered = poll(&mut polled, wait.as_ref()).is_ok();
        let over = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let skipped = 1 + usize::from(listener.is_some());
        let pending = listener.is_some() && answered && !polled[1].revents().is_empty();
        let gone = polled
            .iter()
            .skip(skipped)
            .map(|fd| answered && fd.revents().intersects(over))
            .collect();
        let mut count = [0; 8];
        // If the alarm is not set, there is nothing to read.
        let _ = rustix::io::read(&self.alarm, &mut count);
        (pending, gone)
    }
}

impl State {
    /// Removes readers that left, and writes as much as there is room for.
    fn write_to_readers(&mut self) {
        self.readers.retain(|reader| !reader.gone());
        for reader in &mut self.readers {
            reader.write();
        }
    }
}

#[cfg(test)]
mod tests;
