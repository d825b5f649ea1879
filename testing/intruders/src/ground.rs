//! The volume, its server, and what is in it before anybody comes.

use crate::wire::{Door, Needle};
use rustix::process::{Pid, Signal, kill_process};
use siftfs::Volume;
use siftfs_base::InodeNr;
use siftfs_keys::{ClientTls, Expect, Fingerprint, KeyPair};
use siftfs_proto::{Attr, Credentials, ROOT_INO, Request, SetAttr, XattrMode};
use siftfs_rig::place::{Failed, Place, Result, arg, failed, output, run};
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a canary.
const CANARY: usize = 64 << 10;
/// Directories that nobody but root may read: beside what the key's line shows, and within it.
const CAGES: [&str; 2] = ["/canary", "/pen/vault"];
/// How long server and mount may take to end.
const END: Duration = Duration::from_secs(60);

/// An error of the volume, or of anything else, as the end of a campaign.
pub fn said(e: impl Display) -> Failed {
    Failed(e.to_string())
}

/// What a canary was before.
type Seen = Vec<(String, Attr, Vec<u8>)>;

/// See the module.
pub struct Ground {
    place: Place,
    siftfs: PathBuf,
    server: Server,
    port: u16,
    key: (Arc<ClientTls>, Expect),
    /// What nobody may receive.
    pub needle: Arc<Needle>,
    text: String,
    /// The owner's session, in which the canaries are open.
    owner: Option<Arc<Volume>>,
    held: Vec<siftfs::File>,
    canaries: Seen,
    /// Inodes that hostile clients know of: those of the canaries first.
    pub known: Vec<InodeNr>,
}

impl Ground {
    /// Makes a volume, fills it, and has it served.
    ///
    /// # Errors
    /// What cannot be made or started.
    pub fn new(place: Place, siftfs: &Path, seed: u64) -> Result<Self> {
        let volume = place.path("volume");
        run(siftfs, &["mkfs", arg(&volume)?, "--size", "1G"])?;
        let text = format!("kanarienvogel-{:016x}", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (tls, fingerprint) = keys(&place)?;
        let (server, port) = Server::start(&place, siftfs)?;
        let address = format!("tcp:127.0.0.1:{port}");
        let expect = Expect::Fingerprint { address, fingerprint };
        let socket = place.path("volume.sock");
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&socket, all).map_err(failed("the socket"))?;
        let owner = Volume::connect(&format!("unix:{}", socket.display())).map_err(said)?;
        let (needle, owner) = (Arc::new(Needle::new(&text)), Some(Arc::new(owner)));
        let (held, canaries, known) = Default::default();
        let (siftfs, key) = (siftfs.to_path_buf(), (tls, expect));
        let mut ground =
            Self { place, siftfs, server, port, key, needle, text, owner, held, canaries, known };
        ground.fill().map_err(|e| Failed(format!("before anybody comes: {e}")))?;
        Ok(ground)
    }

    /// The owner's session.
    pub fn owner(&self) -> Arc<Volume> {
        self.owner.clone().expect("the server runs")
    }

    fn fill(&mut self) -> siftfs::Result<()> {
        let owner = self.owner();
        for (dir, perm) in [
            ("/canary", 0o700),
            ("/pen", 0o755),
            ("/pen/vault", 0o700),
            ("/pen/shared", 0o755),
            ("/pen/open", 0o777),
            ("/honest", 0o755),
            ("/client", 0o755),
        ] {
            owner.create_dir(dir, perm)?;
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            self.known.push(owner.set_attr(dir, set)?.ino);
        }
        let text = self.text.clone();
        for cage in CAGES {
            let path = format!("{cage}/{text}");
            let file = owner.create(&path, 0o600)?;
            let bytes: Vec<u8> = text.bytes().cycle().take(CANARY).collect();
            file.write_at(0, &bytes)?;
            name_it(&owner, &path, &text)?;
            file.sync_all()?;
            let link = owner.symlink(&format!("{cage}/link"), &text)?;
            let dir = owner.create_dir(&format!("{cage}/dir-{text}"), 0o700)?;
            self.known.extend([file.ino(), link.ino, dir.ino]);
            self.held.push(file);
        }
        let big = owner.create("/pen/shared/big", 0o644)?;
        big.write_at(0, &vec![7; 2 << 20])?;
        owner.create("/pen/open/common", 0o666)?.write_at(0, &[1; 9000])?;
        self.known.push(big.ino());
        owner.sync()?;
        self.canaries = look(&owner, &text)?;
        Ok(())
    }

