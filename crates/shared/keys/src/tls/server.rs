//! The server's end: which keys are admitted.

use super::link::{Deadline, agreed, reason};
use super::setup::{self, ALPN, KeyResult, Proof, WELCOME};
use crate::authorized::{AuthorizedFile, AuthorizedLine};
use crate::pair::KeyPair;
use crate::public::PublicKey;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, ServerConfig,
    ServerConnection, SignatureScheme,
};
use siftfs_base::{Error, Result};
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose key the other end of a connection has.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The line that admitted the key, as it was when the connection began.
    pub line: Arc<AuthorizedLine>,
}

/// A server's side of TLS.
#[derive(Debug)]
pub struct ServerTls {
    key: Arc<CertifiedKey>,
    authorized: AuthorizedFile,
    /// Connections that were refused because of their keys.
    refused: AtomicU64,
}

impl ServerTls {
    /// The side of a server that has this key, and admits those of the file `authorized`, as it is
    /// at each connection.
    ///
    /// # Errors
    /// A message: the file cannot be read whole now.
    pub fn new(pair: &KeyPair, authorized: &Path) -> Result<Arc<Self>> {
        let authorized = AuthorizedFile::new(authorized);
        authorized.current()?;
        let refused = AtomicU64::new(0);
        Ok(Arc::new(Self { key: setup::presented(pair)?, authorized, refused }))
    }

    /// Takes a connection: the handshake, the look at the client's key, and the welcome. Gives the
    /// connection, over which the protocol follows, and whose key it was. The stream is in blocking
    /// mode, and has no timeouts afterwards. The caller logs a refusal.
    ///
    /// # Errors
    /// [`Error::Refused`]: the key is not admitted. [`Error::Link`]: any other failure, a silence
    /// that lasts longer than `within` among them.
    pub fn accept(
        self: &Arc<Self>,
        stream: &TcpStream,
        within: Duration,
    ) -> Result<(ServerConnection, Peer)> {
        let (config, check) = self.fresh()?;
        let failed = |what| Error::Link(format!("a client's handshake: {what}"));
        let mut connection =
            ServerConnection::new(config).map_err(|e| failed(format!("cannot begin: {e}")))?;
        let mut link = Deadline::new(stream, within);
        if let Err(e) = finish(&mut connection, &mut link) {
            return Err(check.refusal().unwrap_or_else(|| failed(reason(&e))));
        }
        agreed(&connection).map_err(failed)?;
        let peer = check.peer().ok_or_else(|| failed("it has no key".into()))?;
        let welcomed = connection.writer().write_all(&[WELCOME]);
        let welcomed = welcomed.and_then(|()| flush(&mut connection, &mut link));
        welcomed.and_then(|()| link.lift()).map_err(|e| failed(reason(&e)))?;
        Ok((connection, peer))
    }

    /// How many connections were refused because of their keys.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The configuration of one connection, and what its check finds out.
    pub(super) fn fresh(self: &Arc<Self>) -> Result<(Arc<ServerConfig>, Arc<Check>)> {
        let check = Arc::new(Check { tls: self.clone(), found: Mutex::new(Found::Nothing) });
        let key = AlwaysResolvesServerRawPublicKeys::new(self.key.clone());
        let mut config = ServerConfig::builder_with_provider(setup::provider())
            .with_protocol_versions(&setup::VERSIONS)
            .map_err(|e| Error::Refused(format!("this build cannot speak TLS 1.3: {e}")))?
            .with_client_cert_verifier(check.clone())
            .with_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A session that is resumed would not be asked for its key again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok((Arc::new(config), check))
    }
}

/// Reads and writes until the handshake is over.
fn finish(connection: &mut ServerConnection, link: &mut Deadline<'_>) -> io::Result<()> {
    while connection.is_handshaking() {
        connection.complete_io(link)?;
    }
    Ok(())
}

/// Writes all that is to be written.
fn flush(connection: &mut ServerConnection, link: &mut Deadline<'_>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(link)?;
    }
    link.flush()
}

/// What a connection's check has found out.
#[derive(Debug)]
enum Found {
    Nothing,
    Admitted(Arc<AuthorizedLine>),
    Refused(Error),
}

/// The check of one connection.
#[derive(Debug)]
pub(super) struct Check {
    tls: Arc<ServerTls>,
    found: Mutex<Found>,
}

impl Check {
    /// Whose key it was, once the handshake is over.
    pub(super) fn peer(&self) -> Option<Peer> {
        match &*self.found() {
            Found::Admitted(line) => Some(Peer { line: line.clone() }),
            Found::Nothing | Found::Refused(_) => None,
        }
    }

    /// Why the key was refused, if it was.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &*self.found() {
            Found::Refused(e) => Some(e.clone()),
            Found::Nothing | Found::Admitted(_) => None,
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that admits the key now.
    fn admit(&self, key: &PublicKey) -> Result<Arc<AuthorizedLine>> {
        let (file, print) = (&self.tls.authorized, key.fingerprint());
        let authorized = file
            .current()
            .map_err(|e| Error::Refused(format!("the key {print} is refused, as all are: {e}")))?;
        authorized.lookup(key).ok_or_else(|| {
            let (file, line) = (file.path().display(), key.line(""));
            Error::Refused(format!(
                "the key {print} is refused: {file} does not list it. If you know whose it is, this \
                 line admits it: role=client {line}"
            ))
        })
    }
}

impl ClientCertVerifier for Check {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, TlsError> {
        let key: KeyResult = setup::key_of(presented, more);
        match self.admit(&key?) {
            Ok(line) => {
                *self.found() = Found::Admitted(line);
                Ok(ClientCertVerified::assertion())
            }
            Err(refusal) => {
                self.tls.refused.fetch_add(1, Ordering::Relaxed);
                *self.found() = Found::Refused(refusal);
                // The alert is `access_denied`.
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _presented: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Proof {
        setup::no_proof()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Proof {
        setup::prove(message, presented, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        setup::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
