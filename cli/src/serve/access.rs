//! Decides whether a request is permitted, from its head alone.
//!
//! `Host` must name this server (the exporters' `transport/host_header.rs` explains why). If there is a token,
//! each request must contain it: in `Authorization: Bearer`, or in the cookie that the server sets in
//! response to `?token=`.

use std::net::SocketAddr;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, Method, Uri};
use headspace_exporters::transport::host_header::ServedNames;

use crate::token::{COOKIE_NAME, Token};

/// The host names of the server, and its token.
#[derive(Debug, Clone)]
pub(super) struct Access {
    names: ServedNames,
    token: Option<Token>,
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request is permitted.
    Allowed,
    /// Refused: the method is not a read.
    NotReading,
    /// Refused: the request names another server.
    OtherHost,
    /// Refused: the token is missing or wrong.
    NoToken,
    /// The URL contains the token: redirect to the URL without it, and set a cookie.
    Enter { cookie: String, location: String },
}

impl Access {
    /// `host` is the name that the user gave, `address` the address to which it resolved.
    pub(super) fn new(host: &str, address: SocketAddr, token: Option<Token>) -> Self {
        Self {
            names: ServedNames::new(host, address),
            token,
        }
    }

    /// Decides from a request's head.
    pub(super) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Decision {
        if method != Method::GET && method != Method::HEAD {
            return Decision::NotReading;
        }
        if !self.names.include(uri, headers) {
            return Decision::OtherHost;
        }
        let Some(token) = &self.token else {
            return Decision::Allowed;
        };
        if tokens_in(headers).any(|candidate| token.matches(candidate)) {
            return Decision::Allowed;
        }
        let query = uri.query().unwrap_or_default();
        let given = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("token="));
        if !given.is_some_and(|candidate| token.matches(candidate)) {
            return Decision::NoToken;
        }
        Decision::Enter {
            cookie: token.cookie(),
            location: uri.path().to_owned(),
        }
    }
}

/// The tokens in a request.
fn tokens_in(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let text = |name| {
        let values = headers.get_all(name).iter();
        values.filter_map(|value| value.to_str().ok())
    };
    let bearer = text(AUTHORIZATION).filter_map(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let cookies = text(COOKIE)
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    bearer.chain(cookies)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn access(host: &str, address: &str, token: Option<&str>) -> Access {
        let token = token.map(|token| Token::from_str(token).unwrap());
        Access::new(host, address.parse().unwrap(), token)
    }

    fn decision(access: &Access, uri: &str, headers: &[(&str, &str)]) -> Decision {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = axum::http::HeaderName::try_from(*name).unwrap();
            map.append(name, value.parse().unwrap());
        }
        access.decide(&Method::GET, &uri.parse().unwrap(), &map)
    }

    #[test]
    fn a_request_for_another_server_is_refused_even_with_the_token() {
        let closed = access("127.0.0.1", "127.0.0.1:8321", Some(TOKEN));
        let bearer = format!("Bearer {TOKEN}");
        let decide = |host| decision(&closed, "/", &[("host", host), ("authorization", &bearer)]);
        assert_eq!(decide("localhost:8321"), Decision::Allowed);
        assert_eq!(decide("evil.example:8321"), Decision::OtherHost);
    }

    #[test]
    fn only_the_right_token_as_bearer_or_cookie_is_accepted() {
        let closed = access("127.0.0.1", "127.0.0.1:1", Some(TOKEN));
        let with =
            |name, value: &str| decision(&closed, "/", &[("host", "localhost"), (name, value)]);
        assert_eq!(
            with("authorization", &format!("bearer {TOKEN}")),
            Decision::Allowed
        );
        assert_eq!(
            with("cookie", &format!("a=b; {COOKIE_NAME}={TOKEN}")),
            Decision::Allowed
        );
        for wrong in [&TOKEN[1..], "", "0123456789abcdeF", "0123456789abcdef0"] {
            assert_eq!(
                with("authorization", &format!("Bearer {wrong}")),
                Decision::NoToken
            );
            assert_eq!(
                with("cookie", &format!("{COOKIE_NAME}={wrong}")),
                Decision::NoToken
            );
        }
        assert_eq!(
            with("authorization", &format!("Basic {TOKEN}")),
            Decision::NoToken
        );
    }

    #[test]
    fn a_token_in_the_address_becomes_a_cookie_and_leaves_the_address() {
        let closed = access("127.0.0.1", "127.0.0.1:1", Some(TOKEN));
        let host = [("host", "localhost")];
        let entered = decision(&closed, &format!("/api/page?x=1&token={TOKEN}"), &host);
        let Decision::Enter { cookie, location } = entered else {
            panic!("{entered:?}")
        };
        assert_eq!(location, "/api/page");
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
            "{cookie}"
        );
        assert_eq!(decision(&closed, "/?token=", &host), Decision::NoToken);
    }

    #[test]
    fn only_get_and_head_requests_are_allowed() {
        let local = access("127.0.0.1", "127.0.0.1:1", None);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let decision = local.decide(&method, &Uri::from_static("/"), &HeaderMap::new());
            assert_eq!(decision, Decision::NotReading);
        }
    }

    #[test]
    fn short_tokens_and_tokens_that_need_escapes_are_refused_and_tokens_are_never_printed() {
        assert!(Token::from_str("short").is_err());
        assert!(Token::from_str("has a space and is long").is_err());
        let token = Token::from_str(TOKEN).unwrap();
        assert!(!format!("{token:?}").contains(TOKEN));
    }
}
