//! Servers, mounts and keys, made by the `siftfs` command as a user would.

use crate::Plan;
use serde_json::Value;
use siftfs::{Secured, TransportOptions, Trust};
use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Result, arg, failed, run};
use siftfs_rig::volume::Volume;
use siftfs_status::Status;
use std::path::{Path, PathBuf};

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A unix socket, with memory that both ends share.
    Unix,
    /// TCP on loopback, TLS with keys.
    Keys,
    /// TCP on loopback, without.
    Insecure,
}

impl Way {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix socket, shared memory",
            Self::Keys => "TCP on loopback, keys",
            Self::Insecure => "TCP on loopback, --insecure",
        }
    }
}

/// The keys of two machines that know each other.
struct Keys {
    dir: PathBuf,
    fingerprint: String,
}

/// Where all of it is.
pub struct Stage<'a> {
    plan: &'a Plan<'a>,
    keys: Keys,
}

/// A volume and its server.
pub struct Served {
    /// The volume's file.
    pub image: PathBuf,
    /// How it is reached.
    pub way: Way,
    server: Option<Device>,
    name: String,
}

impl Keys {
    fn new(plan: &Plan<'_>) -> Result<Self> {
        let dir = plan.place.path("keys");
        if !dir.exists() {
            std::fs::create_dir(&dir).map_err(failed(dir.display()))?;
        }
        let make = |name: &str| -> Result<Value> {
            let file = dir.join(name);
            run(plan.siftfs, &["key", "new", "--file", arg(&file)?, "--comment", name])?;
            let shown = run(plan.siftfs, &["key", "show", "--json", arg(&file)?])?;
            serde_json::from_str(&shown).map_err(|e| Failed(format!("siftfs key show: {e}")))
        };
        let (server, client) = (make("server")?, make("client")?);
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        // A kernel that is believed: what each of its users may do, it checks itself.
        let line = format!("role=admin squash=none {}\n", text(&client, "line"));
        let path = dir.join("authorized");
        std::fs::write(&path, line).map_err(failed(path.display()))?;
        Ok(Self { dir, fingerprint: text(&server, "fingerprint") })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl<'a> Stage<'a> {
    /// Makes keys.
    pub fn new(plan: &'a Plan<'a>) -> Result<Self> {
        Ok(Self { plan, keys: Keys::new(plan)? })
    }

    /// Makes a volume's file of this name.
    pub fn make(&self, name: &str, size: &str) -> Result<PathBuf> {
        self.plan.place.go_on()?;
        let image = self.plan.place.path(&format!("{name}.sift"));
        run(self.plan.siftfs, &["mkfs", arg(&image)?, "--size", size])?;
        Ok(image)
    }

    /// Serves a volume, with more options.
    pub fn serve(&self, image: &Path, way: Way, more: &[&str]) -> Result<Served> {
        let name = image.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut served = Served { image: image.to_owned(), way, server: None, name };
        self.start(&mut served, more)?;
        Ok(served)
    }

    /// Starts the server of a volume, until it listens.
    pub fn start(&self, served: &mut Served, more: &[&str]) -> Result<()> {
        let place = self.plan.place;
        let log = place.path(&format!("{}.served.log", served.name));
        let unix = format!("unix:{}", place.path(&format!("{}.sock", served.name)).display());
        let (key, authorized) = (self.keys.file("server"), self.keys.file("authorized"));
        let mut all = match served.way {
            Way::Unix => Vec::new(),
            Way::Keys => vec!["--key", arg(&key)?, "--authorized", arg(&authorized)?],
            Way::Insecure => vec!["--insecure"],
        };
        all.extend(more);
        let address = if served.way == Way::Unix { &unix } else { "tcp:127.0.0.1:0" };
        let server = Device::serve(self.plan.siftfs, &served.image, address, &log, &all)?;
        served.server = Some(server);
        Ok(())
    }

    /// Mounts a volume's file, or what is served at an address.
    pub fn mount(&self, what: &Path, name: &str, options: &str) -> Result<Volume> {
        self.plan.place.go_on()?;
        let dir = self.plan.place.mount_point(name)?;
        run(self.plan.siftfs, &["mount", "-o", options, arg(what)?, arg(&dir)?])?;
        Ok(Volume { program: self.plan.siftfs.to_owned(), image: what.to_owned(), dir })
    }

    /// Mounts what is served.
    pub fn mount_served(&self, served: &Served, name: &str) -> Result<Volume> {
        let options = match served.way {
            Way::Unix => String::new(),
            Way::Insecure => "insecure".into(),
            Way::Keys => format!(
                "key={},known_servers={},fingerprint={}",
                self.keys.file("client").display(),
                self.keys.file("known_servers").display(),
                self.keys.fingerprint
            ),
        };
        self.mount(Path::new(served.address()?), name, &options)
    }

    /// How a program of this process reaches what is served.
    pub fn reach(&self, served: &Served, options: &TransportOptions) -> Result<Option<Secured>> {
        let said = |e: siftfs::Error| Failed(e.to_string());
        let trust = Trust {
            key: Some(self.keys.file("client")),
            known_servers: Some(self.keys.file("known_servers")),
            fingerprint: Some(
                self.keys
                    .fingerprint
                    .parse()
                    .map_err(|_| Failed(format!("{}: no fingerprint", self.keys.fingerprint)))?,
            ),
            insecure: served.way == Way::Insecure,
        };
        let address = served.address()?.parse().map_err(said)?;
        trust.secure(&address, options, None).map_err(said)
    }
}

impl Served {
    fn server(&self) -> Result<&Device> {
        self.server.as_ref().ok_or_else(|| Failed(format!("{}: nobody serves it", self.name)))
    }

    /// Where it is reached.
    pub fn address(&self) -> Result<&str> {
        self.server().map(Device::address)
    }

    /// The server's process.
    pub fn pid(&self) -> Result<u32> {
        self.server().map(Device::pid)
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Device::kill)
    }

    /// Ends the server in order.
    pub fn end(mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Device::end)
    }
}

/// Unmounts them all.
pub fn unmount(all: &[Volume]) -> Result<()> {
    all.iter().try_for_each(|one| one.siftfs(&["umount", arg(&one.dir)?]).map(drop))
}

/// Calls that a mount has sent to its server so far; none where it has the volume itself.
pub fn calls(mount: &Volume) -> Result<Option<u64>> {
    let status: Status = mount.status()?;
    Ok(status.server.map(|server| server.calls))
}
