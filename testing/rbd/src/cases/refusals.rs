//! What cannot be had is refused, with one message that says why.

use siftfs_rbd_tests::stage::{Stage, is_refusal};
use siftfs_rig::place::{Failed, Result, arg};
use std::fs;

/// Wrong names, keys and clusters; an image that is in use; a log that would die with this machine.
pub fn refusals(stage: &Stage<'_>) -> Result<()> {
    stage.rbd(&["create", "--size", "256M", "slow/refused"])?;
    let name = "rbd:slow/refused";
    stage.refused(&["mkfs", "rbd:slow"], "rbd:POOL/IMAGE")?;
    stage.refused(&["mkfs", "rbd:nowhere/v"], "no pool nowhere")?;
    stage.refused(&["mkfs", "rbd:slow/nothing"], "no image nothing")?;
    stage.refused(&["mkfs", name, "--size", "1G"], "fewer than asked for")?;
    stage.refused(&["mkfs", "rbd:slow/refused@/none/ceph.conf"], "configuration")?;
    is_refusal(stage.siftfs(&["mkfs", name]).env("CEPH_ARGS", "--id nobody"), "client.nobody")?;
    let log = stage.place.path("log");
    stage.refused(&["mkfs", name, "--log", arg(&log)?, "--log-size", "64M"], "--log-may-die")?;
    stage.rbd(&["create", "--size", "64M", "--image-feature", "layering", "slow/plain"])?;
    stage.refused(&["mkfs", "rbd:slow/plain"], "exclusive-lock")?;

    stage.run(&["mkfs", name])?;
    stage.refused(&["mkfs", name], "--force")?;
    let mounted = stage.mount(name, "refused")?;
    for command in ["recover", "fsck", "inspect"] {
        stage.refused(&[command, name], "in use by")?;
    }
    stage.unmount(mounted)?;
    shrunk(stage, name)
}

/// An image that becomes smaller below a mount: nothing is acknowledged on it any more.
fn shrunk(stage: &Stage<'_>, name: &str) -> Result<()> {
    let mounted = stage.mount(name, "refused")?;
    stage.rbd(&["resize", "--size", "128M", "--allow-shrink", "--no-progress", "slow/refused"])?;
    let written = fs::write(mounted.dir.join("file"), b"late")
        .and_then(|()| fs::File::open(mounted.dir.join("file"))?.sync_all());
    if written.is_ok() {
        return Err(Failed("an fsync was answered on an image that has become smaller".into()));
    }
    mounted.kill()
}

/// A cluster that is not there is given up after 30 seconds.
pub fn no_cluster(stage: &Stage<'_>) -> Result<()> {
    let conf = stage.place.path("elsewhere.conf");
    let there = fs::read_to_string(stage.cluster.conf()).map_err(|e| Failed(e.to_string()))?;
    // Nobody listens at the discard service's port.
    let hosts = |line: &str| match line.starts_with("mon host") {
        true => "mon host = v2:127.0.0.1:9".to_owned(),
        false => line.to_owned(),
    };
    let elsewhere: Vec<_> = there.lines().map(hosts).collect();
    fs::write(&conf, elsewhere.join("\n") + "\n").map_err(|e| Failed(e.to_string()))?;
    stage.refused(&["recover", &format!("rbd:slow/none@{}", arg(&conf)?)], "does not answer")
}