    /// By TCP, with the key of a machine that is a client by default, below `/pen`.
    pub fn by_key(&self) -> Door {
        let (tls, expect) = self.key.clone();
        Door::Key { port: self.port, tls, expect }
    }

    /// By the unix socket.
    pub fn by_socket(&self) -> Door {
        Door::Unix(self.place.path("volume.sock"))
    }

    /// Mounts the volume for the honest.
    ///
    /// # Errors
    /// What the command says.
    pub fn mount(&self) -> Result<PathBuf> {
        let dir = self.place.mount_point("mount")?;
        let address = format!("unix:{}", self.place.path("volume.sock").display());
        // After a finding nobody waits for a server that is gone.
        run(&self.siftfs, &["mount", &address, arg(&dir)?, "-o", "soft,timeo=5"])?;
        Ok(dir)
    }

    /// Unmounts it. Something may still have it for a moment.
    ///
    /// # Errors
    /// What the command says.
    pub fn unmount(&self, dir: &Path) -> Result<()> {
        let unmount = || run(&self.siftfs, &["umount", arg(dir)?]);
        for _ in 0..50 {
            if unmount().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        unmount().map(drop)
    }

    /// Memory of the server's process, in bytes.
    ///
    /// # Errors
    /// It is gone.
    pub fn memory(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.server.child.id());
        let status = std::fs::read_to_string(file).map_err(failed("the server is gone"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| Failed("the server is gone".into()))
    }

    /// The canaries are as they were.
    ///
    /// # Errors
    /// What has changed.
    pub fn judge(&self, volume: &Volume) -> Result<()> {
        let now = look(volume, &self.text);
        let now = now.map_err(|e| Failed(format!("a canary is looked at: {e}")))?;
        match now.iter().zip(&self.canaries).find(|(now, before)| now != before) {
            None if now.len() == self.canaries.len() => Ok(()),
            None => Err(Failed("a canary is gone".into())),
            Some(((path, now, _), (_, before, _))) => {
                Err(Failed(format!("{path} has changed: {now:?}, before {before:?}")))
            }
        }
    }

    /// Lines of the server's log, none of which tells of a panic.
    ///
    /// # Errors
    /// One does.
    pub fn log(&self) -> Result<Vec<String>> {
        let read = |path: PathBuf| std::fs::read_to_string(&path).map_err(failed(path.display()));
        let said = read(self.server.stderr.clone())?;
        let log = read(self.place.path("log"))? + &said;
        let bad = log.lines().find(|line| {
            ["panicked", "failed assertion", "ERROR"].iter().any(|word| line.contains(word))
        });
        match bad {
            None => Ok(log.lines().map(String::from).collect()),
            Some(line) => Err(Failed(format!("the server's log: {line}"))),
        }
    }

    /// Ends the server, and has the volume looked at: `check` gets it as it is without a server.
    ///
    /// # Errors
    /// The server does not end in order, or the volume is not whole.
    pub fn end(mut self, check: impl FnOnce(&Volume) -> Result<()>) -> Result<()> {
        self.held.clear();
        self.owner = None;
        let ended = self.server.end()?;
        self.log()?;
        if !ended.success() {
            return Err(Failed(format!("the server ended with {ended}")));
        }
        let path = self.place.path("volume");
        let volume = Volume::open(&path).map_err(said)?;
        self.judge(&volume)?;
        check(&volume)?;
        volume.close().map_err(said)?;
        let fsck = output("e2fsck", &["-fn", arg(&path)?])?;
        match fsck.status.success() {
            true => run(&self.siftfs, &["fsck", arg(&path)?]).map(drop),
            false => Err(Failed(String::from_utf8_lossy(&fsck.stdout).into_owned())),
        }
    }
}

/// Gives a file an extended attribute with this value.
fn name_it(owner: &Volume, path: &str, value: &str) -> siftfs::Result<()> {
    let ask = |request| owner.endpoint().call(&Credentials::default(), request);
    let mut ino = ROOT_INO;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        ino = ask(Request::Lookup { parent: ino, name: name.into() })?.attr()?.ino;
    }
    let handle = ask(Request::Hold { ino })?.opened()?;
    let (name, value, mode) = (b"user.canary".to_vec(), value.into(), XattrMode::Set);
    let (file, kill_setgid) = (handle.into(), false);
    ask(Request::SetXattr { file, name, value, mode, kill_setgid })?;
    ask(Request::Release { handle }).map(drop)
}

