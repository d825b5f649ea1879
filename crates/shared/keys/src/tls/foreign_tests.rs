//! Peers that speak TLS in another way.

use super::*;
use crate::tls::link::reason;
use crate::tls::setup;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring as cryptography;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

/// Believes everything, and knows certificates or raw keys.
#[derive(Debug)]
struct Credulous {
    raw: bool,
}

type Verified = Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error>;

fn any_scheme() -> Vec<SignatureScheme> {
    cryptography::default_provider().signature_verification_algorithms.supported_schemes()
}

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        any_scheme()
    }
    fn requires_raw_public_keys(&self) -> bool {
        self.raw
    }
}

impl ClientCertVerifier for Credulous {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        any_scheme()
    }
    fn requires_raw_public_keys(&self) -> bool {
        self.raw
    }
}

/// What a foreign peer does.
struct Ways {
    version: &'static SupportedProtocolVersion,
    /// Raw public keys, and not certificates.
    raw: bool,
    alpn: &'static [&'static [u8]],
    /// It presents this public key, and signs with this pair's.
    key: Option<(crate::public::PublicKey, KeyPair)>,
}

impl Ways {
    fn of(site: &Site) -> Self {
        let pair = KeyPair::load(&saved(site)).unwrap();
        let key = Some((pair.public(), pair));
        Self { version: &rustls::version::TLS13, raw: true, alpn: &[ALPN], key }
    }

    fn certified(&self) -> Option<Arc<CertifiedKey>> {
        let (public, pair) = self.key.as_ref()?;
        let signing = setup::presented(pair).unwrap().key.clone();
        Some(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_spki())], signing)))
    }

    fn alpn(&self) -> Vec<Vec<u8>> {
        self.alpn.iter().map(|name| name.to_vec()).collect()
    }

    fn client(&self) -> ClientConnection {
        let config =
            ClientConfig::builder_with_provider(Arc::new(cryptography::default_provider()))
                .with_protocol_versions(&[self.version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Credulous { raw: self.raw }));
        let mut config = match self.certified() {
            Some(key) if self.raw => config.with_client_cert_resolver(Arc::new(
                rustls::client::AlwaysResolvesClientRawPublicKeys::new(key),
            )),
            _ => config.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn();
        ClientConnection::new(Arc::new(config), "a.example".try_into().unwrap()).unwrap()
    }

    fn server(&self) -> ServerConnection {
        let key = self.certified().expect("a server has a key");
        let config =
            ServerConfig::builder_with_provider(Arc::new(cryptography::default_provider()))
                .with_protocol_versions(&[self.version])
                .unwrap()
                .with_client_cert_verifier(Arc::new(Credulous { raw: self.raw }));
        let mut config = match self.raw {
            true => config.with_cert_resolver(Arc::new(
                rustls::server::AlwaysResolvesServerRawPublicKeys::new(key),
            )),
            false => config.with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key))),
        };
        config.alpn_protocols = self.alpn();
        ServerConnection::new(Arc::new(config)).unwrap()
    }

    /// Meets our server; what that says, and the key that it admitted.
    fn meet_server(&self, site: &Site) -> Result<Peer, String> {
        let (config, server_check) = site.server.fresh().unwrap();
        let server = ServerConnection::new(config).unwrap();
        let (_, client_check) = site.client().fresh(None).unwrap();
        let tls = site.client();
        let client = self.client();
        let mut meeting =
            Meeting { tls, client, client_check, server, server_check, errors: [None, None] };
        meeting.talk(|_, bytes| bytes);
        match meeting.errors[1].clone() {
            Some(e) => Err(said(e)),
            None if meeting.server.is_handshaking() => Err("it never ends".into()),
            None => {
                crate::tls::link::agreed(&meeting.server)?;
                meeting.server_check.peer().ok_or("no key".into())
            }
        }
    }

    /// Meets our client; what that says.
    fn meet_client(&self, site: &Site) -> Result<(), String> {
        let tls = site.client();
        let (client, client_check) = tls.fresh(Some(site.known())).unwrap();
        let (_, server_check) = site.server.fresh().unwrap();
        let server = self.server();
        let mut meeting =
            Meeting { tls, client, client_check, server, server_check, errors: [None, None] };
        meeting.talk(|_, bytes| bytes);
        match meeting.errors[0] {
            Some(_) => Err(meeting.client_says()),
            None if meeting.client.is_handshaking() => Err("it never ends".into()),
            None => crate::tls::link::agreed(&meeting.client),
        }
    }
}

fn said(e: rustls::Error) -> String {
    reason(&std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}

/// The site's client's key in a file, since a pair cannot be copied.
fn saved(site: &Site) -> PathBuf {
    let path = site.dir.path().join("client-key");
    if !path.exists() {
        site.client_key.save(&path).unwrap();
    }
    path
}

fn saved_server(site: &Site) -> (crate::public::PublicKey, KeyPair) {
    let path = site.dir.path().join("server-key");
    if !path.exists() {
        site.server_key.save(&path).unwrap();
    }
    let pair = KeyPair::load(&path).unwrap();
    (pair.public(), pair)
}

#[test]
fn foreign_clients() {
    let site = Site::new();
    let usual = Ways::of(&site);
    assert_eq!(usual.meet_server(&site).unwrap().line.key, site.client_key.public());
    let stranger = KeyPair::generate("").unwrap();
    let thief = Some((site.client_key.public(), stranger));
    for (ways, what) in [
        (Ways { version: &rustls::version::TLS12, ..Ways::of(&site) }, "does not speak TLS 1.3"),
        (Ways { raw: false, ..Ways::of(&site) }, "raw public keys"),
        (Ways { key: None, ..Ways::of(&site) }, "key"),
        (Ways { alpn: &[b"h2"], ..Ways::of(&site) }, "the protocol siftfs/1"),
        (Ways { alpn: &[], ..Ways::of(&site) }, "the protocol siftfs/1"),
        (Ways { key: thief, ..Ways::of(&site) }, "BadSignature"),
    ] {
        let refused = ways.meet_server(&site).unwrap_err();
        assert!(refused.contains(what), "{what}: {refused}");
        println!("{refused}");
    }
}

#[test]
fn foreign_servers() {
    let site = Site::new();
    let usual = || Ways { key: Some(saved_server(&site)), ..Ways::of(&site) };
    assert_eq!(usual().meet_client(&site), Ok(()));
    let stranger = KeyPair::generate("").unwrap();
    let thief = Some((site.server_key.public(), stranger));
    for (ways, what) in [
        (Ways { version: &rustls::version::TLS12, ..usual() }, "does not speak TLS 1.3"),
        (Ways { raw: false, ..usual() }, "raw public keys"),
        (Ways { alpn: &[b"h2"], ..usual() }, "NoApplicationProtocol"),
        (Ways { alpn: &[], ..usual() }, "the protocol siftfs/1"),
        (Ways { key: thief, ..usual() }, "BadSignature"),
    ] {
        let refused = ways.meet_client(&site).unwrap_err();
        assert!(refused.contains(what), "{what}: {refused}");
        println!("{refused}");
    }
}
