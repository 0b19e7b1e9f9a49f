use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use headspace_agent::model::RecordBody;
use headspace_agent::model::record::{RunState, SCHEMA, SummaryRecord};
use headspace_exporters::encode::json_lines::encode;
use headspace_exporters::run_folder::rank_path;
use tempfile::TempDir;

use super::*;
use crate::testing::run_words;

const TOKEN: &str = "0123456789abcdef";
const DEADLINE: Duration = Duration::from_secs(30);

fn line(steps: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let body = SummaryRecord {
        state: RunState::Running,
        steps,
        overhead_pct: Some(0.5),
        ..SummaryRecord::default()
    };
    let record = headspace_agent::model::Record {
        schema: SCHEMA.to_owned(),
        time_unix_nano: steps,
        run_id: "a-run".to_owned(),
        rank: 0,
        pid: 1,
        body: RecordBody::Summary(Box::new(body)),
    };
    encode(&record, &mut out).unwrap();
    out
}

/// A server of a run in its own folder. It ends with the test process.
struct Server {
    folder: TempDir,
    address: SocketAddr,
}

impl Server {
    fn start(token: Option<&str>) -> Self {
        Self::of(tempfile::tempdir().unwrap(), token)
    }

    fn of(folder: TempDir, token: Option<&str>) -> Self {
        fs::write(rank_path(folder.path(), 0), line(7)).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        let args = ServeArgs {
            path: Some(folder.path().to_path_buf()),
            host: "127.0.0.1".to_owned(),
            port: 0,
            token: token.map(|token| token.parse().unwrap()),
        };
        let follower = Follower::open(folder.path()).unwrap();
        let (listener, address) = listen(&args).unwrap();
        let access = Access::new(&args.host, address, check_token(&args).unwrap());
        let tuning = Tuning::find(folder.path());
        thread::spawn(move || run(listener, access, follower, tuning));
        let server = Self { folder, address };
        let allowed = format!("Authorization: Bearer {TOKEN}\r\n");
        Self::until(|| {
            server
                .get_with("/api/summary", &allowed)
                .starts_with("HTTP/1.1 200")
        });
        server
    }

    fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds() {
            assert!(Instant::now() < end, "not in time");
            thread::yield_now();
        }
    }

    /// Sends bytes, and returns the whole response until the connection ends.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get_with(&self, path: &str, headers: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    fn get(&self, path: &str) -> String {
        self.get_with(path, "")
    }
}

