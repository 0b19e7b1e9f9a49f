//! The secret that clients on other machines need.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use subtle::ConstantTimeEq as _;

/// Minimum length of a token, which makes guessing infeasible.
const LEAST_TOKEN: usize = 16;

/// The cookie that contains the token.
pub(crate) const COOKIE_NAME: &str = "headspace_token";

/// A secret that clients on other machines need. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl FromStr for Token {
    type Err = String;

    /// Parses a token: at least 16 characters that need no escapes in URLs and cookies.
    fn from_str(text: &str) -> Result<Self, String> {
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
}

/// A token as the user gave it, not checked yet. clap repeats a value that it cannot parse, so it parses this type.
#[derive(Clone)]
pub(crate) struct GivenToken(String);

impl FromStr for GivenToken {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for GivenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenToken(..)")
    }
}

impl GivenToken {
    /// Checks the token. The error does not repeat it.
    pub(crate) fn check(&self) -> Result<Token, String> {
        self.0.parse()
    }
}

impl Token {
    /// Compares in constant time, so that timing reveals only the length.
    pub(crate) fn matches(&self, candidate: &str) -> bool {
        self.0.as_bytes().ct_eq(candidate.as_bytes()).into()
    }

    pub(crate) fn cookie(&self) -> String {
        let Self(token) = self;
        format!("{COOKIE_NAME}={token}; HttpOnly; SameSite=Strict; Path=/")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
