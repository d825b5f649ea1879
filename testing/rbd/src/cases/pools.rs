//! Volumes that are made, served and removed as images of a pool.

use rustix::process::{Pid, Signal, kill_process};
use siftfs_rbd_tests::stage::{Stage, is_refusal, wait_until};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// The pool, as SiftFS names it.
const POOL: &str = "rbd:fast/";

/// Images are made with volumes, listed and removed; what is in use, no volume, or not made to its
/// end is known as such.
pub fn pool(stage: &Stage<'_>) -> Result<()> {
    stage.rbd(&["create", "--size", "64M", "fast/plain"])?;
    expect(stage, &[])?;
    let name = "rbd:fast/a";
    stage.run(&["volumes", "create", name, "--size", "128M"])?;
    stage.refused(&["volumes", "create", name, "--size", "128M"], "is there already")?;
    stage.refused(&["volumes", "create", "rbd:fast/.a", "--size", "128M"], "a volume's name")?;
    stage.refused(&["volumes", "create", "rbd:fast/small", "--size", "1M"], "")?;
    expect(stage, &[("a", "clean")])?;
    stage.refused(&["volumes", "remove", "rbd:fast/plain"], "no volume")?;
    stage.refused(&["volumes", "remove", "rbd:fast/nothing"], "no image")?;
    let mounted = stage.mount(name, "pool")?;
    expect(stage, &[("a", "used")])?;
    stage.refused(&["volumes", "remove", name], "in use")?;
    mounted.kill()?;
    // The cluster has not given the dead owner's watch up yet; this machine knows better.
    stage.run(&["volumes", "remove", name])?;
    half_made(stage)?;
    expect(stage, &[])?;
    is_refusal(
        stage.siftfs(&["volumes", "list", POOL]).env("CEPH_ARGS", "--id nobody"),
        "client.nobody",
    )?;
    let left = stage.rbd(&["ls", "fast"])?;
    if left.split_whitespace().any(|image| image.contains("making") || image == "small") {
        return Err(Failed(format!("half-made images are left: {left}")));
    }
    stage.rbd(&["rm", "--no-progress", "fast/plain"]).map(drop)
}

/// A death while an image is being made leaves one that is no volume of the pool, that may be
/// removed, and in whose place the next one is made.
fn half_made(stage: &Stage<'_>) -> Result<()> {
    let mut left = 0;
    for round in 0..6u64 {
        let mut make = stage.siftfs(&["volumes", "create", "rbd:fast/h", "--size", "256M"]);
        let make = make.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut make = make.map_err(failed("siftfs volumes create"))?;
        thread::sleep(Duration::from_millis(70 * round + 60));
        let _ = make.kill();
        make.wait().map_err(failed("siftfs volumes create"))?;
        let images = stage.rbd(&["ls", "fast"])?;
        let has = |name: &str| images.lines().any(|image| image == name);
        if has(".h.making") {
            left += 1;
            expect(stage, &[])?;
            if round % 2 == 0 {
                stage.run(&["volumes", "remove", "rbd:fast/.h.making"])?;
            }
        }
        if !has("h") {
            stage.run(&["volumes", "create", "rbd:fast/h", "--size", "256M"])?;
        }
        stage.run(&["fsck", "rbd:fast/h"])?;
        stage.run(&["volumes", "remove", "rbd:fast/h"])?;
    }
    match left {
        0 => Err(Failed("no kill has left a half-made image".into())),
        left => {
            println!("  {left} of 6 kills have left a half-made image");
            Ok(())
        }
    }
}

/// One process serves the volumes of a pool by their names, opens one that is made meanwhile, and
/// closes one that nobody uses, which is grown and removed then.
pub fn served_pool(stage: &Stage<'_>) -> Result<()> {
    for name in ["rbd:fast/x", "rbd:fast/y"] {
        stage.run(&["volumes", "create", name, "--size", "128M"])?;
    }
    let server = Server::start(stage)?;
    expect(stage, &[("x", "used"), ("y", "used")])?;
    let (address, said) = (&server.address, "volume=x");
    let mounted = stage.mount_by(address, "x", &["-o", said])?;
    write(&mounted.dir.join("file"), b"of x")?;
    stage.run(&["volumes", "create", "rbd:fast/z", "--size", "128M"])?;
    let other = stage.mount_by(address, "z", &["-o", "volume=z"])?;
    write(&other.dir.join("file"), b"of z")?;
    stage.unmount(other)?;
    wait_until("what nobody uses is closed", || {
        Ok(states(stage)? == [("x", "used"), ("y", "clean"), ("z", "clean")].map(owned))
    })?;
    stage.run(&["volumes", "grow", "rbd:fast/y", "--size", "512M"])?;
    stage.run(&["volumes", "remove", "rbd:fast/z"])?;
    stage.refused(&["volumes", "remove", "rbd:fast/x"], "in use")?;
    let grown = stage.mount_by(address, "y", &["-o", "volume=y"])?;
    write(&grown.dir.join("file"), b"of y")?;
    stage.unmount(grown)?;
    if fs::read(mounted.dir.join("file")).map_err(failed("the file of x"))? != b"of x" {
        return Err(Failed("the file of x is another one".into()));
    }
    stage.unmount(mounted)?;
    server.end()?;
    for name in ["rbd:fast/x", "rbd:fast/y"] {
        stage.run(&["fsck", name])?;
        stage.run(&["volumes", "remove", name])?;
    }
    expect(stage, &[])
}

/// A server of the pool; killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(stage: &Stage<'_>) -> Result<Self> {
        let socket = stage.place.path("pool.sock");
        let address = format!("unix:{}", arg(&socket)?);
        let said = File::create(stage.place.path("pool.said")).map_err(failed("a file"))?;
        let mut serve = stage.siftfs(&["serve", POOL, "--listen", &address, "--close-after", "2"]);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = serve.spawn().map_err(failed("siftfs serve"))?;
        let mut server = Self { child, address };
        wait_until("the pool is served", || {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Failed(format!("siftfs serve: {status}")));
            }
            Ok(states(stage)?.iter().filter(|(_, state)| state == "used").count() == 2)
        })?;
        Ok(server)
    }

    fn end(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|e| Failed(format!("a signal: {e}")))?;
        match self.child.wait().map_err(failed("siftfs serve"))? {
            status if status.success() => Ok(()),
            status => Err(Failed(format!("siftfs serve: {status}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn owned((name, state): (&str, &str)) -> (String, String) {
    (name.into(), state.into())
}

/// The pool's volumes and their states.
fn states(stage: &Stage<'_>) -> Result<Vec<(String, String)>> {
    let said = stage.run(&["volumes", "list", POOL, "--json"])?;
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&said).map_err(|e| Failed(format!("volumes list: {e}: {said}")))?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok(listed.iter().map(|volume| (text(&volume["name"]), text(&volume["state"]))).collect())
}

fn expect(stage: &Stage<'_>, wanted: &[(&str, &str)]) -> Result<()> {
    let wanted: Vec<_> = wanted.iter().copied().map(owned).collect();
    match states(stage)? {
        same if same == wanted => Ok(()),
        other => Err(Failed(format!("the pool has {other:?}, and not {wanted:?}"))),
    }
}

/// Writes a file, durably.
fn write(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    let durable = || fs::write(path, bytes).and_then(|()| File::open(path)?.sync_all());
    durable().map_err(failed(path.display()))
}
