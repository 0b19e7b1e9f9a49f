//! Opens private code to the fuzz targets (`fuzz/`) and to `tests/rust/hostile_records.rs`. Not for users.

use std::net::{Ipv4Addr, SocketAddr};

use axum::http::{HeaderMap, Method, Uri};
use clap::Parser;

use crate::args::Cli;
use crate::serve::fuzzing::decide;
pub use crate::top::fuzzing::screens;

/// Parses a command line, without executing it. Returns whether it is valid.
pub fn parse_arguments(words: &[&str]) -> bool {
    Cli::try_parse_from(std::iter::once("headspace").chain(words.iter().copied())).is_ok()
}

/// Whether `serve`, with a token, permits a request with this address and these headers.
pub fn permits(uri: &Uri, headers: &HeaderMap, token: &str) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8321));
    decide(address, &Method::GET, uri, headers, token)
}
