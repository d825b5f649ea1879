//! Public keys, the lines that people copy, and fingerprints.

use base64ct::{Base64, Base64Unpadded, Encoding};
use std::fmt;
use std::str::FromStr;

/// The first word of a public line, and the only kind of key there is.
pub const KEY_TYPE: &str = "siftfs-ed25519";
/// Bytes of a public key.
const LEN: usize = 32;
/// Longest comment, in bytes.
pub(crate) const MOST_COMMENT: usize = 256;
/// What comes before the fingerprint's Base64.
const HASH: &str = "SHA256:";
/// What comes before the key in its SubjectPublicKeyInfo (RFC 8410).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The public half of an Ed25519 key pair. [`fmt::Display`] and [`FromStr`] are its Base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; LEN]);

impl PublicKey {
    /// The key of these bytes (RFC 8032).
    pub(crate) fn new(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// The key in a SubjectPublicKeyInfo, as TLS carries it; `None` if it is another kind of key.
    pub(crate) fn from_spki(der: &[u8]) -> Option<Self> {
        Some(Self(der.strip_prefix(&SPKI)?.try_into().ok()?))
    }

    /// The key's SubjectPublicKeyInfo.
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [SPKI.as_slice(), &self.0].concat()
    }

    /// What people compare.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.0);
        Fingerprint(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// The public line with `comment`, which may be empty.
    pub fn line(&self, comment: &str) -> String {
        format!("{KEY_TYPE} {self} {comment}").trim_end().to_string()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64::encode_string(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = String;

    /// Takes the one way to write the key: 44 characters of Base64 with padding.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; LEN];
        let whole = Base64::decode(text, &mut bytes).is_ok_and(|b| b.len() == LEN);
        // The decoder takes the one way to write bytes alone.
        match whole {
            true => Ok(Self(bytes)),
            false => Err(format!("the key `{}` is not the Base64 of 32 bytes", shortened(text))),
        }
    }
}

/// The SHA-256 of a public key. [`fmt::Display`] and [`FromStr`] are `SHA256:` and its Base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; LEN]);

impl Fingerprint {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

/// What a number that somebody says is among those of all, by whose it is: a key's fingerprint, or
/// something else that is the peer's alone. Nobody else finds one that comes to the same.
pub fn own_number(whose: &[u8; LEN], said: u64) -> u64 {
    let both = [&whose[..], &said.to_le_bytes()].concat();
    let digest = ring::digest::digest(&ring::digest::SHA256, &both);
    let first = digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
    u64::from_le_bytes(*first).max(1)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HASH}{}", Base64Unpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not {HASH} and 43 characters", shortened(text));
        let mut bytes = [0; LEN];
        let base64 = text.strip_prefix(HASH).ok_or_else(wrong)?;
        let whole = Base64Unpadded::decode(base64, &mut bytes).is_ok_and(|b| b.len() == LEN);
        if whole { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

/// A public line: a key, and what its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicLine {
    /// The key.
    pub key: PublicKey,
    /// Text without control characters, at most 256 bytes; may be empty.
    pub comment: String,
}

impl FromStr for PublicLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (kind, rest) = word(line);
        if kind != KEY_TYPE {
            return Err(format!("`{}` is not {KEY_TYPE}", shortened(kind)));
        }
        let (key, rest) = word(rest);
        if key.is_empty() {
            return Err(format!("no key follows {KEY_TYPE}"));
        }
        Ok(Self { key: key.parse()?, comment: comment(rest)? })
    }
}

/// Checks a comment, and takes the spaces at its ends away.
///
/// # Errors
/// It is too long, or has control characters.
pub(crate) fn comment(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.len() > MOST_COMMENT {
        return Err(format!("the comment has {} bytes, and may have {MOST_COMMENT}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("the comment has a control character".into());
    }
    Ok(text.to_string())
}

/// The first word of a line, and the rest.
pub(crate) fn word(line: &str) -> (&str, &str) {
    let line = line.trim_start_matches([' ', '\t']);
    line.split_once([' ', '\t']).unwrap_or((line, ""))
}

/// At most 64 characters of a text that may be anything, for a message.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        short += "...";
    }
    short
}

#[cfg(test)]
#[path = "public_tests.rs"]
mod tests;
