//! A handshake over TCP: its deadline, and its failures in words.

use super::setup::ALPN;
use rustls::{AlertDescription, CommonState, Error, PeerIncompatible};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream whose reads and writes all end at one time.
pub(super) struct Deadline<'a> {
    stream: &'a TcpStream,
    within: Duration,
    end: Instant,
}

impl<'a> Deadline<'a> {
    /// The stream's timeouts are changed until [`Deadline::lift`].
    pub(super) fn new(stream: &'a TcpStream, within: Duration) -> Self {
        Self { stream, within, end: Instant::now() + within }
    }

    /// Gives the stream back, which then waits for as long as it takes.
    pub(super) fn lift(self) -> io::Result<()> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.late()) } else { Ok(left) }
    }

    fn late(&self) -> io::Error {
        let within = self.within.as_secs_f32();
        io::Error::new(io::ErrorKind::TimedOut, format!("it took more than {within} s"))
    }

    /// Makes a call until it is not interrupted: with a timeout the kernel does not go on by itself
    /// when the process was stopped and continues (signal(7)).
    fn within<T>(
        &self,
        set: impl Fn(&TcpStream, Option<Duration>) -> io::Result<()>,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            set(self.stream, Some(self.left()?))?;
            match call() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(|e| self.worded(e)),
            }
        }
    }

    /// The error of a call whose timeout has run out, in words.
    fn worded(&self, e: io::Error) -> io::Error {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.late(),
            _ => e,
        }
    }
}

impl Read for Deadline<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.within(TcpStream::set_read_timeout, || stream.read(buf))
    }
}

impl Write for Deadline<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.within(TcpStream::set_write_timeout, || stream.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Do both ends mean this protocol?
pub(super) fn agreed(connection: &CommonState) -> Result<(), String> {
    match connection.alpn_protocol() {
        Some(ALPN) => Ok(()),
        _ => Err(format!("it does not name the protocol {}", String::from_utf8_lossy(ALPN))),
    }
}

/// The error of TLS that stands behind a failed handshake.
pub(super) fn cause(e: &io::Error) -> Option<&Error> {
    e.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Why a handshake failed, where that is not a question of keys.
pub(super) fn reason(e: &io::Error) -> String {
    let Some(cause) = cause(e) else {
        return match e.kind() {
            io::ErrorKind::UnexpectedEof => "the other side ended the handshake".into(),
            _ => e.to_string(),
        };
    };
    match cause {
        Error::InvalidMessage(what) => format!("it does not speak TLS: {what:?}"),
        Error::PeerIncompatible(what) => match what {
            PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
                "it does not speak TLS 1.3".into()
            }
            PeerIncompatible::IncorrectCertificateTypeExtension
            | PeerIncompatible::UnsolicitedCertificateTypeExtension => {
                "it does not speak of raw public keys (RFC 7250)".into()
            }
            other => format!("it speaks TLS in another way: {other:?}"),
        },
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it does not speak TLS 1.3".into()
        }
        // What a peer says that knows certificates alone.
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the other side ended the handshake; it may not speak of raw public keys (RFC 7250)"
                .into()
        }
        Error::AlertReceived(what) => format!("the other side ended the handshake: {what:?}"),
        Error::NoApplicationProtocol => {
            format!("it does not name the protocol {}", String::from_utf8_lossy(ALPN))
        }
        Error::NoCertificatesPresented => "it has no key".into(),
        other => format!("the handshake failed: {other}"),
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
