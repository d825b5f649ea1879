//! Connections with keys, over TCP: what a caller shows, and what it expects of a server.

use crate::meeting::connect::connect_tcp;
use crate::{Address, TransportOptions};
use siftfs_base::{Error, Result};
use siftfs_keys::known::{self, Expect};
use siftfs_keys::{ClientTls, Fingerprint, KeyPair, PublicKey, paths};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How a caller reaches servers over TCP: its own key, and those of the servers that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// File of its own pair; none: the default place (`docs/design/keys.md`).
    pub key: Option<PathBuf>,
    /// File of known servers; none: the default place.
    pub known_servers: Option<PathBuf>,
    /// What the server's key must be, if that was told.
    pub fingerprint: Option<Fingerprint>,
    /// Neither side has a key, and everybody between the two can read and change what is said.
    pub insecure: bool,
}

/// What a caller shows to the server of one address, and which key that server must have.
#[derive(Clone, Debug)]
pub struct Secured {
    pub(crate) tls: Arc<ClientTls>,
    pub(crate) expect: Expect,
}

impl Trust {
    /// What to show to the server at `address`, and what to expect; nothing of a unix socket's, and
    /// of an insecure one. The key of a server that is not known yet is shown to `confirm`, if
    /// there is a person to ask, and is written down if that person says yes.
    ///
    /// # Errors
    /// A message: a file is missing or wrong, the server is not known, or its key is another one.
    pub fn secure(
        &self,
        address: &Address,
        options: &TransportOptions,
        confirm: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<Option<Secured>> {
        let Some((host, port)) = address.network() else { return Ok(None) };
        if self.insecure {
            return Ok(None);
        }
        let named = |given: &Option<PathBuf>, place: fn() -> Result<PathBuf>| {
            given.clone().map_or_else(place, Ok)
        };
        let key = named(&self.key, paths::key)?;
        let known_servers = named(&self.known_servers, paths::known_servers)?;
        let tls = ClientTls::new(&read_key(&key, address)?)?;
        let prove = || -> Result<PublicKey> {
            let stream = dial(host, port, options)
                .map_err(|e| Error::Link(format!("cannot connect to {address}: {e}")))?;
            tls.server_key(&address.to_string(), &stream, options.handshake)
        };
        // A server has one key at a port, whatever carries the frames.
        let name = address.to_string();
        let name = name.split_once(':').map_or(&*name, |(_, name)| name);
        let fingerprint = self.fingerprint.as_ref();
        let expect = known::expect(&known_servers, name, fingerprint, &prove, confirm)?;
        Ok(Some(Secured { tls: Arc::new(tls), expect }))
    }
}

fn read_key(file: &Path, address: &Address) -> Result<KeyPair> {
    match file.try_exists() {
        Ok(false) => Err(Error::Refused(format!(
            "{address} is reached with a key, and {} is missing: `siftfs key new` makes it, and its \
             public line goes into the server's `authorized` file (or say insecure, if only \
             trusted machines are between the two)",
            file.display()
        ))),
        _ => KeyPair::load(file),
    }
}

fn dial(host: &str, port: u16, options: &TransportOptions) -> std::io::Result<TcpStream> {
    let deadline = Instant::now() + options.dial.min(options.handshake);
    let stream = TcpStream::from(connect_tcp(host, port, deadline)?);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
