//! The keys of processes that reach each other over TCP. What has the volume, be it the host or a
//! server, has one key; its device process has the other, and so has the mount of a served volume.

use siftfs_keys::KeyPair;
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::path::{Path, PathBuf};

/// As options of a mount.
pub fn listed(options: &[(&str, String)]) -> String {
    let words: Vec<_> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(",")
}

/// As arguments of another command.
pub fn words(options: &[(&str, String)]) -> Vec<String> {
    let word = |(name, value): &(&str, String)| format!("--{}={value}", name.replace('_', "-"));
    options.iter().map(word).collect()
}

fn told(e: siftfs_base::Error) -> Failed {
    Failed(format!("keys: {e}"))
}

/// Their files, which are made when they are asked for.
pub struct Keys {
    /// The device process's, and that of a mount whose volume is served.
    device: PathBuf,
    /// The host's, or the server's.
    host: PathBuf,
    /// Those that the device process admits.
    authorized: PathBuf,
    /// Those that a server admits: a machine whose kernel is believed.
    clients: PathBuf,
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
            clients: file("clients"),
            known_servers: file("known_servers"),
        }
    }

    /// Makes both keys, and has each side admit the other, if that is not done.
    fn make(&self) -> Result<()> {
        if self.clients.exists() {
            return Ok(());
        }
        let make = |file, name: &str| -> siftfs_base::Result<KeyPair> {
            let pair = KeyPair::generate(name)?;
            pair.save(file)?;
            Ok(pair)
        };
        let device = make(&self.device, "device").map_err(told)?.line();
        let host = make(&self.host, "host").map_err(told)?.line();
        let write = |file: &PathBuf, line: String| {
            std::fs::write(file, line).map_err(failed(file.display()))
        };
        write(&self.authorized, format!("role=host {host}\n"))?;
        write(&self.clients, format!("role=admin squash=none {device}\n"))
    }

    /// Arguments of `siftfs device`.
    pub fn of_the_device(&self) -> Result<[PathBuf; 4]> {
        self.make()?;
        let (key, authorized) = (self.device.clone(), self.authorized.clone());
        Ok(["--key".into(), key, "--authorized".into(), authorized])
    }

    /// Options of a mount whose device process listens, or that itself `listens`, or both.
    pub fn of_the_host(&self, listens: bool) -> Result<Vec<(&'static str, String)>> {
        let mut options = self.dials(&self.host, &self.device)?;
        if listens {
            options.push(("authorized", self.clients.display().to_string()));
        }
        Ok(options)
    }

    /// Options of the mount of a served volume.
    pub fn of_the_client(&self) -> Result<Vec<(&'static str, String)>> {
        self.dials(&self.device, &self.host)
    }

    fn dials(&self, own: &Path, other: &Path) -> Result<Vec<(&'static str, String)>> {
        self.make()?;
        let other = KeyPair::load(other).map_err(told)?;
        let print = other.public().fingerprint();
        let known = self.known_servers.display();
        Ok(vec![
            ("key", own.display().to_string()),
            ("known_servers", known.to_string()),
            ("fingerprint", print.to_string()),
        ])
    }
}
