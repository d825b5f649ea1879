//! What both ends have in common: cryptography, the own key, and the proof of the other one's.

use crate::pair::KeyPair;
use crate::public::PublicKey;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as cryptography};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme,
    SupportedProtocolVersion,
};
use siftfs_base::{Error as Refusal, Result};
use std::sync::Arc;

/// The protocol that both ends must name in the handshake (RFC 7301).
pub const ALPN: &[u8] = b"siftfs/1";

/// The one version that is spoken.
pub(super) const VERSIONS: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// The byte that a server sends once it has admitted the client's key.
pub(super) const WELCOME: u8 = 1;

/// The cryptography of `ring`, with one key exchange.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let exchanges = vec![cryptography::kx_group::X25519];
    Arc::new(CryptoProvider { kx_groups: exchanges, ..cryptography::default_provider() })
}

/// The own key as TLS presents it.
pub(super) fn presented(pair: &KeyPair) -> Result<Arc<CertifiedKey>> {
    let pkcs8 = PrivatePkcs8KeyDer::from(pair.pkcs8());
    let signing = cryptography::sign::any_eddsa_type(&pkcs8)
        .map_err(|e| Refusal::Refused(format!("the key cannot sign: {e}")))?;
    let public = CertificateDer::from(pair.public().to_spki());
    Ok(Arc::new(CertifiedKey::new(vec![public], signing)))
}

/// The key that the other end presents.
pub(super) fn key_of(presented: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> KeyResult {
    match PublicKey::from_spki(presented).filter(|_| more.is_empty()) {
        Some(key) => Ok(key),
        None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
    }
}

pub(super) type KeyResult = std::result::Result<PublicKey, Error>;
pub(super) type Proof = std::result::Result<rustls::client::danger::HandshakeSignatureValid, Error>;

/// Checks that the other end has the private half of the key that it presents.
pub(super) fn prove(
    message: &[u8],
    presented: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Proof {
    if signed.scheme != SignatureScheme::ED25519 {
        return Err(PeerIncompatible::NoSignatureSchemesInCommon.into());
    }
    let public = SubjectPublicKeyInfoDer::from(presented.as_ref());
    rustls::crypto::verify_tls13_signature_with_raw_key(message, &public, signed, &algorithms())
}

/// TLS 1.2 is not spoken, so nothing is to be proved in it.
pub(super) fn no_proof() -> Proof {
    Err(Error::General("it proves its key as TLS 1.2 does".into()))
}

/// The one way to sign.
pub(super) fn schemes() -> Vec<SignatureScheme> {
    vec![SignatureScheme::ED25519]
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    cryptography::default_provider().signature_verification_algorithms
}
