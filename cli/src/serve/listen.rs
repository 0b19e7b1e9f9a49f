//! Accepts connections: limits their number, and closes silent ones.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use headspace_exporters::transport::connections::accept;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower_service::Service as _;

/// Maximum number of concurrent connections. Further ones wait to be accepted.
pub(super) const CONNECTIONS: usize = 64;

/// How long a client may take to send a request, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may leave sent data unread.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves `router` until the future is dropped.
pub(super) async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let answer_connection = |stream| answer(stream, router.clone());
    accept(listener, CONNECTIONS, answer_connection).await
}

async fn answer(stream: TcpStream, router: Router) {
    let socket = socket2::SockRef::from(&stream);
    let _ = socket.set_tcp_user_timeout(Some(READ_TIMEOUT));
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let Ok(response) = router.call(request.map(Body::new)).await;
            Ok::<_, Infallible>(response)
        }
    });
    // A client that disconnects is not an error.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(32 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
