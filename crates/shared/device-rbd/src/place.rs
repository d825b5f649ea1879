//! How an image is named, and how it is opened.

use siftfs_base::{Error, Result};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the name of an image begins with.
const SCHEME: &[u8] = b"rbd:";
/// Longest name of a pool, a namespace or an image, in bytes.
const MAX_NAME: usize = 255;

/// An image: `rbd:POOL/IMAGE[@CONF]`, or `rbd:POOL/NAMESPACE/IMAGE[@CONF]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RbdPlace {
    /// The pool.
    pub pool: String,
    /// The namespace in the pool; `None`: the pool's own.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// The cluster's configuration; `None`: what the environment's `CEPH_CONF` names, or Ceph's
    /// usual places.
    pub conf: Option<PathBuf>,
}

/// A pool, or a namespace of one, whose images are meant: `rbd:POOL/[@CONF]`, or
/// `rbd:POOL/NAMESPACE/[@CONF]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RbdPool {
    /// The pool's place, with an empty name of an image.
    pub(crate) place: RbdPlace,
}

/// What an image is opened for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// To write, as the one process that may. An owner that the cluster, or this machine's kernel,
    /// knows to be dead is fenced first; one that lives is not touched.
    Alone,
    /// As [`Access::Alone`], but an owner that lives is fenced as well: an administrator says that
    /// this process takes over.
    TakeOver(Whom),
    /// To read, beside others that read.
    ReadOnly,
}

/// Of which owner an administrator says that another process takes over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whom {
    /// Of any.
    Anybody,
    /// Of the one that is described so, and of no other that has the image by now.
    Described(String),
}

impl Whom {
    /// Is this owner meant?
    pub fn is_meant(&self, described: &str) -> bool {
        match self {
            Self::Anybody => true,
            Self::Described(whom) => whom == described,
        }
    }
}

/// Who has an image, as one sees it that has not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody.
    Free,
    /// One of which the cluster, or this machine's kernel, says that it is dead; as it describes
    /// itself. It may still live on this machine, where the cluster has given it up.
    Dead(String),
    /// One that lives.
    Had(Had),
}

/// An owner of an image that lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Had {
    /// By which the cluster knows it.
    pub address: String,
    /// As it describes itself.
    pub whose: String,
}

/// What an administrator has said to those that wait for an image.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Words {
    /// The owner that is to give it up in order, as it describes itself.
    pub hand_over: Option<String>,
    /// The owner that is to be taken for dead, as it describes itself.
    pub take_over: Option<String>,
}

impl RbdPlace {
    /// The image that `name` names; `None` for what does not begin with `rbd:`.
    ///
    /// # Errors
    /// Refused if it names no pool or no image, or what cannot be the name of one.
    pub fn parse(name: &Path) -> Option<Result<Self>> {
        let (image, conf) = split(name)?;
        Some(Self::of(image, conf).ok_or_else(|| {
            let name = name.display();
            Error::Refused(format!("{name}: an image is named rbd:POOL/IMAGE[@CONF]"))
        }))
    }

    fn of(image: &[u8], conf: Option<&[u8]>) -> Option<Self> {
        let mut parts = std::str::from_utf8(image).ok()?.split('/');
        let names: Vec<_> = parts.by_ref().take(3).map(str::to_owned).collect();
        if parts.next().is_some()
            || !names.iter().all(|name| fits(name))
            || conf.is_some_and(<[u8]>::is_empty)
        {
            return None;
        }
        let conf = conf.map(|conf| PathBuf::from(OsStr::from_bytes(conf)));
        let (pool, namespace, image) = match <[String; 3]>::try_from(names) {
            Ok([pool, namespace, image]) => (pool, Some(namespace), image),
            Err(names) => {
                let [pool, image] = <[String; 2]>::try_from(names).ok()?;
                (pool, None, image)
            }
        };
        Some(Self { pool, namespace, image, conf })
    }

    /// The pool or the namespace that it is in.
    pub fn pool(&self) -> RbdPool {
        RbdPool { place: Self { image: String::new(), ..self.clone() } }
    }

    /// The same image, by a name that holds in every directory.
    ///
    /// # Errors
    /// The working directory is not known.
    pub fn absolute(mut self) -> std::io::Result<Self> {
        self.conf = self.conf.map(std::path::absolute).transpose()?;
        Ok(self)
    }

    /// Do both name one image? The cluster's configuration is not looked into: two files may
    /// describe one cluster.
    pub fn is_same_image(&self, other: &Self) -> bool {
        (&self.pool, &self.namespace, &self.image) == (&other.pool, &other.namespace, &other.image)
    }
}

impl fmt::Display for RbdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.image)?;
        if let Some(conf) = &self.conf {
            write!(f, "@{}", conf.display())?;
        }
        Ok(())
    }
}

impl RbdPool {
    /// The pool that `name` names; `None` for what does not begin with `rbd:`, or names an image.
    ///
    /// # Errors
    /// Refused if it names no pool, or what cannot be the name of one.
    pub fn parse(name: &Path) -> Option<Result<Self>> {
        let (pool, conf) = split(name)?;
        if !pool.ends_with(b"/") {
            return None;
        }
        // A pool's name is that of any image of it, without the image.
        let of_image = RbdPlace::of(&[pool, b"x"].concat(), conf);
        Some(match of_image {
            Some(place) => Ok(Self { place: RbdPlace { image: String::new(), ..place } }),
            None => {
                let name = name.display();
                Err(Error::Refused(format!("{name}: a pool's images are named rbd:POOL/[@CONF]")))
            }
        })
    }

    /// The image of the pool that is called so.
    ///
    /// # Errors
    /// Refused if no image of a pool can be: the name is long, has a slash, an `@` or a control
    /// character, or is empty.
    pub fn image(&self, name: &str) -> Result<RbdPlace> {
        if !fits(name) || name.contains(['/', '@']) {
            return Err(Error::Refused(format!("{name:?}: no image is called so")));
        }
        Ok(RbdPlace { image: name.to_owned(), ..self.place.clone() })
    }

    /// The same pool, by a name that holds in every directory.
    ///
    /// # Errors
    /// The working directory is not known.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(Self { place: self.place.absolute()? })
    }
}

impl fmt::Display for RbdPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// What stands behind the scheme, and the configuration; `None` for what does not begin with
/// `rbd:`.
fn split(name: &Path) -> Option<(&[u8], Option<&[u8]>)> {
    let rest = name.as_os_str().as_bytes().strip_prefix(SCHEME)?;
    Some(match rest.iter().position(|byte| *byte == b'@') {
        Some(at) => (rest.get(..at)?, Some(rest.get(at + 1..)?)),
        None => (rest, None),
    })
}

/// Can a pool, a namespace or an image be called so?
fn fits(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Does this name an image, if perhaps one that cannot be?
pub fn is_rbd(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(SCHEME)
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
