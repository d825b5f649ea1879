//! The keys of a host and a device process that reach each other over TCP.

use siftfs_keys::KeyPair;
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::path::PathBuf;

fn told(e: siftfs_base::Error) -> Failed {
    Failed(format!("keys: {e}"))
}

/// Their files.
pub struct Keys {
    device: PathBuf,
    host: PathBuf,
    authorized: PathBuf,
    known_servers: PathBuf,
}

impl Keys {
    /// Files that are not there yet.
    pub fn at(place: &Place) -> Self {
        let file = |name| place.path(name);
        Self {
            device: file("device.key"),
            host: file("host.key"),
            authorized: file("authorized"),
            known_servers: file("known_servers"),
        }
    }

    /// Makes both keys, and has the device process admit the host.
    pub fn make(&self) -> Result<()> {
        let make = |file, name: &str| -> siftfs_base::Result<KeyPair> {
            let pair = KeyPair::generate(name)?;
            pair.save(file)?;
            Ok(pair)
        };
        make(&self.device, "device").map_err(told)?;
        let host = make(&self.host, "host").map_err(told)?;
        let line = format!("role=host {}\n", host.line());
        std::fs::write(&self.authorized, line).map_err(failed("authorized"))
    }

    /// Arguments of `siftfs device`.
    pub fn of_the_device(&self) -> [PathBuf; 4] {
        let (key, authorized) = (self.device.clone(), self.authorized.clone());
        ["--key".into(), key, "--authorized".into(), authorized]
    }

    /// Options of `siftfs mount`.
    pub fn of_the_mount(&self) -> Result<String> {
        let device = KeyPair::load(&self.device).map_err(told)?;
        let (key, known) = (self.host.display(), self.known_servers.display());
        let print = device.public().fingerprint();
        Ok(format!("key={key},known_servers={known},fingerprint={print}"))
    }
}
