//! Watching a mount: status, top, metrics, the log.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use support::{SIFTFS, Setup, siftfs};

fn fsyncs(s: &Setup, n: usize) {
    for i in 0..n {
        let mut f = File::create(s.path(&format!("file-{i}"))).unwrap();
        f.write_all(b"some contents").unwrap();
        f.sync_all().unwrap();
    }
}

#[test]
fn status_for_people_and_for_scripts() {
    let s = Setup::new();
    s.mount("commit=3600");
    fsyncs(&s, 7);
    let text = siftfs(&["status", s.dir()]).ok().out;
    for part in [s.volume(), s.dir(), "7 since the mount", "serving", "staging", "%", "none yet"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    siftfs(&["checkpoint", s.dir()]).ok();
    let text = siftfs(&["status", s.dir()]).ok().out;
    assert!(text.contains("last 0 s ago") || text.contains("last 1 s ago"), "{text}");
    let json = siftfs(&["status", s.dir(), "--json"]).ok().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let typed = siftfs_status::Status::deserialize(&json).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), json, "all of it, and nothing else");
    let requests = &json["requests"];
    for (kind, n) in [("create", 7), ("write", 7), ("fsync", 7), ("release", 7), ("init", 1)] {
        assert_eq!(requests[kind], n, "{kind} in {requests}");
    }
    assert!(requests["rename"].is_null() && requests["other"].is_null(), "{requests}");
    let latency = &json["runtime"]["fsync_latency"];
    assert_eq!(latency["count"], 7);
    let buckets = latency["buckets"].as_array().unwrap();
    assert_eq!(buckets.last().unwrap()[1], 7, "{latency}");
    s.umount();
}

