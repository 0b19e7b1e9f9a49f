//! An HTTP endpoint in the process that trains, for Prometheus to scrape: `GET /metrics`.
//!
//! A thread of its own answers, in a runtime of its own, so that a client that is slow or says
//! nothing costs nobody else anything: it has [`HEAD_TIMEOUT`] to ask and [`CONNECTION_TIMEOUT`] to
//! take the answer, and there are never more than [`CONNECTIONS`]. What is answered is the run as it
//! stood at the last tick: a scrape keeps that for itself while it is encoded and sent, and the export
//! thread writes the next, so that neither waits for the other. Anyone who reaches the address by one
//! of its names can read it; nothing can be changed through it.
//!
//! In a forked child there is no thread, so nothing answers there; that the child holds the listening
//! socket too does not keep the address from being used again once the session ends.

mod answer;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headspace_agent::model::Record;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::{ExportError, Exporter};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

use self::answer::Answered;
use super::host::ServedNames;
use crate::encode::snapshot::Snapshot;

/// Connections at a time. More wait to be accepted.
pub const CONNECTIONS: usize = 32;

/// How long a client may take to ask.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may last, its answer included: Prometheus itself gives up after 10 s.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait after the system had no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

/// The run, as the exporter's thread and the answering one share it.
#[derive(Default)]
struct Shared {
    /// Locked to take records, and to get hold of what stands: never while that is encoded.
    snapshot: Mutex<Arc<Snapshot>>,
    /// CPU time of the answering thread.
    cpu: ThreadTime,
}

impl Shared {
    /// The run as it stands. It does not change while it is held.
    fn stands(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers scrapes.
pub struct PrometheusExporter {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// The listening socket once more, to end it without waiting for the thread.
    socket: TcpListener,
    /// Dropped, it ends the thread.
    _running: oneshot::Sender<()>,
}

impl PrometheusExporter {
    /// Listens at `host`, a name or an address, and starts to answer. Port 0 is any that is free.
    ///
    /// # Errors
    ///
    /// What the system said: the address is taken, is not this machine's, or needs privileges.
    pub fn open(host: &str, port: u16) -> io::Result<Self> {
        let socket = TcpListener::bind((host, port))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let listener = socket.try_clone()?;
        let shared = Arc::<Shared>::default();
        let at_rest = Arc::clone(&shared);
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .on_thread_park(move || at_rest.cpu.note())
            .build()?;
        let answered = Answered {
            names: ServedNames::new(host, address),
            shared: Arc::clone(&shared),
        };
        let (running, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("headspace-prom".to_owned())
            .spawn(move || serve(&runtime, listener, answered, ended))?;
        Ok(Self {
            shared,
            address,
            socket,
            _running: running,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Exporter for PrometheusExporter {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut stands = self.shared.lock();
        // A copy only where a scrape still holds the last.
        let snapshot = Arc::make_mut(&mut stands);
        for record in records {
            snapshot.take(record);
        }
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.shared.cpu.get()
    }
}

impl Drop for PrometheusExporter {
    fn drop(&mut self) {
        // Children that were forked hold the socket as well: only this ends it for all of them.
        let _ = socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both);
    }
}

/// Answers until `ended`. The thread's body.
fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    answered: Answered,
    mut ended: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let answered = Arc::new(answered);
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let next = async {
                let place = Arc::clone(&room).acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                _ = &mut ended => return,
                next = next => next,
            };
            let Ok((stream, _)) = accepted else {
                tokio::select! {
                    _ = &mut ended => return,
                    () = tokio::time::sleep(REST) => continue,
                }
            };
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                let _place = place;
                let answer = service_fn(move |request| {
                    let answer = answered.to(&request);
                    async move { Ok::<_, std::convert::Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .keep_alive(false)
                    .max_buf_size(16 << 10)
                    .serve_connection(TokioIo::new(stream), answer);
                // A client that goes away is its own affair.
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            });
        }
    });
}

#[cfg(test)]
mod tests;
