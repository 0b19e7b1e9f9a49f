//! The outcome of a request, and what a service refused of it.

use ::http::Uri;

use super::super::background::Failure;

/// The outcome of a request.
pub(super) type Sent = Result<(), Failure>;

/// What a service refused: the number of items, their kind, and a message that says which and why.
pub(super) type Refused = (i64, &'static str, String);

/// The outcome of a request that the service answered.
pub(super) fn outcome(to: &str, refused: Option<Refused>) -> Sent {
    match refused {
        Some((count, what, message)) if count > 0 => Err(Failure {
            refused: usize::try_from(count).ok(),
            ..Failure::lasting(format!("`{to}` rejected {count} {what}: {message}"))
        }),
        _ => Ok(()),
    }
}

/// An address without the parts that may be secret.
pub(super) fn public_address(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{host}{port}{}", uri.path())
}
