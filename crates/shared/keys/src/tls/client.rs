//! The client's end: which key the server must have.

use super::link::{Deadline, agreed, cause, reason};
use super::setup::{self, ALPN, Proof, WELCOME};
use crate::known::Expect;
use crate::pair::KeyPair;
use crate::public::{Fingerprint, PublicKey};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::{CertificateDer, IpAddr, Ipv4Addr, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error as TlsError, SignatureScheme,
};
use siftfs_base::{Error, Result};
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A client's side of TLS.
#[derive(Debug)]
pub struct ClientTls {
    key: Arc<CertifiedKey>,
    /// The client's public line, for messages.
    line: String,
    own: Fingerprint,
}

impl ClientTls {
    /// The side of a client that has this key.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn new(pair: &KeyPair) -> Result<Self> {
        let own = pair.public().fingerprint();
        Ok(Self { key: setup::presented(pair)?, line: pair.line(), own })
    }

    /// Connects: the handshake, the check of the server's key, and the server's welcome, with which
    /// it has admitted this client's key. Gives the connection, over which the protocol follows.
    /// The stream is in blocking mode, and has no timeouts afterwards.
    ///
    /// # Errors
    /// [`Error::Refused`]: the server's key is another one, or the server does not admit this
    /// client's. [`Error::Link`]: any other failure, a silence that lasts longer than `within`
    /// among them.
    pub fn connect(
        &self,
        expect: &Expect,
        stream: &TcpStream,
        within: Duration,
    ) -> Result<ClientConnection> {
        let (mut connection, check) = self.fresh(Some(expect.clone()))?;
        let address = expect.address();
        let mut link = Deadline::new(stream, within);
        let done = finish(&mut connection, &mut link);
        let welcome = done.and_then(|()| welcome(&mut connection, &mut link));
        let welcome = welcome.map_err(|e| self.explain(address, &e, &check))?;
        let failed = |what| Error::Link(format!("{address}: {what}"));
        agreed(&connection).map_err(failed)?;
        if welcome != WELCOME {
            return Err(failed(format!("it welcomes with {welcome}, and not with {WELCOME}")));
        }
        link.lift().map_err(|e| failed(e.to_string()))?;
        Ok(connection)
    }

    /// The key that the server of `address` proves to have. The connection ends with that: the
    /// client has not shown its own key.
    ///
    /// # Errors
    /// [`Error::Link`]: the server proves none within `within`.
    pub fn server_key(
        &self,
        address: &str,
        stream: &TcpStream,
        within: Duration,
    ) -> Result<PublicKey> {
        let (mut connection, check) = self.fresh(None)?;
        let mut link = Deadline::new(stream, within);
        let ended = finish(&mut connection, &mut link);
        match (check.proved(), ended) {
            (Some(key), _) => Ok(key),
            (None, Err(e)) => Err(self.explain(address, &e, &check)),
            (None, Ok(())) => Err(Error::Link(format!("{address}: the server has no key"))),
        }
    }

    /// A connection that has not begun, and what its check finds out.
    pub(super) fn fresh(&self, expect: Option<Expect>) -> Result<(ClientConnection, Arc<Check>)> {
        let check = Arc::new(Check { expect, found: Mutex::new(Found::default()) });
        let key = AlwaysResolvesClientRawPublicKeys::new(self.key.clone());
        let unable = |e| Error::Refused(format!("this build cannot speak TLS 1.3: {e}"));
        let mut config = ClientConfig::builder_with_provider(setup::provider())
            .with_protocol_versions(&setup::VERSIONS)
            .map_err(unable)?
            .dangerous()
            .with_custom_certificate_verifier(check.clone())
            .with_client_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.enable_sni = false;
        // A name is asked for and not used: keys say which server it is.
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4])));
        let connection = ClientConnection::new(Arc::new(config), name).map_err(unable)?;
        Ok((connection, check))
    }

    /// Why a connection failed.
    pub(super) fn explain(&self, address: &str, e: &io::Error, check: &Check) -> Error {
        if let Some(refusal) = check.refusal() {
            return Error::Refused(refusal);
        }
        match cause(e) {
            Some(TlsError::AlertReceived(AlertDescription::AccessDenied)) => {
                Error::Refused(format!(
                    "{address}: the server does not admit the key {} of this client. Its log says \
                     why; a line like this in its `authorized` file admits it: role=client {}",
                    self.own, self.line
                ))
            }
            _ => Error::Link(format!("{address}: {}", reason(e))),
        }
    }
}

/// Reads and writes until the handshake is over.
fn finish(connection: &mut ClientConnection, link: &mut Deadline<'_>) -> io::Result<()> {
    while connection.is_handshaking() {
        connection.complete_io(link)?;
    }
    Ok(())
}

/// Reads the first byte that the server sends.
fn welcome(connection: &mut ClientConnection, link: &mut Deadline<'_>) -> io::Result<u8> {
    let mut byte = [0];
    loop {
        match connection.reader().read(&mut byte) {
            Ok(1) => {
                let [byte] = byte;
                return Ok(byte);
            }
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if connection.read_tls(link)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        connection
            .process_new_packets()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    }
}

/// What a connection's check has found out.
#[derive(Debug, Default)]
struct Found {
    presented: Option<PublicKey>,
    proved: Option<PublicKey>,
    refusal: Option<String>,
}

/// The check of one connection.
#[derive(Debug)]
pub(super) struct Check {
    /// `None`: the key is wanted, and no connection.
    expect: Option<Expect>,
    found: Mutex<Found>,
}

impl Check {
    /// The key of which the server has the private half.
    fn proved(&self) -> Option<PublicKey> {
        self.found().proved
    }

    /// Why the server's key was refused, if it was.
    fn refusal(&self) -> Option<String> {
        self.found().refusal.clone()
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, TlsError> {
        let key = setup::key_of(presented, more)?;
        let mut found = self.found();
        found.presented = Some(key);
        found.refusal = self.expect.as_ref().and_then(|expect| expect.contradict(&key));
        match found.refusal {
            None => Ok(ServerCertVerified::assertion()),
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
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
        let valid = setup::prove(message, presented, signed)?;
        let mut found = self.found();
        found.proved = found.presented;
        match self.expect {
            Some(_) => Ok(valid),
            // That was all that was wanted.
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        setup::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
