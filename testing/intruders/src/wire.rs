//! A client's end of a connection, made by hand, so that it may send what no client would. All that
//! it receives is searched.

use rustls::{ClientConnection, StreamOwned};
use siftfs_base::{Error, SharedBlock, crc32c};
use siftfs_calls::{FileProtocol, FromServer, MAX_MESSAGE, ToServer, VERSION};
use siftfs_codec::frame::{FrameReader, Kind, Limits, Sealer, Source, Step, Took};
use siftfs_codec::{Encoded, Message, Protocol};
use siftfs_keys::{ClientTls, Expect};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a read or a write waits.
const MOMENT: Duration = Duration::from_millis(50);
/// How long a peer of this client may take to greet it, and to take what it is sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// What must never be received.
#[derive(Debug)]
pub struct Needle {
    bytes: Vec<u8>,
    found: AtomicU64,
    /// Bytes that were searched.
    searched: AtomicU64,
}

impl Needle {
    /// Searches for this text.
    pub fn new(text: &str) -> Self {
        let (found, searched) = Default::default();
        Self { bytes: text.as_bytes().to_vec(), found, searched }
    }

    /// How often it was found, and in how many bytes.
    pub fn found(&self) -> (u64, u64) {
        (self.found.load(Ordering::Relaxed), self.searched.load(Ordering::Relaxed))
    }

    /// Searches `bytes`, which come behind those of `before`.
    fn search(&self, before: &mut Vec<u8>, bytes: &[u8]) {
        self.searched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        before.extend_from_slice(bytes);
        let found = before.windows(self.bytes.len()).filter(|part| *part == self.bytes).count();
        self.found.fetch_add(found as u64, Ordering::Relaxed);
        let keep = before.len().min(self.bytes.len() - 1);
        before.drain(..before.len() - keep);
    }
}

/// How a client gets in.
#[derive(Clone)]
pub enum Door {
    /// By a unix socket, as the user of the calling thread.
    Unix(PathBuf),
    /// By TCP, with a key.
    Key {
        /// The port, on this machine.
        port: u16,
        /// The key.
        tls: Arc<ClientTls>,
        /// The server's.
        expect: Expect,
    },
}

enum Channel {
    Unix(UnixStream),
    Secret(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Door {
    /// A connection on which nothing was said yet.
    ///
    /// # Errors
    /// Nobody takes it.
    pub fn knock(&self) -> io::Result<Box<dyn Bare>> {
        Ok(match self {
            Door::Unix(path) => Box::new(UnixStream::connect(path)?),
            Door::Key { port, .. } => Box::new(TcpStream::connect(("127.0.0.1", *port))?),
        })
    }

    fn channel(&self) -> io::Result<Channel> {
        match self {
            Door::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(MOMENT))?;
                stream.set_write_timeout(Some(MOMENT))?;
                Ok(Channel::Unix(stream))
            }
            Door::Key { port, tls, expect } => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                let connected = tls.connect(expect, &stream, PATIENCE);
                let connection = connected.map_err(|e| io::Error::other(e.to_string()))?;
                stream.set_read_timeout(Some(MOMENT))?;
                stream.set_write_timeout(Some(MOMENT))?;
                Ok(Channel::Secret(Box::new(StreamOwned::new(connection, stream))))
            }
        }
    }
}

/// A connection without any greeting.
pub trait Bare: Write + Send {}
impl Bare for UnixStream {}
impl Bare for TcpStream {}

impl Channel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Unix(stream) => stream.read(into),
            Channel::Secret(stream) => stream.read(into),
        }
    }

    /// Sends all, as soon as the server takes it.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let wrote = match self {
                Channel::Unix(stream) => stream.write(bytes),
                Channel::Secret(stream) if bytes.is_empty() => stream.flush().map(|()| 0),
                Channel::Secret(stream) => stream.write(bytes),
            };
            match wrote {
                Ok(n) if n == bytes.len() && matches!(self, Channel::Unix(_)) => return Ok(()),
                Ok(0) if bytes.is_empty() => return Ok(()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if waits(&e) && begun.elapsed() < PATIENCE => {}
                Err(e) => return Err(e),
            }
        }
    }
}

fn waits(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What a connection gives, searched.
struct Searched<'a> {
    channel: &'a mut Channel,
    needle: &'a Needle,
    before: &'a mut Vec<u8>,
}

impl Source for Searched<'_> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> siftfs_base::Result<Took> {
        let Some(into) = into.iter_mut().find(|part| !part.is_empty()) else {
            return Ok(Took::Nothing);
        };
        match self.channel.read(into) {
            Ok(0) => Ok(Took::End),
            Ok(n) => {
                self.needle.search(self.before, &into[..n]);
                Ok(Took::Bytes(n))
            }
            Err(e) if waits(&e) => Ok(Took::Nothing),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(Took::End),
            Err(e) => Err(Error::Link(e.to_string())),
        }
    }
}

