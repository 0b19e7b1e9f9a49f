//! Records as lines to whoever reads a named pipe or a Unix socket, in another process.
//!
//! Written only while somebody reads, and never waiting: what a reader does not take in time waits
//! in a bounded backlog of its own, and beyond that is dropped, by whole lines, and counted. Each
//! reader begins with the `run` record and the last summary. Readers come and go while training
//! goes on. A named pipe is one stream, which several readers would share line by line; a socket
//! gives each of them a stream of its own.
//!
//! Lines are written by the export thread where there is room at once; a thread of this module
//! waits for readers and for room. That thread alone touches the path, and holds no lock meanwhile: a
//! file system that hangs holds up it and nobody else.

mod address;
mod endpoint;
mod reader;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headspace_agent::model::{Record, RecordBody};
use headspace_agent::notice::Notice;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::contain::contain;
use headspace_agent::port::{ExportError, Exporter, Lost};
use headspace_agent::runtime::fork::Owner;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub use self::address::Address;
use self::endpoint::Endpoint;
use self::reader::{Reader, never_signal};
use crate::encode::json_lines;

/// Why there is no pipe.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// Something else is at the path.
    #[error("`{path}` is {found} (name a path that is free, or {way_out})")]
    Taken {
        /// The path.
        path: String,
        /// What is there.
        found: String,
        /// What else may be done.
        way_out: &'static str,
    },
    /// The system refused.
    #[error("cannot make `{path}`: {source} (choose a folder that can be written)")]
    Io {
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How long the end of a session waits for readers to take what is left.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// How much longer it waits for the thread to say that it has ended.
const LAST_WORD: Duration = Duration::from_millis(250);

/// How often a named pipe is tried while nobody reads.
const TRY_PIPE: Duration = Duration::from_millis(200);

/// Most readers of a socket at once. Further ones wait until one leaves.
const MAX_READERS: usize = 16;

/// Sends records to whoever reads.
pub struct PipeExporter {
    shared: Arc<Shared>,
    owner: Owner,
    told: bool,
    /// Lines of a delivery, with their kinds.
    buffer: Vec<u8>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    alarm: OwnedFd,
    /// Whether the thread has ended.
    ended: Mutex<bool>,
    ending: Condvar,
    /// CPU time of the thread.
    cpu: ThreadTime,
}

struct State {
    readers: Vec<Reader>,
    /// What each reader begins with.
    run: Arc<[u8]>,
    summary: Arc<[u8]>,
    lost: u64,
    /// Why nobody can read.
    trouble: Option<String>,
    /// No more records come: until then what is left is delivered.
    ends: Option<Instant>,
}

impl PipeExporter {
    /// Makes the pipe or socket, and begins to wait for readers.
    ///
    /// # Errors
    ///
    /// [`PipeError`] when something else is at the path, or the system refuses.
    pub fn open(address: &Address) -> Result<Self, PipeError> {
        let refused = |source| PipeError::Io {
            path: address.path().display().to_string(),
            source,
        };
        let mut endpoint = Endpoint::open(address)?;
        Self::start(move |shared| shared.serve(&mut endpoint)).map_err(refused)
    }

    /// Starts the thread.
    fn start(work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<Self> {
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let owner = Owner::here();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                readers: Vec::new(),
                run: Arc::default(),
                summary: Arc::default(),
                lost: 0,
                trouble: None,
                ends: None,
            }),
            alarm,
            ended: Mutex::new(false),
            ending: Condvar::new(),
            cpu: ThreadTime::default(),
        });
        let served = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("headspace-pipe".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                // Whatever becomes of it, nobody waits for a thread that is not there any more.
                let _ = contain(|| work(&served));
                *served.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
                served.ending.notify_all();
            })?;
        Ok(Self {
            shared,
            owner,
            told: false,
            buffer: Vec::new(),
        })
    }

    /// How many read at the moment.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.shared.lock().readers.len()
    }

    fn line(&mut self, record: &Record) -> Result<Arc<[u8]>, ExportError> {
        self.buffer.clear();
        match json_lines::encode(record, &mut self.buffer) {
            Ok(()) => Ok(self.buffer.as_slice().into()),
            Err(error) => Err(ExportError::Transient(format!(
                "a record cannot be written: {error}"
            ))),
        }
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
            // Behind it, so that a reader that comes now has each once.
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

    fn tell(&mut self) -> Vec<Notice> {
        let reason = {
            let mut state = self.shared.lock();
            let slow =
                "its reader takes records too slowly, and what it has no room for is dropped";
            let trouble = state.trouble.take();
            trouble.or_else(|| (state.lost > 0).then(|| slow.to_owned()))
        };
        match reason {
            Some(reason) if !std::mem::replace(&mut self.told, true) => {
                let exporter = "pipe";
                vec![Notice::ExportFailing { exporter, reason }]
            }
            _ => Vec::new(),
        }
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
        let ended = self.shared.ended.lock();
        // One that hangs is left behind.
        drop(
            self.shared
                .ending
                .wait_timeout_while(
                    ended.unwrap_or_else(PoisonError::into_inner),
                    left,
                    |ended| !*ended,
                )
                .unwrap_or_else(PoisonError::into_inner),
        );
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A full counter means that it rings already.
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
    }

    /// Lets go of readers that left, and takes new ones.
    fn let_in(&self, endpoint: &mut Endpoint) {
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
                Err(trouble) => {
                    state.trouble = Some(trouble);
                    return;
                }
            };
            reader.begin(&state.run);
            reader.begin(&state.summary);
            state.readers.push(reader);
        }
    }

    /// The thread: waits for readers and for room until the session ends.
    fn serve(&self, endpoint: &mut Endpoint) {
        never_signal();
        // Somebody asked, and could not be let in: no descriptors are left, say. Whoever asks stays
        // there to be seen, so that the next look has to wait.
        let (mut asked, mut before) = (false, 0);
        loop {
            self.let_in(endpoint);
            let mut state = self.lock();
            state.go_on();
            let refused = asked && state.readers.len() <= before;
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
            let (somebody_asks, gone) = self.wait(listener.as_deref(), &watched, wait);
            asked = somebody_asks;
            let mut state = self.lock();
            for (reader, gone) in state.readers.iter_mut().zip(gone) {
                if gone {
                    reader.leave();
                }
            }
        }
    }

    /// Waits for the alarm, for somebody who asks to read, or for room at readers where something
    /// waits for it; at most for `wait`. Whether somebody asked, and which of the readers left.
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
        let asked = listener.is_some() && answered && !polled[1].revents().is_empty();
        let gone = polled
            .iter()
            .skip(skipped)
            .map(|fd| answered && fd.revents().intersects(over))
            .collect();
        let mut count = [0; 8];
        // Nothing to read where it did not ring.
        let _ = rustix::io::read(&self.alarm, &mut count);
        (asked, gone)
    }
}

impl State {
    /// Lets go of readers that left, and writes what there is room for.
    fn go_on(&mut self) {
        self.readers.retain(|reader| !reader.gone());
        for reader in &mut self.readers {
            reader.write();
        }
    }
}

#[cfg(test)]
mod tests;
