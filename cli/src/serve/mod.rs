//! Runs `headspace serve`, which shows a run as a live web page and serves its data to programs.
//!
//! A separate process reads the run's files, so it cannot delay training. All content comes from
//! records and from files built into the program: no path of a request is ever used as a path on disk.
//! For a search's folder there is also `/tuning`. Pages of other sites cannot read the content (no
//! CORS, and `Host` is checked). Clients on other machines need the token.

mod access;
mod events;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod listen;
mod live;
mod routes;
mod search_page;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use headspace_exporters::run_folder::Follower;

use self::access::Access;
use self::live::Live;
use self::search_page::Tuning;
use crate::args::ServeArgs;
use crate::token::{GivenToken, Token};
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("cannot listen at `{host}`, port {port}: {source} (choose another with `--port`)")]
    Listen {
        host: String,
        port: u16,
        source: io::Error,
    },
    #[error(
        "`{host}` can be reached from other machines: serving there needs a token (`--token`, or \
         HEADSPACE_TOKEN), or `--host 127.0.0.1` and a tunnel such as `ssh -L`"
    )]
    NoToken { host: String },
    #[error("invalid token in `--token` or HEADSPACE_TOKEN: {0}")]
    InvalidToken(String),
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Runs the command, until Ctrl-C.
pub(crate) fn serve(args: &ServeArgs, context: &mut Context<'_>) -> io::Result<i32> {
    let tuning = args.path.as_deref().and_then(Tuning::find);
    let follower = match (&tuning, &args.path) {
        (Some(tuning), _) => Follower::in_base(&tuning.runs()),
        (None, None) => Follower::in_base(&context.runs),
        (None, Some(path)) => match Follower::open(path) {
            Ok(follower) => follower,
            Err(error) => return context.fail(error, EXIT_UNREADABLE),
        },
    };
    let token = match check_token(args) {
        Ok(token) => token,
        Err(error) => return context.fail(error, EXIT_USAGE),
    };
    let (listener, address) = match listen(args) {
        Ok(listening) => listening,
        Err(error) => return context.fail(error, EXIT_USAGE),
    };
    let once = token.as_ref();
    let once = once.map_or("", |_| " (open it once with ?token=TOKEN)");
    let access = Access::new(&args.host, address, token);
    let place = args.path.as_ref().unwrap_or(&context.runs).display();
    let serving = format!("Serving {place} at http://{address}/{once}. Press Ctrl-C to stop.");
    context.print_line(serving)?;
    if tuning.is_some() {
        let page = search_page::PAGE;
        context.print_line(format_args!("http://{address}{page} shows the search"))?;
    }
    context.out.flush()?;
    match run(listener, access, follower, tuning) {
        Ok(()) => Ok(EXIT_OK),
        Err(error) => context.fail(error, EXIT_UNREADABLE),
    }
}

fn check_token(args: &ServeArgs) -> Result<Option<Token>, ServeError> {
    let token = args.token.as_ref().map(GivenToken::check).transpose();
    token.map_err(ServeError::InvalidToken)
}

fn listen(args: &ServeArgs) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Listen {
        host: args.host.clone(),
        port: args.port,
        source,
    };
    let bare = args.host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = (bare, args.port)
        .to_socket_addrs()
        .map_err(failed)?
        .collect();
    if args.token.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(ServeError::NoToken {
            host: args.host.clone(),
        });
    }
    let listener = TcpListener::bind(addresses.as_slice()).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn run(
    listener: TcpListener,
    access: Access,
    follower: Follower,
    tuning: Option<Tuning>,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let live = Arc::new(Live::default());
    let following = live::follow(Arc::clone(&live), follower)?;
    let done = runtime.block_on(async {
        let router = routes::router(live, tuning, access);
        let serving = listen::serve(listener, router);
        let ended = tokio::signal::ctrl_c();
        futures_util::pin_mut!(serving, ended);
        futures_util::future::select(serving, ended)
            .await
            .factor_first()
            .0
    });
    // Connections end with the runtime. The reading thread ends at its next wait.
    drop(following);
    runtime.shutdown_background();
    done.map_err(ServeError::Start)
}

#[cfg(test)]
mod tests;