/// A client that has greeted its server, and opened nothing yet.
pub struct Wire {
    channel: Channel,
    needle: Arc<Needle>,
    before: Vec<u8>,
    sealer: Sealer,
    reader: FrameReader,
    /// The next number of each slot.
    pub numbers: [u64; 64],
}

/// A greeting of this version.
pub fn hello(version: u32) -> Vec<u8> {
    let mut hello = b"SiftLink".to_vec();
    for number in [version, version, FileProtocol::CALLER.number, 1000] {
        hello.extend(number.to_le_bytes());
    }
    for number in [0, MAX_MESSAGE, 0] {
        hello.extend(u64::to_le_bytes(number));
    }
    hello.extend([0; 4]);
    let crc = crc32c(&hello);
    hello.extend(crc.to_le_bytes());
    hello
}

/// That it agrees.
fn verdict() -> Vec<u8> {
    let mut verdict = b"SiftLink".to_vec();
    verdict.extend(1u32.to_le_bytes());
    verdict.extend([0; 4]);
    let crc = crc32c(&verdict);
    verdict.extend(crc.to_le_bytes());
    verdict
}

impl Wire {
    /// Connects, and greets.
    ///
    /// # Errors
    /// The server refuses, or is not there.
    pub fn greet(door: &Door, needle: &Arc<Needle>) -> io::Result<Self> {
        let channel = door.channel()?;
        let limits = Limits { version: VERSION, max_message: MAX_MESSAGE, slots: 0 };
        let sealer = Sealer::new(FileProtocol::CALLER, &limits);
        let reader = FrameReader::new(FileProtocol::SERVER, limits, "the server");
        let (needle, before, numbers) = (needle.clone(), Vec::new(), [0; 64]);
        let mut wire = Self { channel, needle, before, sealer, reader, numbers };
        wire.channel.write(&hello(VERSION))?;
        wire.take(hello(VERSION).len())?;
        wire.channel.write(&verdict())?;
        wire.take(verdict().len())?;
        Ok(wire)
    }

    /// Takes this many bytes.
    fn take(&mut self, len: usize) -> io::Result<()> {
        let (mut bytes, mut have, begun) = (vec![0; len], 0, Instant::now());
        while have < len {
            match self.channel.read(&mut bytes[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if waits(&e) && begun.elapsed() < PATIENCE => {}
                Err(e) => return Err(e),
            }
        }
        self.needle.search(&mut self.before, &bytes);
        Ok(())
    }

    /// Sends bytes that are no frame.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.channel.write(bytes)
    }

    /// A frame, as bytes: of a message that was encoded, and changed perhaps.
    pub fn frame(&mut self, mut head: Vec<u8>, blocks: &[SharedBlock]) -> Vec<u8> {
        let header = self.sealer.seal(Kind::Message, &mut head, &[], blocks);
        let blocks = blocks.iter().map(|block| &block[..]);
        [&header[..], &head].into_iter().chain(blocks).collect::<Vec<_>>().concat()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self, message: &ToServer) -> io::Result<()> {
        let encoded = message.encode().map_err(|e| io::Error::other(e.to_string()))?;
        let Encoded { head, blocks } = encoded;
        let frame = self.frame(head, &blocks);
        self.send_bytes(&frame)
    }

    /// What came within this time.
    ///
    /// # Errors
    /// The connection is over, or the server has sent what is no message.
    pub fn receive(&mut self, within: Duration) -> io::Result<Option<FromServer>> {
        let begun = Instant::now();
        loop {
            let Self { channel, needle, before, .. } = self;
            let mut source = Searched { channel, needle, before };
            match self.reader.advance(&mut source) {
                Ok(Step::Frame(frame)) if frame.kind == Kind::Message => {
                    let decoded = FromServer::decode(&frame.head, frame.inline);
                    let decoded = decoded.map_err(|e| io::Error::other(e.to_string()));
                    return decoded.map(Some);
                }
                Ok(Step::Frame(_)) => {}
                Ok(Step::Nothing { .. }) if begun.elapsed() >= within => return Ok(None),
                Ok(Step::Nothing { .. }) => {}
                Ok(Step::End { .. }) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(e) => return Err(io::Error::other(e.to_string())),
            }
        }
    }

    /// Searches all that comes until nothing does for so long, or the connection ends.
    pub fn drain(&mut self, quiet: Duration) {
        while let Ok(Some(_)) = self.receive(quiet) {}
    }
}