/// What the canaries are: names, attributes and bytes.
fn look(volume: &Volume, text: &str) -> siftfs::Result<Seen> {
    let mut seen = Vec::new();
    for cage in CAGES {
        let attr = volume.stat(cage)?;
        seen.push((cage.to_string(), Attr { atime: attr.mtime, ..attr }, Vec::new()));
        for entry in volume.read_dir(cage)? {
            let path = format!("{cage}/{}", String::from_utf8_lossy(&entry.name));
            if !path.ends_with("/.") && !path.ends_with("/..") {
                let attr = volume.stat(&path)?;
                let bytes = match path.ends_with(&format!("/{text}")) {
                    true => volume.open_file(&path)?.read_at(0, 2 * CANARY)?,
                    false => Vec::new(),
                };
                // It was read just now, by its owner.
                let attr = Attr { atime: attr.mtime, ..attr };
                seen.push((path, attr, bytes));
            }
        }
    }
    Ok(seen)
}

/// The server's process. It is killed when this is dropped.
struct Server {
    child: Child,
    /// What it wrote to standard error.
    stderr: PathBuf,
}

impl Server {
    fn start(place: &Place, siftfs: &Path) -> Result<(Self, u16)> {
        let stderr = place.path("stderr");
        let file = std::fs::File::create(&stderr).map_err(failed(stderr.display()))?;
        let path = |name| place.path(name);
        let mut command = Command::new(siftfs);
        command.arg("serve").arg(path("volume")).args(["--json", "--log-file"]).arg(path("log"));
        command.arg("--listen").arg(format!("unix:{}", path("volume.sock").display()));
        command.args(["--listen", "tcp:127.0.0.1:0", "--key"]).arg(path("server"));
        command.arg("--authorized").arg(path("authorized"));
        command.stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().map_err(failed("the server"))?;
        let out = child.stdout.take().expect("it was asked for");
        let server = Self { child, stderr };
        let port = BufReader::new(out).lines().take(2).find_map(|line| {
            let line = line.ok()?;
            let (_, port) = line.split_once("tcp:127.0.0.1:")?;
            port.split('"').next()?.parse().ok()
        });
        let none = || {
            let why = std::fs::read_to_string(&server.stderr).unwrap_or_default();
            Failed(format!("the server does not listen: {why}"))
        };
        Ok((port.ok_or_else(none)?, server)).map(|(port, server)| (server, port))
    }

    /// Has it end in order.
    fn end(&mut self) -> Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(said)?;
        let begun = Instant::now();
        while begun.elapsed() < END {
            if let Some(status) = self.child.try_wait().map_err(failed("the server"))? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failed(format!("the server does not end within {END:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keys of the server and of a machine, which is a client by default.
fn keys(place: &Place) -> Result<(Arc<ClientTls>, Fingerprint)> {
    let pair = |name| KeyPair::generate(name).map_err(said);
    let (server, machine) = (pair("server")?, pair("machine")?);
    server.save(&place.path("server")).map_err(said)?;
    let line = format!("role=client subtree=/pen {}\n", machine.line());
    std::fs::write(place.path("authorized"), line).map_err(failed("authorized"))?;
    let tls = ClientTls::new(&machine).map_err(said)?;
    Ok((Arc::new(tls), server.public().fingerprint()))
}
