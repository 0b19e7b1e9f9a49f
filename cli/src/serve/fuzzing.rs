//! Decides on a request without a server.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Method, Uri};

use super::access::{Access, Decision};

/// Whether a server on `address` with this token permits the request. A token that is not valid permits nothing.
pub(crate) fn decide(
    address: SocketAddr,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    token: &str,
) -> bool {
    let Ok(token) = token.parse() else {
        return false;
    };
    let access = Access::new("localhost", address, Some(token));
    access.decide(method, uri, headers) == Decision::Allowed
}
