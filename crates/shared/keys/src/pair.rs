//! Key pairs and their files.

use crate::files::{self, Guard};
use crate::public::{PublicKey, PublicLine, comment};
use pem_rfc7468::LineEnding;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use siftfs_base::{Error, Result};
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// Longest file, in bytes. A key of ours has some 300.
const MOST_BYTES: u64 = 16 << 10;
/// Mode of the file.
const MODE: u32 = 0o600;
/// What comes before the 32 secret bytes in PKCS#8 (RFC 8410), as openssl(1) writes it.
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The PEM's label.
const LABEL: &str = "PRIVATE KEY";
const BEGIN: &str = "-----BEGIN ";

/// An Ed25519 key pair with a comment. The secret half is overwritten when it is dropped, and
/// never printed.
pub struct KeyPair {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
    comment: String,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.line())
    }
}

impl KeyPair {
    /// A new pair, from the kernel's random numbers.
    ///
    /// # Errors
    /// The comment is no comment, or the kernel has no random numbers.
    pub fn generate(text: &str) -> Result<Self> {
        let comment = comment(text).map_err(Error::Refused)?;
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut_slice())
            .map_err(|e| Error::Refused(format!("no random numbers for a key: {e}")))?;
        let pkcs8 = Zeroizing::new([PKCS8.as_slice(), secret.as_slice()].concat());
        Self::of(pkcs8, comment).map_err(Error::Refused)
    }

    /// Reads the pair from its file.
    ///
    /// # Errors
    /// A message that names the file: it is missing, others may use it, or it is not such a key.
    pub fn load(path: &Path) -> Result<Self> {
        let file = files::read(path, Guard::Secret, MOST_BYTES)?;
        let refuse = |what| Error::Refused(format!("{}: {what}", path.display()));
        Self::parse(&file.text).map_err(refuse)
    }

    /// Writes the pair to a new file that its owner alone may use. Durable when it returns.
    ///
    /// # Errors
    /// A message that names the file: it cannot be written, or is there already.
    pub fn save(&self, path: &Path) -> Result<()> {
        let pem = pem_rfc7468::encode_string(LABEL, LineEnding::LF, &self.pkcs8);
        let pem = Zeroizing::new(pem.expect("the label is one, and 48 bytes are not too many"));
        let text = Zeroizing::new(format!("{}\n{}", self.line(), *pem));
        files::create(path, MODE, &text)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// What its owner calls it.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// The public line.
    pub fn line(&self) -> String {
        self.public.line(&self.comment)
    }

    /// The pair in PKCS#8.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    fn of(pkcs8: Zeroizing<Vec<u8>>, comment: String) -> std::result::Result<Self, String> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8)
            .map_err(|e| format!("not an Ed25519 key in PKCS#8: {e}"))?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| "not 32 bytes")?;
        Ok(Self { pkcs8, public: PublicKey::new(public), comment })
    }

    /// Reads the pair from the text of its file.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let at =
            text.find(BEGIN).ok_or("not a private key in PEM; make one with `siftfs key new`")?;
        let (before, pem) = text.split_at(at);
        let (label, pkcs8) = pem_rfc7468::decode_vec(pem.as_bytes())
            .map_err(|e| format!("not a private key in PEM: {e}"))?;
        let pkcs8 = Zeroizing::new(pkcs8);
        match label {
            LABEL => {}
            "ENCRYPTED PRIVATE KEY" => {
                return Err("it needs a passphrase, for which nobody can be asked".into());
            }
            other => return Err(format!("it holds `{other}`, and not `{LABEL}`")),
        }
        let told: Option<PublicLine> = match before.trim() {
            "" => None,
            line => Some(line.parse().map_err(|e| format!("before the key: {e}"))?),
        };
        let said = told.as_ref().map(|line| line.key);
        let pair = Self::of(pkcs8, told.map(|line| line.comment).unwrap_or_default())?;
        match said.is_none_or(|key| key == pair.public) {
            true => Ok(pair),
            false => Err("the public line before the key is another key's".into()),
        }
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
