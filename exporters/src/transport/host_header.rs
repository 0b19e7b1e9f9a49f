//! Checks the `Host` header of HTTP requests: a request must name the server to which it was sent.
//!
//! Without this check, a page of another site could let its own host name resolve to this server, and a
//! browser would let that page read the answers (DNS rebinding). The port is not compared, because a
//! tunnel changes it.

use std::net::{IpAddr, SocketAddr};

use hyper::header::HOST;
use hyper::{HeaderMap, Uri};

/// The host names under which a server answers.
#[derive(Debug, Clone)]
pub struct ServedNames {
    names: Vec<String>,
    /// Whether any IP address is accepted, because the server listens on all of them.
    any_address: bool,
}

impl ServedNames {
    /// `host` is the name that the user gave, `address` the address to which it resolved.
    pub fn new(host: &str, address: SocketAddr) -> Self {
        let mut names = vec![name_of(host), written(address.ip()), "localhost".to_owned()];
        if address.ip().is_loopback() {
            names.extend(["127.0.0.1".to_owned(), "[::1]".to_owned()]);
        } else if let Ok(machine) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.push(machine.trim().to_ascii_lowercase());
        }
        Self {
            names,
            any_address: address.ip().is_unspecified(),
        }
    }

    /// Whether the request's head names this server. It must have exactly one `Host` header, and no
    /// other name in its request line.
    pub fn include(&self, uri: &Uri, headers: &HeaderMap) -> bool {
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
        // The request line may contain a server name too.
        host && uri.authority().is_none_or(|named| known(named.as_str()))
    }
}

/// A host name without its port, in lower case.
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

/// An address as `Host` spells it.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(host: &str, address: &str) -> ServedNames {
        ServedNames::new(host, address.parse().unwrap())
    }

    fn accepts(served: &ServedNames, uri: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        served.include(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn only_the_names_of_this_server_are_accepted() {
        let local = served("127.0.0.1", "127.0.0.1:8321");
        for good in [
            "localhost",
            "LOCALHOST:9000",
            "127.0.0.1:8321",
            "[::1]:8321",
            "localhost.",
        ] {
            assert!(accepts(&local, "/", &[good]), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:8321",
            "10.0.0.5:8321",
            "localhost.evil.example",
            "",
        ] {
            assert!(!accepts(&local, "/", &[bad]), "{bad}");
        }
        assert!(!accepts(&local, "/", &[]));
        assert!(!accepts(&local, "/", &["localhost", "evil.example"]));
        assert!(!accepts(&local, "http://evil.example/", &["localhost"]));
    }

    #[test]
    fn a_server_on_all_addresses_accepts_any_address_but_no_other_name() {
        let all = served("0.0.0.0", "0.0.0.0:8321");
        assert!(accepts(&all, "/", &["10.1.2.3:8321"]));
        assert!(accepts(&all, "/", &["[fe80::1]:8321"]));
        assert!(!accepts(&all, "/", &["evil.example:8321"]));
    }

    #[test]
    fn the_server_accepts_the_host_name_on_which_it_listens() {
        let named = served("Node7.example.com", "10.1.2.3:9464");
        assert!(accepts(&named, "/metrics", &["node7.example.com:9464"]));
        assert!(!accepts(&named, "/metrics", &["node8.example.com:9464"]));
    }
}
