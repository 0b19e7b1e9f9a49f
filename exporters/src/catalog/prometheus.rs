//! Parses and opens the Prometheus destinations: an endpoint, or a file.

use std::path::{Path, PathBuf};

use headspace_agent::notice::Notice;

use super::{Destination, DestinationError, Opened, Options, ProcessRank};
use crate::transport::prometheus::PrometheusExporter;
use crate::transport::textfile;

/// The default port of OpenTelemetry's exporters for Prometheus.
const PORT: u16 = 9464;

const LOOPBACK: &str = "127.0.0.1";

/// `at` is a port, a host, or both. `host` and `port` set them separately.
pub(super) fn parse(options: &Options) -> Result<Destination, DestinationError> {
    let at = options.get("at").map_or("", |at| at.trim());
    let (host, port) = match at.rsplit_once(':') {
        // An IPv6 address without brackets has no port.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (at, ""),
        Some(both) => both,
        None if at.bytes().all(|byte| byte.is_ascii_digit()) => ("", at),
        None => (at, ""),
    };
    let host = options.get("host").map_or(host, String::as_str);
    let port = options.get("port").map_or(port, String::as_str);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = match port {
        "" => PORT,
        port => port.parse().map_err(|_| {
            let problem = format!(
                "`{port}` is not a port from 0 to 65535 (write `prometheus:{PORT}` or \
                 `prometheus:HOST:{PORT}`)"
            );
            DestinationError::invalid("prometheus", problem)
        })?,
    };
    Ok(Destination::Prometheus {
        host: if host.is_empty() { LOOPBACK } else { host }.to_owned(),
        port,
    })
}

pub(super) fn open(
    host: &str,
    port: u16,
    process: &ProcessRank,
) -> Result<Opened, DestinationError> {
    let local_rank = process.local_rank;
    let own = match port {
        0 => Some(0),
        port => u16::try_from(local_rank)
            .ok()
            .and_then(|rank| port.checked_add(rank)),
    };
    let own = own.ok_or_else(|| {
        let problem = format!(
            "port {port} and local rank {local_rank} are more than 65535 together (choose a lower port)"
        );
        DestinationError::invalid("prometheus", problem)
    })?;
    let exporter = PrometheusExporter::open(host, own).map_err(|error| {
        let problem = format!("cannot listen at port {own} of `{host}`: {error} (choose another)");
        DestinationError::closed("prometheus", problem)
    })?;
    let serving = Notice::Serving {
        exporter: "prometheus",
        at: format!("http://{}/metrics", exporter.address()),
    };
    Ok(Opened {
        exporters: vec![Box::new(exporter)],
        notices: vec![serving],
    })
}

pub(super) fn parse_textfile(options: &Options) -> Result<Destination, DestinationError> {
    let folder = options.get("at").filter(|folder| !folder.is_empty());
    let folder = folder.ok_or_else(|| {
        let problem = "the folder is missing (write `textfile:/var/lib/node_exporter`)";
        DestinationError::invalid("textfile", problem)
    })?;
    Ok(Destination::Textfile(PathBuf::from(folder)))
}

pub(super) fn open_textfile(folder: &Path) -> Result<Opened, DestinationError> {
    let exporter = textfile::open(folder).map_err(|error| {
        let problem = format!("cannot create `{}`: {error}", folder.display());
        DestinationError::closed("textfile", problem)
    })?;
    Ok(Opened::only(exporter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: &str, at: &str) -> Result<Destination, DestinationError> {
        Destination::parse(kind, &Options::from([("at".to_owned(), at.to_owned())]))
    }

    #[test]
    fn prometheus_listens_on_loopback_by_default() {
        for (at, host, port) in [
            ("", "127.0.0.1", 9464),
            ("9500", "127.0.0.1", 9500),
            ("0.0.0.0:0", "0.0.0.0", 0),
            ("node7", "node7", 9464),
            ("[::1]:9500", "::1", 9500),
            ("::1", "::1", 9464),
        ] {
            let host = host.to_owned();
            let expected = Destination::Prometheus { host, port };
            assert_eq!(parsed("prometheus", at).unwrap(), expected, "{at}");
        }
    }

    #[test]
    fn errors_for_invalid_options_say_what_to_write() {
        for (kind, at, said) in [
            ("prometheus", "node7:high", "`high` is not a port"),
            ("prometheus", "70000", "`70000` is not a port"),
            ("textfile", "", "the folder is missing"),
        ] {
            let error = parsed(kind, at).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn each_process_of_a_machine_has_its_own_port_and_reports_it() {
        let process = |local_rank| ProcessRank {
            rank: 5,
            local_rank,
            world_size: 8,
        };
        let last = parsed("prometheus", "65535").unwrap();
        let error = last.open(&process(1)).err().unwrap();
        assert!(error.to_string().contains("local rank 1"), "{error}");

        let first = parsed("prometheus", "0")
            .unwrap()
            .open(&process(0))
            .unwrap();
        let notice = first.notices[0].to_string();
        let port = notice.rsplit(['/', ':']).nth(1).unwrap();
        let port: u16 = port.parse().unwrap();
        // With any port other than the next one, this would fail because the address is in use.
        let in_use = Destination::Prometheus {
            host: "127.0.0.1".to_owned(),
            port: port - 1,
        };
        let error = in_use.open(&process(1)).err().unwrap().to_string();
        assert!(error.contains(&format!("port {port}")), "{error}");
    }
}
