//! Serves metrics to Prometheus over HTTP, from the training process: `GET /metrics`.
//!
//! A separate thread with its own runtime answers, so a slow or silent client delays nobody else. A
//! client has [`HEAD_TIMEOUT`] to send its request and [`CONNECTION_TIMEOUT`] to receive the answer.
//! There are at most [`CONNECTIONS`] connections. The answer is the state of the run at the last tick.
//! A scrape keeps that state while it encodes and sends it, and the export thread writes a new one, so
//! neither waits for the other. Anyone who can reach the address under one of its names can read the
//! metrics. No request can change anything.
//!
//! A forked child has no such thread, so it does not answer. The child also inherits the listening
//! socket, but the address can still be reused after the session ends.

mod answer;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headspace_agent::lock::lock;
use headspace_agent::model::Record;
use headspace_agent::port::clock::ThreadTime;
use headspace_agent::port::{ExportError, Exporter};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::answer::Answered;
use super::connections::accept;
use super::host_header::ServedNames;
use crate::encode::snapshot::Snapshot;

/// Maximum number of concurrent connections. Further ones wait to be accepted.
pub const CONNECTIONS: usize = 32;

/// How long a client may take to send its request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may last, including the answer. Prometheus itself gives up after 10 s.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of the run, shared by the export thread and the answering thread.
#[derive(Default)]
struct Shared {
    /// Locked to add records and to clone the `Arc`, but never during encoding.
    snapshot: Mutex<Arc<Snapshot>>,
    /// CPU time of the answering thread.
    cpu: ThreadTime,
}

impl Shared {
    /// The current state of the run. It does not change while the caller holds it.
    fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        lock(&self.snapshot)
    }
}

/// Answers scrapes.
pub struct PrometheusExporter {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// A clone of the listening socket, to shut it down without waiting for the thread.
    socket: TcpListener,
    /// Dropping this sender ends the thread.
    _running: oneshot::Sender<()>,
}

impl PrometheusExporter {
    /// Listens on `host`, a name or an address, and starts to answer. Port 0 selects any free port.
    ///
    /// # Errors
    ///
    /// Returns the system's error: the address is in use, does not belong to this machine, or needs
    /// privileges.
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

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Exporter for PrometheusExporter {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn export(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut current = self.shared.lock();
        // This copies the snapshot only if a scrape still holds the last one.
        let snapshot = Arc::make_mut(&mut current);
        for record in records {
            snapshot.add_record(record);
        }
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.shared.cpu.get()
    }
}

impl Drop for PrometheusExporter {
    fn drop(&mut self) {
        // Forked children hold the socket as well. Only `shutdown` ends it for all of them.
        let _ = socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both);
    }
}

/// The thread's body: answers until `ended`.
fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    answered: Answered,
    ended: oneshot::Receiver<()>,
) {
    let answered = Arc::new(answered);
    let answer_connection = |stream: TcpStream| {
        let answered = Arc::clone(&answered);
        async move {
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
            // A client that disconnects is not an error.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            _ = ended => {}
            _ = accept(listener, CONNECTIONS, answer_connection) => {}
        }
    });
}

#[cfg(test)]
mod tests;
