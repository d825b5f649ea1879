//! An owner that is stopped, and another one that takes its volume over.

use rustix::process::Signal;
use siftfs_rbd_tests::ledger::{Ledger, Writers};
use siftfs_rbd_tests::stage::{Mounted, Stage, is_refusal, succeed};
use siftfs_rig::place::{Failed, Result, arg};
use std::fs::{self, File};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long an owner that wakes is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// How long the cluster may take to give a silent client up: its term is ten seconds here.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// A mount's process is stopped under a load; an operator says that it is taken over. When it wakes
/// it writes nothing: the image is compared byte by byte.
pub fn stopped(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "stopped", 256)?;
    let stopped = stopped_under_load(stage, &volume)?;
    stage.refused(&["recover", &volume], "is stopped and cannot answer")?;
    let begun = Instant::now();
    stage.run(&["recover", &volume, "--take-over"])?;
    println!("  taken over and recovered after {:.1?}", begun.elapsed());
    wakes(stage, &volume, stopped)
}

/// The same, on what looks like another machine: the cluster alone knows that the owner is silent,
/// and says so when its watch has run out.
pub fn gone(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "gone", 256)?;
    let stopped = stopped_under_load(stage, &volume)?;
    is_refusal(&mut elsewhere(stage, &volume)?, "in use by process")?;
    let begun = Instant::now();
    while let Err(Failed(said)) = succeed(&mut elsewhere(stage, &volume)?) {
        if !said.contains("in use by") || begun.elapsed() > GIVEN_UP {
            return Err(Failed(said));
        }
    }
    println!("  given up by the cluster and recovered after {:.1?}", begun.elapsed());
    wakes(stage, &volume, stopped)
}

/// The last owner is on the block list already, for less than a stopped process may sleep: its
/// image is refused until that is over. Nobody removes such an entry but an administrator.
pub fn short_entry(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "short", 256)?;
    let mounted = stage.mount(&volume, "short")?;
    let list = stage.rbd(&["lock", "ls", "--format", "json", "slow/short"])?;
    let list: serde_json::Value =
        serde_json::from_str(&list).map_err(|e| Failed(format!("rbd lock ls: {e}")))?;
    let owner = list[0]["address"].as_str().unwrap_or_default();
    let block = |words: &[&str]| {
        let mut command = stage.command("ceph");
        command.args(["--id", "admin", "osd", "blocklist"]).args(words);
        succeed(command.env_remove("CEPH_ARGS"))
    };
    block(&["add", owner, "3600"])?;
    mounted.kill()?;
    stage.refused(&["recover", &volume], "only until")?;
    block(&["rm", owner])?;
    stage.run(&["recover", &volume])?;
    match block(&["ls"])?.contains(owner) {
        true => Ok(()),
        false => Err(Failed(format!("the last owner {owner} was not fenced"))),
    }
}

/// `siftfs recover`, where no file of this machine says who lives.
fn elsewhere(stage: &Stage<'_>, volume: &str) -> Result<Command> {
    let program = stage.siftfs(&[]);
    let program = arg(std::path::Path::new(program.get_program()))?.to_owned();
    let mut command = stage.command("unshare");
    let script = "mount -t tmpfs none /run && exec \"$0\" recover \"$1\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, &program, volume]);
    Ok(command)
}

/// A mount whose process was stopped in the midst of a load.
fn stopped_under_load(stage: &Stage<'_>, volume: &str) -> Result<(Mounted, Writers, Ledger)> {
    let mounted = stage.mount(volume, "stopped")?;
    let mut ledger = Ledger::default();
    let writers = ledger.write(&mounted.dir)?;
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        writers.wait_for_more(Duration::from_secs(30))?;
    }
    mounted.signal(Signal::STOP)?;
    // Its threads have stopped when nothing more is acknowledged.
    thread::sleep(Duration::from_millis(200));
    ledger.take_over(&writers);
    Ok((mounted, writers, ledger))
}

/// The old owner wakes: it must write nothing, acknowledge nothing new, and say what has happened
/// to it. Then the volume is what it was when it was taken over.
fn wakes(
    stage: &Stage<'_>,
    volume: &str,
    (old, writers, mut ledger): (Mounted, Writers, Ledger),
) -> Result<()> {
    let before = sum(stage, volume)?;
    old.signal(Signal::CONT)?;
    thread::sleep(WATCHED);
    let late = old.dir.join("late");
    let written = fs::write(&late, b"late").and_then(|()| File::open(&late)?.sync_all());
    let said = stage.status(&old).map(|status| status.to_string()).unwrap_or_default();
    if written.is_ok() {
        return Err(Failed("a fenced process has acknowledged something".into()));
    }
    if !said.contains("fenced") {
        return Err(Failed(format!("status does not say that it was fenced: {said}")));
    }
    if sum(stage, volume)? != before {
        return Err(Failed("a fenced process has written to the image".into()));
    }
    old.kill()?;
    // An answer of the cluster may have waited in its socket from before it was fenced, and been
    // passed on now: what it was told of is there, as all that was acknowledged.
    let told = writers.total() - ledger.total();
    writers.end(&mut ledger);
    let mounted = stage.mount(volume, "successor")?;
    ledger.judge(&mounted.dir)?;
    let total = ledger.total();
    println!(
        "  {total} acknowledged, {told} of them late, none lost; the owner that woke has written nothing"
    );
    stage.end(mounted, volume)
}

/// A sum of all bytes of the image.
fn sum(stage: &Stage<'_>, volume: &str) -> Result<String> {
    let image = volume.trim_start_matches("rbd:");
    let script = "set -o pipefail; rbd export --no-progress \"$0\" - | sha256sum";
    succeed(stage.command("bash").args(["-c", script, image]))
}