/// A pipe whose reader is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A reader that goes away early is no error of ours, and does not stop what was asked for.
#[test]
fn nobody_reads_to_the_end() {
    let s = Setup::empty();
    let (v, d) = (s.volume(), s.dir());
    let [old, log, out] = ["old", "log", "out"].map(|name| s.tmp.path().join(name));
    let [old, log, out] = [&old, &log, &out].map(|p| p.to_str().unwrap());
    support::run("mke2fs", &["-q", "-t", "ext4", "-b", "4096", old, "32M"]).ok();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(old, mode).unwrap();
    let quiet = |args: &[&str], code: i32| {
        let ran = Command::new(SIFTFS).args(args).stdout(closed_pipe()).output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), &*err), (Some(code), ""), "{args:?}");
    };
    quiet(&["--help"], 0);
    quiet(&["mkfs", v, "--size", "64M"], 0);
    quiet(&["mkfs", v, "--size", "64M", "--force", "--json"], 0);
    quiet(&["adopt", old, "--log", log, "--log-size", "8M"], 0);
    quiet(&["release", old], 0);
    quiet(&["mount", v, d, "--verbose"], 0);
    quiet(&["status", d], 0);
    quiet(&["status", d, "--json"], 0);
    quiet(&["top", d, "-d0.1"], 0);
    quiet(&["checkpoint", d], 0);
    quiet(&["checkpoint", d, "--json"], 0);
    fsyncs(&s, 3);
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    quiet(&["fsck", v], 4);
    quiet(&["inspect", v], 0);
    quiet(&["recover", v], 0);
    quiet(&["recover", v], 0);
    quiet(&["fsck", v], 0);
    quiet(&["fsck", v, "--json"], 0);
    quiet(&["recover", v, "--discard-log"], 0);
    quiet(&["generate", out], 0);
    s.mount("");
    assert!(s.path("file-2").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// An error message that no process reads is no error either: the exit status tells the failure.
#[test]
fn nobody_hears_of_a_failure() {
    let s = Setup::new();
    for (args, code) in [(["fsck", s.dir()], 8), (["umount", s.dir()], 1), (["fsck", "-x"], 16)] {
        let mut command = Command::new(SIFTFS);
        let ran = command.args(args).stdout(Stdio::null()).stderr(closed_pipe()).status().unwrap();
        assert_eq!(ran.code(), Some(code), "{args:?}");
    }
}

#[test]
fn top_without_a_terminal() {
    let s = Setup::new();
    s.mount("");
    let pictures = std::thread::scope(|scope| {
        let shown = scope.spawn(|| siftfs(&["top", s.dir(), "-d", "0.5", "-n", "3"]).ok().out);
        fsyncs(&s, 200);
        shown.join().unwrap()
    });
    assert_eq!(pictures.matches("staging").count(), 3, "{pictures}");
    assert!(!pictures.contains('\u{1b}'), "{pictures}");
    let busy = pictures.lines().any(|l| l.starts_with("fsync") && !l.contains("p50 -"));
    assert!(busy, "{pictures}");
    let once = siftfs(&["top", s.dir(), "--once", "-d", "0.1"]).ok().out;
    assert!(once.contains("0.0/s  p50 -  p99 -") && once.contains("serving"), "{once}");
    siftfs(&["top", s.dir(), "-d", "0"]).fails(2, &["0.1 to 3600"]);
    s.umount();
    siftfs(&["top", s.dir(), "--once"]).fails(1, &["not on a SiftFS mount"]);
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn scrape(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_string()
}

/// Values of a page; every family has HELP and TYPE before its samples.
fn value(page: &str, series: &str) -> f64 {
    let family = series.split('{').next().unwrap();
    let family = ["_bucket", "_count", "_sum"].iter().find_map(|s| family.strip_suffix(s));
    let family = family.unwrap_or(series.split('{').next().unwrap());
    let at = |text: String| page.find(&text).unwrap_or_else(|| panic!("no `{text}` in {page}"));
    let sample = at(format!("\n{series} "));
    assert!(at(format!("# HELP {family} ")) < at(format!("# TYPE {family} ")));
    assert!(at(format!("# TYPE {family} ")) < sample);
    page[sample + 1..].lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn metrics_on_a_port() {
    let s = Setup::new();
    let port = free_port();
    s.mount(&format!("commit=3600,metrics=127.0.0.1:{port}"));
    fsyncs(&s, 5);
    let page = scrape(TcpStream::connect(("127.0.0.1", port)).unwrap());
    assert_eq!(value(&page, "siftfs_fsync_seconds_count"), 5.0);
    assert_eq!(value(&page, "siftfs_fsync_seconds_bucket{le=\"+Inf\"}"), 5.0);
    assert!(value(&page, "siftfs_fsync_seconds_sum") > 0.0);
    assert_eq!(value(&page, "siftfs_staged_transactions_total"), 5.0);
    let flushes = "siftfs_io_total{region=\"staging\",origin=\"foreground\",kind=\"flush\"}";
    assert_eq!(value(&page, flushes), 5.0);
    assert_eq!(value(&page, "siftfs_failed"), 0.0);
    // No name of a file is told.
    assert!(!page.contains("file-"), "{page}");
    let other = s.tmp.path().join("other");
    siftfs(&["mkfs", other.to_str().unwrap(), "--size", "64M"]).ok();
    let dir = s.tmp.path().join("n");
    fs::create_dir(&dir).unwrap();
    let options = format!("metrics=127.0.0.1:{port}");
    siftfs(&["mount", other.to_str().unwrap(), dir.to_str().unwrap(), "-o", &options])
        .fails(1, &["cannot serve metrics", "in use"]);
    s.umount();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "served after the end");
}

#[test]
fn metrics_on_a_unix_socket() {
    let s = Setup::new();
    let socket = s.tmp.path().join("metrics");
    s.mount(&format!("metrics={}", socket.display()));
    let page = scrape(UnixStream::connect(&socket).unwrap());
    assert_eq!(value(&page, "siftfs_fsync_seconds_count"), 0.0);
    s.umount();
    assert!(!socket.exists());
    for wrong in ["metrics=0.0.0.0:9", "metrics=9", "metrics=metrics"] {
        siftfs(&["mount", s.volume(), s.dir(), "-o", wrong]).fails(2, &["127.0.0.1"]);
    }
}

/// One document per line; neither names nor contents of files at the default level.
#[test]
fn the_log_as_json() {
    let s = Setup::new();
    let log = s.tmp.path().join("log");
    s.mount(&format!("log_format=json,log_file={}", log.display()));
    fs::create_dir(s.path("secret-directory")).unwrap();
    fs::write(s.path("secret-directory/secret-file"), b"secret-contents").unwrap();
    File::open(s.path("secret-directory/secret-file")).unwrap().sync_all().unwrap();
    let _ = fs::rename(s.path("secret-directory"), s.path("secret-directory/secret-file/x"));
    s.umount();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mounted = lines.iter().find(|l| l["message"] == "mounted").unwrap();
    assert_eq!((&mounted["level"], &mounted["volume"]), (&"INFO".into(), &s.volume().into()));
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn log_levels() {
    let s = Setup::new();
    let log = s.tmp.path().join("log");
    let path = log.to_str().unwrap();
    siftfs(&["mount", s.volume(), s.dir(), "--log-file", path, "--log-level", "error"]).ok();
    s.umount();
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    s.mount(&format!("log_file={path},log_level=debug"));
    s.umount();
    assert!(fs::read_to_string(&log).unwrap().contains("mounted"));
    siftfs(&["mount", s.volume(), s.dir(), "--log-level", "loud"]).fails(2, &["loud", "info"]);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "log_level=loud"]).fails(2, &["log_level=loud"]);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "log_format=xml"]).fails(2, &["log_format=xml"]);
    siftfs(&["mount", s.volume(), s.dir(), "--log-file", "/no/such/log"])
        .fails(1, &["/no/such/log"]);
    let wrong = Command::new(SIFTFS)
        .args(["mount", s.volume(), s.dir(), "--log-file", path])
        .env("SIFTFS_LOG", "siftfs=loud")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("SIFTFS_LOG"), "{wrong:?}");
}