fn code(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn every_route_responds_with_a_restrictive_content_security_policy() {
    let server = Server::start(None);
    for path in [
        "/",
        "/api/page",
        "/api/summary",
        "/metrics",
        "/assets/page.js",
        "/nothing",
    ] {
        let answer = server.get(path);
        assert_eq!(
            code(&answer),
            if path == "/nothing" { "404" } else { "200" },
            "{path}"
        );
        let head = answer.split("\r\n\r\n").next().unwrap();
        for header in [
            "content-security-policy: default-src 'none'",
            "nosniff",
            "no-referrer",
        ] {
            assert!(head.contains(header), "{path}: {header}");
        }
        assert!(!head.contains("access-control"), "{path}");
    }
    assert!(server.get("/metrics").contains("headspace_"));
}

#[test]
fn the_summary_is_the_json_that_report_prints() {
    let server = Server::start(None);
    let answer = server.get("/api/summary");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let path = server.folder.path().as_os_str().to_owned();
    let args = ["headspace".into(), "report".into(), "--json".into(), path];
    let mut context = Context {
        out: &mut out,
        err: &mut err,
        runs: "nowhere".into(),
        settings: crate::source_settings(),
        more_sources: &mut crate::python_sources::absent,
        inject: None,
    };
    assert_eq!(crate::run(args.into_iter(), &mut context), EXIT_OK);
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(body, String::from_utf8(out).unwrap());
}

#[test]
fn no_path_leads_to_a_file() {
    let server = Server::start(None);
    for path in [
        "/secret.txt",
        "/rank0.jsonl",
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/%2e%2e%2fsecret.txt",
        "//etc/passwd",
        "/assets/page.css/../../secret.txt",
    ] {
        let answer = server.get(path);
        assert_eq!(code(&answer), "404", "{path}");
        assert!(
            !answer.contains("secret\n") && !answer.contains("root:"),
            "{path}"
        );
    }
}

#[test]
fn another_name_another_method_and_a_missing_token_are_refused() {
    let server = Server::start(Some(TOKEN));
    let rebound = server.ask("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(code(&rebound), "421");
    assert!(!rebound.contains("a-run"));
    let write =
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(code(&server.ask(write)), "405");
    for path in [
        "/",
        "/api/page",
        "/api/summary",
        "/metrics",
        "/events",
        "/assets/page.js",
    ] {
        assert_eq!(code(&server.get(path)), "401", "{path}");
    }
    let allowed = format!("Cookie: headspace_token={TOKEN}\r\n");
    assert_eq!(code(&server.get_with("/", &allowed)), "200");
    let entered = server.get(&format!("/?token={TOKEN}"));
    assert_eq!(code(&entered), "303");
    assert!(
        entered.contains("set-cookie: headspace_token=") && entered.contains("location: /\r\n")
    );
}

#[test]
fn records_written_while_a_page_is_open_arrive_there() {
    let server = Server::start(None);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
        .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut seen = String::new();
    let mut read_until = |words: &str| {
        let mut bytes = [0; 4096];
        while !seen.contains(words) {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "ended without `{words}`");
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    read_until("event: page");
    read_until("7 steps");
    let path = rank_path(server.folder.path(), 0);
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&line(4321)).unwrap();
    read_until("event: update");
    read_until("4321 steps");
}

#[test]
fn pages_beyond_the_limit_must_retry_later_and_other_requests_are_answered() {
    let server = Server::start(None);
    let open: Vec<TcpStream> = (0..routes::LISTENERS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream
                .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    assert_eq!(code(&server.get("/events")), "503");
    assert_eq!(code(&server.get("/api/summary")), "200");
    drop(open);
    Server::until(|| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).is_ok() && &first == b"HTTP/1.1 200"
    });
}

#[test]
fn an_address_for_others_needs_a_token() {
    let mut args = ServeArgs {
        path: None,
        host: "0.0.0.0".to_owned(),
        port: 0,
        token: None,
    };
    let error = listen(&args).unwrap_err().to_string();
    assert!(error.contains("--token"), "{error}");
    args.token = Some(TOKEN.parse().unwrap());
    assert!(listen(&args).is_ok());
}

#[test]
fn a_refused_token_is_not_repeated() {
    for wrong in ["s3cret", "c2VjcmV0K3NlY3JldC9zZWNyZXQ="] {
        let (code, out, err) = run_words(["headspace", "serve", "--token", wrong]);
        assert_eq!((code, &*out), (2, ""));
        assert!(err.contains("openssl rand -hex 16"), "{err}");
        assert!(!err.contains(wrong), "{err}");
    }
}

#[test]
fn the_page_reports_unreadable_files_until_they_can_be_read() {
    let live = Live::default();
    let is_published = || {
        live.page()
            .parts
            .iter()
            .any(|part| part.html.contains("no permission"))
    };
    live.set_trouble(Some("no permission".to_owned()));
    assert!(is_published());
    live.set_trouble(None);
    assert!(!is_published());
}

#[test]
fn a_search_s_page_and_its_files_are_served_where_the_folder_is_a_search_s() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("experiments")).unwrap();
    fs::write(folder.path().join("results.tsv"), "name\nbaseline\n").unwrap();
    fs::write(folder.path().join("progress.svg"), "<svg/>").unwrap();
    let server = Server::of(folder, None);

    let page = server.get("/tuning");
    assert_eq!(code(&page), "200");
    assert!(page.contains("<td>baseline</td>"));
    let picture = server.get("/tuning/progress.svg");
    assert!(picture.ends_with("<svg/>"));
    assert!(picture.contains("content-type: image/svg+xml"));
    assert!(picture.contains("sandbox"));
    assert_eq!(code(&server.get("/tuning/tree.svg")), "404");
    assert_eq!(code(&server.get("/tuning/study.db")), "404");
    assert_eq!(code(&Server::start(None).get("/tuning")), "404");
}
