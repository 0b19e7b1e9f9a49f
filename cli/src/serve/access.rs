//! Who may ask: decided from a request's head alone.
//!
//! `Host` must name what is served, or a page of another site could make its own name lead here and
//! read the answers (DNS rebinding). Its port is not compared, since a tunnel changes it. Where there
//! is a token, each request must bring it: in `Authorization: Bearer`, or in the cookie that a first
//! request with `?token=` is answered with.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Method, Uri};
use subtle::ConstantTimeEq as _;

/// Shortest token. Nobody guesses one of that length.
const LEAST_TOKEN: usize = 16;

/// The cookie that holds the token.
pub(super) const COOKIE_NAME: &str = "headspace_token";

/// A secret that other machines must know. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// At least 16 characters that need no escapes in addresses and cookies.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if text.chars().all(plain) && text.len() >= LEAST_TOKEN {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "a token has at least {LEAST_TOKEN} letters, digits, `-`, `.`, `_` or `~`, such as \
                 `openssl rand -hex 16` makes"
            ))
        }
    }

    /// Compared in a time that tells nothing but the length.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    pub(super) fn cookie(&self) -> String {
        format!(
            "{COOKIE_NAME}={}; HttpOnly; SameSite=Strict; Path=/",
            self.0
        )
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What is served under which names, and to whom.
#[derive(Debug, Clone)]
pub(super) struct Access {
    names: Vec<String>,
    /// Whether any address of the machine will do, since it listens at all of them.
    any_address: bool,
    token: Option<Token>,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is answered.
    Allowed,
    /// It is not: something other than reading was asked for.
    NotReading,
    /// It is not: it names another server.
    OtherHost,
    /// It is not: it brings no token, or a wrong one.
    NoToken,
    /// It brings the token in its address, and is sent to the address without it, with a cookie.
    Enter { cookie: String, location: String },
}

impl Access {
    /// `host` is what the user wants to listen at, `address` what that became.
    pub(super) fn new(host: &str, address: SocketAddr, token: Option<Token>) -> Self {
        let mut names = vec![name_of(host), written(address.ip()), "localhost".to_owned()];
        if address.ip().is_loopback() {
            names.extend(["127.0.0.1".to_owned(), "[::1]".to_owned()]);
        } else if let Ok(machine) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.push(machine.trim().to_ascii_lowercase());
        }
        Self {
            names,
            any_address: address.ip().is_unspecified(),
            token,
        }
    }

    /// Decides from a request's head.
    pub(super) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Decision {
        if method != Method::GET && method != Method::HEAD {
            return Decision::NotReading;
        }
        if !self.is_named(uri, headers) {
            return Decision::OtherHost;
        }
        let Some(token) = &self.token else {
            return Decision::Allowed;
        };
        if brought(headers).any(|given| token.is(given)) {
            return Decision::Allowed;
        }
        let query = uri.query().unwrap_or_default();
        let given = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("token="));
        if !given.is_some_and(|given| token.is(given)) {
            return Decision::NoToken;
        }
        Decision::Enter {
            cookie: token.cookie(),
            location: uri.path().to_owned(),
        }
    }

    fn is_named(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        let known = |name: &str| {
            let name = name_of(name);
            let address = name.trim_start_matches('[').trim_end_matches(']');
            self.names.contains(&name) || self.any_address && address.parse::<IpAddr>().is_ok()
        };
        let host = host.to_str().is_ok_and(known);
        // A request may name a server in its first line too.
        host && uri.authority().is_none_or(|named| known(named.as_str()))
    }
}

/// Tokens that a request brings.
fn brought(headers: &HeaderMap) -> impl Iterator<Item = &str> {
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

/// A host's name without its port, in lower case.
fn name_of(host: &str) -> String {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None if host.matches(':').count() == 1 => host.find(':').unwrap_or(host.len()),
        None => host.len(),
    };
    let name = host.get(..end).unwrap_or(host).to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        Ok(address) => written(address),
        Err(_) => name.trim_end_matches('.').to_owned(),
    }
}

/// An address as it stands in `Host`.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn access(host: &str, address: &str, token: Option<&str>) -> Access {
        let token = token.map(|token| Token::parse(token).unwrap());
        Access::new(host, address.parse().unwrap(), token)
    }

    fn asked(access: &Access, uri: &str, headers: &[(&str, &str)]) -> Decision {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = axum::http::HeaderName::try_from(*name).unwrap();
            map.append(name, value.parse().unwrap());
        }
        access.decide(&Method::GET, &uri.parse().unwrap(), &map)
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        let local = access("127.0.0.1", "127.0.0.1:8321", None);
        for good in [
            "localhost",
            "LOCALHOST:9000",
            "127.0.0.1:8321",
            "[::1]:8321",
            "localhost.",
        ] {
            assert_eq!(
                asked(&local, "/", &[("host", good)]),
                Decision::Allowed,
                "{good}"
            );
        }
        for bad in [
            "evil.example",
            "evil.example:8321",
            "10.0.0.5:8321",
            "localhost.evil.example",
            "",
        ] {
            assert_eq!(
                asked(&local, "/", &[("host", bad)]),
                Decision::OtherHost,
                "{bad}"
            );
        }
        assert_eq!(asked(&local, "/", &[]), Decision::OtherHost);
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(asked(&local, "/", &twice), Decision::OtherHost);
        let elsewhere = asked(&local, "http://evil.example/", &[("host", "localhost")]);
        assert_eq!(elsewhere, Decision::OtherHost);
    }

    #[test]
    fn a_server_at_all_addresses_goes_by_any_of_them_but_by_no_other_name() {
        let all = access("0.0.0.0", "0.0.0.0:8321", Some(TOKEN));
        let bearer = format!("Bearer {TOKEN}");
        let ask = |host| asked(&all, "/", &[("host", host), ("authorization", &bearer)]);
        assert_eq!(ask("10.1.2.3:8321"), Decision::Allowed);
        assert_eq!(ask("[fe80::1]:8321"), Decision::Allowed);
        assert_eq!(ask("evil.example:8321"), Decision::OtherHost);
    }

    #[test]
    fn a_token_comes_as_bearer_or_cookie_and_nothing_else_will_do() {
        let closed = access("127.0.0.1", "127.0.0.1:1", Some(TOKEN));
        let with = |name, value: &str| asked(&closed, "/", &[("host", "localhost"), (name, value)]);
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
        let entered = asked(&closed, &format!("/api/page?x=1&token={TOKEN}"), &host);
        let Decision::Enter { cookie, location } = entered else {
            panic!("{entered:?}")
        };
        assert_eq!(location, "/api/page");
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
            "{cookie}"
        );
        assert_eq!(asked(&closed, "/?token=", &host), Decision::NoToken);
    }

    #[test]
    fn only_reading_is_answered() {
        let local = access("127.0.0.1", "127.0.0.1:1", None);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let decision = local.decide(&method, &Uri::from_static("/"), &HeaderMap::new());
            assert_eq!(decision, Decision::NotReading);
        }
    }

    #[test]
    fn a_short_token_or_one_that_needs_escapes_is_refused_and_none_is_printed() {
        assert!(Token::parse("short").is_err());
        assert!(Token::parse("has a space and is long").is_err());
        let token = Token::parse(TOKEN).unwrap();
        assert!(!format!("{token:?}").contains(TOKEN));
    }
}
