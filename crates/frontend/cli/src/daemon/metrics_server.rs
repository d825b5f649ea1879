//! Serves the metrics on a port of the loopback, or on a unix socket: `GET /metrics`, one answer
//! per connection; and beside them `/healthz`, which says that the process answers, and `/readyz`,
//! which says whether it serves its volume. Any process that can reach it may ask. The size, the
//! time and the number of requests are bounded.

use crate::daemon::board::Board;
use crate::daemon::metrics;
use crate::daemon::private;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest request in bytes.
const MAX_REQUEST: usize = 8192;
/// How long one connection may take, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections served at once; more are closed.
const MAX_CLIENTS: usize = 8;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of the loopback.
    Port(SocketAddr),
    /// A unix socket, for its owner.
    Socket(PathBuf),
}

/// A socket that is bound. When it is dropped a unix socket's file is removed, if it is still ours.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// A unix socket's file and its inode.
    file: Option<(PathBuf, u64)>,
}

#[derive(Debug)]
enum Socket {
    Port(TcpListener),
    Unix(UnixListener),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// `127.0.0.1:PORT`, `[::1]:PORT`, or an absolute path.
    ///
    /// # Errors
    /// Says what is wrong; an address that other machines reach is refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Socket(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(a) if a.ip().is_loopback() => Ok(Self::Port(a)),
            Ok(a) => Err(format!("metrics={a}: only the loopback, such as 127.0.0.1:{}", a.port())),
            Err(_) => Err(format!(
                "metrics={text}: neither 127.0.0.1:PORT nor a unix socket's absolute path"
            )),
        }
    }

    /// Takes the address. A unix socket on which no process listens any more is replaced.
    ///
    /// # Errors
    /// When it is in use, or may not be taken.
    pub fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Port(address) => {
                let socket = Socket::Port(TcpListener::bind(address)?);
                Ok(Listener { socket, file: None })
            }
            Self::Socket(path) => {
                let is_socket =
                    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
                let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
                if is_socket && UnixStream::connect(path).is_err_and(refused) {
                    std::fs::remove_file(path)?;
                }
                let listener = private::listen(path)?;
                let ino = std::fs::symlink_metadata(path)?.ino();
                Ok(Listener { socket: Socket::Unix(listener), file: Some((path.clone(), ino)) })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, ino)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|m| m.ino() == *ino)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves what `board` says from a thread of its own, as long as the process lives.
pub fn serve(listener: &Listener, board: Arc<Board>) -> io::Result<()> {
    let socket = match &listener.socket {
        Socket::Port(l) => Socket::Port(l.try_clone()?),
        Socket::Unix(l) => Socket::Unix(l.try_clone()?),
    };
    let clients = Arc::new(AtomicUsize::new(0));
    let run = move || {
        loop {
            let accepted = match &socket {
                Socket::Port(l) => l.accept().map(|(s, _)| Stream::Port(s)),
                Socket::Unix(l) => l.accept().map(|(s, _)| Stream::Socket(s)),
            };
            match accepted {
                Ok(stream) => answer_apart(stream, &clients, &board),
                // Out of descriptors, most likely: try again a little later.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    thread::Builder::new().name("siftfs-metrics".into()).spawn(run).map(drop)
}

fn answer_apart(mut stream: Stream, clients: &Arc<AtomicUsize>, board: &Arc<Board>) {
    if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
        clients.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (count, board) = (clients.clone(), board.clone());
    let started = thread::Builder::new().name("siftfs-scrape".into()).spawn(move || {
        if let Err(error) = answer(&mut stream, &board) {
            tracing::debug!(%error, "metrics");
        }
        count.fetch_sub(1, Ordering::Relaxed);
    });
    if started.is_err() {
        clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Either kind of connection.
enum Stream {
    Port(TcpStream),
    Socket(UnixStream),
}

impl Stream {
    /// Whatever comes next ends at `end`.
    fn until(&self, end: Instant) -> io::Result<()> {
        let left = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero());
        let left = Some(left.ok_or(io::ErrorKind::TimedOut)?);
        match self {
            Self::Port(s) => s.set_read_timeout(left).and_then(|()| s.set_write_timeout(left)),
            Self::Socket(s) => s.set_read_timeout(left).and_then(|()| s.set_write_timeout(left)),
        }
    }
    fn read(&mut self, buf: &mut [u8], end: Instant) -> io::Result<usize> {
        uninterrupted(|| {
            self.until(end)?;
            match self {
                Self::Port(s) => s.read(buf),
                Self::Socket(s) => s.read(buf),
            }
        })
    }
    fn write(&mut self, buf: &[u8], end: Instant) -> io::Result<usize> {
        uninterrupted(|| {
            self.until(end)?;
            match self {
                Self::Port(s) => s.write(buf),
                Self::Socket(s) => s.write(buf),
            }
        })
    }
}

/// Makes a call again that was interrupted: with a timeout the kernel does not go on by itself when
/// the process was stopped and continues (signal(7)).
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn answer(stream: &mut Stream, board: &Arc<Board>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let request = receive(stream, end)?;
    let said = judge(&request).map(|page| match page {
        Page::Metrics => board.status().map(|status| (METRICS, metrics::page(&status))),
        Page::Health => Ok((PLAIN, "alive\n".into())),
        Page::Readiness => board.ready().map(|()| (PLAIN, "serving\n".into())),
    });
    let (status, kind, body) = match said {
        Ok(Ok((kind, page))) => ("200 OK", kind, page),
        Ok(Err(why)) => ("503 Service Unavailable", PLAIN, format!("{why}\n")),
        Err(status) => (status, PLAIN, format!("{status}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let all = [head.as_bytes(), body.as_bytes()].concat();
    let mut sent = 0;
    while sent < all.len() {
        match stream.write(&all[sent..], end)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => sent += n,
        }
    }
    Ok(())
}

/// The request up to the empty line that ends its head, or as much as is taken of it.
fn receive(stream: &mut Stream, end: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        match stream.read(&mut part, end)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => request.extend_from_slice(&part[..n]),
        }
    }
    Ok(request)
}

/// What a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Metrics,
    /// The process answers.
    Health,
    /// It serves its volume.
    Readiness,
}

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Which page is it a request for?
fn judge(request: &[u8]) -> Result<Page, &'static str> {
    if !request.windows(4).any(|w| w == b"\r\n\r\n") {
        return Err("431 Request Header Fields Too Large");
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let path = path.and_then(|p| p.split(|b| *b == b'?').next());
    match (method, path, version) {
        (_, _, Some(v)) if !v.starts_with(b"HTTP/1.") => Err("400 Bad Request"),
        (_, _, None) => Err("400 Bad Request"),
        (Some(b"GET"), Some(b"/metrics" | b"/"), _) => Ok(Page::Metrics),
        (Some(b"GET"), Some(b"/healthz"), _) => Ok(Page::Health),
        (Some(b"GET"), Some(b"/readyz"), _) => Ok(Page::Readiness),
        (Some(b"GET"), _, _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

#[cfg(test)]
#[path = "metrics_server_tests.rs"]
mod tests;
