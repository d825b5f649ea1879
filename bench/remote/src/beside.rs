//! A directory of another file system, which a figure works in as well.

use std::path::PathBuf;

/// `NAME=DIR`, or `NAME=DIR=RATIO`.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// For people.
    pub name: String,
    /// An empty directory.
    pub dir: PathBuf,
    /// How many times its rate a remote mount is to have.
    pub target: Option<f64>,
}

impl std::str::FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('=');
        let (name, dir) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let target = parts.next().map(str::parse).transpose();
        match (target, parts.next()) {
            (Ok(target), None) if !name.is_empty() && !dir.is_empty() => {
                Ok(Self { name: name.into(), dir: dir.into(), target })
            }
            _ => Err("not NAME=DIR, with =RATIO after it or without".into()),
        }
    }
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
