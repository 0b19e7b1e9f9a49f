//! Accepts the connections of a server, a limited number at a time.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How long to wait after the system had no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

/// Accepts connections, and answers each in its own task. At most `most` are open; further ones wait to be
/// accepted. Runs until the future is dropped.
///
/// # Errors
///
/// Returns an error if the runtime cannot wait for connections of `listener`.
pub async fn accept<F>(
    listener: TcpListener,
    most: usize,
    answer: impl Fn(TcpStream) -> F,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return Ok(());
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let answered = answer(stream);
        tokio::spawn(async move {
            let _place = place;
            answered.await;
        });
    }
}
