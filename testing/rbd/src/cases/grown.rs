//! A volume on an image that grows, and whose growth is killed.

use siftfs_rbd_tests::ledger::Ledger;
use siftfs_rbd_tests::stage::{Stage, wait_until};
use siftfs_rig::place::{Failed, Result, failed};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;
/// How long a writer may take to get further.
const GOES_ON: Duration = Duration::from_secs(60);

/// Growths that are killed at many moments leave a volume that mounts with all that was
/// acknowledged, and growing goes on; each of them makes the image longer first. At the end it is
/// clean, and larger.
pub fn grown(stage: &Stage<'_>) -> Result<()> {
    stage.rbd(&["create", "--size", "256M", "slow/grown"])?;
    let volume = String::from("rbd:slow/grown");
    // A short log, which is written anew at each of its places.
    stage.run(&["mkfs", &volume, "--log-size", "16M"])?;
    let mut ledger = Ledger::default();
    load(stage, &volume, &mut ledger)?;
    stage.refused(&["volumes", "grow", &volume, "--size", "128M"], "not made shorter")?;
    stage.refused(&["volumes", "grow", &volume, "--size", "260M"], "its log moves")?;
    let mounted = stage.mount(&volume, "grown")?;
    stage.refused(&["volumes", "grow", &volume, "--size", "512M"], "in use by")?;
    stage.unmount(mounted)?;
    same_length(stage, "grown", 256 * MIB)?;
    let (mut mib, mut longer) = (512, 0);
    for round in 0..8u64 {
        let size = format!("{mib}M");
        let mut grow = stage.siftfs(&["volumes", "grow", &volume, "--size", &size]);
        let mut child = grow
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed("siftfs volumes grow"))?;
        // Every second one is killed behind the resize, while log and file system move.
        if round % 2 == 1 {
            let is_longer = || Ok(length(stage, "grown")? == mib * MIB);
            wait_until("the image is longer", is_longer)?;
        }
        thread::sleep(Duration::from_millis(70 * round));
        let _ = child.kill();
        child.wait().map_err(failed("siftfs volumes grow"))?;
        if length(stage, "grown")? == mib * MIB {
            longer += 1;
            mib += 256;
        }
        // Whatever it had come to: the image may be longer than the volume on it.
        load(stage, &volume, &mut ledger)?;
    }
    if longer == 0 {
        return Err(Failed("no growth has made the image longer".into()));
    }
    // An image that its administrator has made longer is grown to its end, without a size.
    stage.rbd(&["resize", "--no-progress", "--size", "3G", "slow/grown"])?;
    load(stage, &volume, &mut ledger)?;
    let said = stage.run(&["volumes", "grow", &volume, "--json"])?;
    let report: serde_json::Value =
        serde_json::from_str(&said).map_err(|e| Failed(format!("volumes grow: {e}: {said}")))?;
    if report["area_bytes"].as_u64().is_none_or(|bytes| bytes < 3000 * MIB) {
        return Err(Failed(format!("the file system has not grown: {report}")));
    }
    same_length(stage, "grown", 3072 * MIB)?;
    load(stage, &volume, &mut ledger)?;
    println!(
        "  {} acknowledged, none lost; {longer} killed growths had lengthened the image",
        ledger.total()
    );
    Ok(())
}

/// The log on another image stays where it is, and the image of the area becomes longer.
pub fn grown_apart(stage: &Stage<'_>) -> Result<()> {
    stage.rbd(&["create", "--size", "256M", "slow/wide"])?;
    stage.rbd(&["create", "--size", "64M", "fast/wide-log"])?;
    let volume = "rbd:slow/wide";
    stage.run(&["mkfs", volume, "--log", "rbd:fast/wide-log"])?;
    let mut ledger = Ledger::default();
    load(stage, volume, &mut ledger)?;
    stage.run(&["volumes", "grow", volume, "--size", "1G"])?;
    same_length(stage, "wide", 1024 * MIB)?;
    load(stage, volume, &mut ledger)
}

/// Mounts the volume, judges what is there, writes on, and checks it with `siftfs fsck`.
fn load(stage: &Stage<'_>, volume: &str, ledger: &mut Ledger) -> Result<()> {
    let mounted = stage.mount(volume, "load")?;
    ledger.judge(&mounted.dir)?;
    let writers = ledger.write(&mounted.dir)?;
    writers.wait_for_more(GOES_ON)?;
    let seen = writers.end(ledger);
    if let Some((error, _)) = seen.error {
        return Err(Failed(format!("a writer has failed: {error}: {}", mounted.said())));
    }
    stage.end(mounted, volume)
}

/// Bytes of an image of the slow pool.
fn length(stage: &Stage<'_>, image: &str) -> Result<u64> {
    let said = stage.rbd(&["info", "--format", "json", &format!("slow/{image}")])?;
    let info: serde_json::Value =
        serde_json::from_str(&said).map_err(|e| Failed(format!("rbd info: {e}")))?;
    info["size"].as_u64().ok_or_else(|| Failed(format!("rbd info: {said}")))
}

fn same_length(stage: &Stage<'_>, image: &str, bytes: u64) -> Result<()> {
    match length(stage, image)? {
        same if same == bytes => Ok(()),
        other => Err(Failed(format!("{image} has {other} bytes, and not {bytes}"))),
    }
}