/// Progress is for a terminal: script(1) makes one. Elsewhere there is nothing on standard error.
#[test]
fn progress_on_a_terminal_alone() {
    let s = Setup::empty();
    let quiet = siftfs(&["mkfs", s.volume(), "--size", "64M"]).ok();
    assert_eq!(quiet.err, "");
    fs::remove_file(s.volume()).unwrap();
    let on_terminal = |command: &str| {
        let line = format!("{SIFTFS} {command}");
        let typescript = s.tmp.path().join("typescript");
        support::run("script", &["-qec", &line, typescript.to_str().unwrap()]).ok().out
    };
    let made = on_terminal(&format!("mkfs {} --size 2G", s.volume()));
    assert!(made.contains("log regions") && made.contains('%'), "{made:?}");
    let checked = on_terminal(&format!("fsck {}", s.volume()));
    assert!(checked.contains("checking the ext4 area") && checked.contains('%'), "{checked:?}");
    on_terminal(&format!("mount {} {} -o commit=3600,low_watermark=1", s.volume(), s.dir()));
    fs::write(s.path("large"), vec![7; 64 << 20]).unwrap();
    fsyncs(&s, 200);
    let gone = on_terminal(&format!("umount {}", s.dir()));
    assert!(gone.contains("into the ext4 area") && gone.contains('%'), "{gone:?}");
    s.mount("commit=3600");
    fsyncs(&s, 200);
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    siftfs(&["umount", s.dir()]).fails(1, &["siftfs recover"]);
    let recovered = on_terminal(&format!("recover {}", s.volume()));
    let shown = recovered.contains("staged transactions") && recovered.contains('%');
    assert!(shown, "{recovered:?}");
    s.mount("");
    let quiet = s.umount();
    assert_eq!((quiet.out, quiet.err), (String::new(), String::new()));
}
