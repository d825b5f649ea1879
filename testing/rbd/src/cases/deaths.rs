//! Deaths under a load: of OSDs, of everything, of the mount's own process.

use siftfs_rbd_tests::cluster::{MONITOR, OSDS};
use siftfs_rbd_tests::ledger::{Ledger, Seen, Writers};
use siftfs_rbd_tests::stage::{Mounted, Stage, succeed};
use siftfs_rig::place::{Failed, Result, arg};
use std::thread;
use std::time::{Duration, Instant};

/// How long a cluster with a dead OSD may take until it goes on.
const GOES_ON: Duration = Duration::from_secs(60);

/// One OSD after the other is killed under a load, and comes back.
pub fn osds(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "osds", 512)?;
    let mounted = stage.mount(&volume, "osds")?;
    let (ledger, begun) = (Ledger::default(), Instant::now());
    let writers = ledger.write(&mounted.dir)?;
    for round in 0.. {
        writers.wait_for_more(GOES_ON)?;
        let victim = OSDS[round % OSDS.len()];
        stage.cluster.kill(victim)?;
        // The others go on without it.
        writers.wait_for_more(GOES_ON)?;
        stage.cluster.up()?;
        if begun.elapsed() >= stage.time && round >= 2 {
            break;
        }
    }
    judge(stage, (mounted, &volume), writers, ledger)
}

/// Monitor and OSDs are killed together, and all come back: calls wait, and go on.
pub fn everything(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "everything", 512)?;
    let mounted = stage.mount(&volume, "everything")?;
    let ledger = Ledger::default();
    let writers = ledger.write(&mounted.dir)?;
    writers.wait_for_more(GOES_ON)?;
    for daemon in [MONITOR].iter().chain(&OSDS) {
        stage.cluster.kill(daemon)?;
    }
    thread::sleep(Duration::from_secs(5));
    let status = stage.status(&mounted)?;
    let cluster = &status["runtime"]["devices"][0]["cluster"];
    let (health, waited) = (cluster["health"].as_str(), cluster["longest_ms"].as_u64());
    if health == Some("HEALTH_OK") || waited.is_none_or(|ms| ms < 2000) {
        return Err(Failed(format!(
            "status does not say that the cluster is waited for: {cluster}"
        )));
    }
    stage.cluster.up()?;
    writers.wait_for_more(GOES_ON)?;
    judge(stage, (mounted, &volume), writers, ledger)
}

/// The cluster is full under a load: calls wait, and go on when there is room again.
pub fn full(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "full", 512)?;
    let mounted = stage.mount(&volume, "full")?;
    let ledger = Ledger::default();
    let writers = ledger.write(&mounted.dir)?;
    writers.wait_for_more(GOES_ON)?;
    // What an OSD has used of its device is above that from the start.
    full_at(stage, ["0.0001", "0.0005", "0.001"])?;
    let begun = Instant::now();
    loop {
        let before = writers.total();
        thread::sleep(Duration::from_secs(3));
        if writers.total() == before {
            break;
        }
        if begun.elapsed() > GOES_ON {
            return Err(Failed("a cluster that is full takes writes".into()));
        }
    }
    let status = stage.status(&mounted)?;
    let cluster = &status["runtime"]["devices"][0]["cluster"];
    let (health, waited) = (cluster["health"].as_str(), cluster["longest_ms"].as_u64());
    if health == Some("HEALTH_OK") || waited.is_none_or(|ms| ms < 2000) {
        return Err(Failed(format!("status does not say what is waited for: {cluster}")));
    }
    full_at(stage, ["0.85", "0.9", "0.95"])?;
    writers.wait_for_more(GOES_ON)?;
    judge(stage, (mounted, &volume), writers, ledger)
}

/// From which shares of its device on an OSD warns, takes no copies, and takes no more writes.
fn full_at(stage: &Stage<'_>, ratios: [&str; 3]) -> Result<()> {
    let names = ["set-nearfull-ratio", "set-backfillfull-ratio", "set-full-ratio"];
    names.iter().zip(ratios).try_for_each(|(name, ratio)| {
        let mut command = stage.command("ceph");
        command.env_remove("CEPH_ARGS").args(["--id", "admin", "osd", name, ratio]);
        succeed(&mut command).map(drop)
    })
}

/// The mount's process is killed under a load, again and again, and the next one takes the image
/// at once: this machine's kernel knows that it is dead.
pub fn server(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "server", 512)?;
    let (mut ledger, begun) = (Ledger::default(), Instant::now());
    let mut slowest = Duration::ZERO;
    for round in 0u32.. {
        let opening = Instant::now();
        let mounted = stage.mount(&volume, "server")?;
        slowest = slowest.max(opening.elapsed());
        ledger.judge(&mounted.dir)?;
        let writers = ledger.write(&mounted.dir)?;
        writers.wait_for_more(GOES_ON)?;
        thread::sleep(Duration::from_millis(u64::from(round * 377 % 1500)));
        if begun.elapsed() >= stage.time && round >= 3 {
            println!("  {round} kills; the slowest mount behind one: {slowest:.1?}");
            return judge(stage, (mounted, &volume), writers, ledger);
        }
        mounted.kill()?;
        writers.end(&mut ledger);
    }
    Ok(())
}

/// The log on an image of another pool, found by itself the next time; the process is killed once.
pub fn log_apart(stage: &Stage<'_>) -> Result<()> {
    stage.rbd(&["create", "--size", "512M", "slow/apart"])?;
    stage.rbd(&["create", "--size", "64M", "fast/apart-log"])?;
    let (volume, log) = ("rbd:slow/apart", "rbd:fast/apart-log");
    stage.run(&["mkfs", volume, "--log", log])?;
    stage.refused(&["mkfs", "rbd:slow/apart", "--log", "rbd:slow/apart"], "another")?;
    let mounted = stage.mount(volume, "apart")?;
    let mut ledger = Ledger::default();
    let writers = ledger.write(&mounted.dir)?;
    writers.wait_for_more(GOES_ON)?;
    mounted.kill()?;
    writers.end(&mut ledger);
    let mounted = stage.mount(volume, "apart")?;
    ledger.judge(&mounted.dir)?;
    let writers = ledger.write(&mounted.dir)?;
    judge(stage, (mounted, volume), writers, ledger)
}

/// Ends the load, and judges what is there: in the mount, and in a new one.
fn judge(
    stage: &Stage<'_>,
    (mounted, volume): (Mounted, &str),
    writers: Writers,
    mut ledger: Ledger,
) -> Result<()> {
    writers.wait_for_more(GOES_ON)?;
    let Seen { longest, error } = writers.end(&mut ledger);
    if let Some((error, _)) = error {
        return Err(Failed(format!("a writer has failed: {error}: {}", mounted.said())));
    }
    ledger.judge(&mounted.dir)?;
    stage.end(mounted, volume)?;
    let again = stage.mount(volume, "again")?;
    ledger.judge(&again.dir)?;
    stage.unmount(again)?;
    stage.run(&["fsck", volume, "--json"]).map(drop)?;
    let volume = arg(std::path::Path::new(volume))?.to_owned();
    println!(
        "  {volume}: {} acknowledged, none lost; the longest fsync: {longest:.1?}",
        ledger.total()
    );
    Ok(())
}
