//! Servers of one volume, of which one has it and the others wait, and clients that know them all.

use rustix::process::Signal;
use siftfs_rbd_tests::ledger::{Ledger, Writers};
use siftfs_rbd_tests::servers::{Server, Servers, Where};
use siftfs_rbd_tests::stage::{Mounted, Stage};
use siftfs_rig::place::{Failed, Result, failed};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long clients may take to go on: a server that was stopped is given up by its clients after
/// ten seconds, and not answered by it for five more.
const GOES_ON: Duration = Duration::from_secs(60);

/// A client: a mount that knows all servers, and a load in a directory of its own.
struct Client {
    mounted: Mounted,
    dir: PathBuf,
    ledger: Ledger,
    writers: Writers,
}

/// How the server that has the volume loses it.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// It is killed.
    Killed,
    /// It is stopped, an operator says that it is taken over, and it wakes later.
    Stopped,
    /// An operator has it handed over.
    HandedOver,
    /// The cluster hears nothing of it, and gives it up; its clients hear it.
    CutOff,
}

/// Three servers and two clients: the one that has the volume is killed, stopped, or told to hand
/// it over, again and again.
pub fn servers(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "servers", 512)?;
    let mut servers = Servers::start(stage, &volume, 3, Where::Here)?;
    let mut clients = clients(stage, &servers, 2)?;
    let begun = Instant::now();
    let losses = [Loss::Killed, Loss::HandedOver, Loss::Stopped, Loss::HandedOver];
    for (round, loss) in losses.iter().cycle().enumerate() {
        lose(stage, &mut servers, &clients, *loss)?;
        if begun.elapsed() >= stage.time && round + 1 >= losses.len() {
            break;
        }
    }
    judge(stage, (servers, &volume), &mut clients)
}

/// The same on what looks like three machines: the cluster alone says that a server is dead, when
/// its watch has run out.
pub fn machines(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "machines", 256)?;
    let mut servers = Servers::start(stage, &volume, 2, Where::Apart)?;
    let mut clients = clients(stage, &servers, 2)?;
    for loss in [Loss::Killed, Loss::HandedOver] {
        lose(stage, &mut servers, &clients, loss)?;
    }
    judge(stage, (servers, &volume), &mut clients)
}

/// The server that has the volume is cut off from the cluster, and not from its clients: they go on
/// by another one, and the one that comes back is fenced.
pub fn cut_off(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "cut-off", 256)?;
    let mut servers = Servers::start(stage, &volume, 2, Where::Severable)?;
    let mut clients = clients(stage, &servers, 2)?;
    for _ in 0..2 {
        lose(stage, &mut servers, &clients, Loss::CutOff)?;
    }
    judge(stage, (servers, &volume), &mut clients)
}

/// A volume is handed over under a load, and nothing else happens: what a client sees of it.
pub fn handed_over(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "handed", 256)?;
    let mut servers = Servers::start(stage, &volume, 2, Where::Here)?;
    let mut clients = clients(stage, &servers, 2)?;
    for _ in 0..5 {
        lose(stage, &mut servers, &clients, Loss::HandedOver)?;
    }
    judge(stage, (servers, &volume), &mut clients)
}

/// What is said to an operator whose words come to nothing, and to who starts a server twice.
pub fn words(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "words", 256)?;
    let file = stage.place.path("file");
    let file = file.to_str().unwrap_or_default();
    stage.refused(&["serve", file, "--listen", "unix:/nowhere", "--standby"], "on a cluster")?;
    stage.refused(&["serve", &volume, "--hand-over"], "no process has it")?;
    let servers = Servers::start(stage, &volume, 1, Where::Here)?;
    stage.refused(&["serve", &volume, "--hand-over"], "no standby waits")?;
    stage.refused(&["serve", &volume, "--take-over"], "no standby waits")?;
    let first = servers.addresses();
    let twice = ["serve", &volume, "--listen", &first, "--standby", "--log-level", "error"];
    stage.refused(&twice, "another process listens there")?;
    stage.refused(&["mount", "rbd:slow/words", "/mnt"], "in use by another process")?;
    servers.end()?;
    stage.run(&["fsck", &volume]).map(drop)
}

fn clients(stage: &Stage<'_>, servers: &Servers<'_>, count: usize) -> Result<Vec<Client>> {
    (0..count)
        .map(|n| {
            let mounted = stage.mount(&servers.addresses(), &format!("client-{n}"))?;
            let dir = mounted.dir.join(format!("of-{n}"));
            fs::create_dir(&dir).map_err(failed("a directory"))?;
            let ledger = Ledger::default();
            let writers = ledger.write(&dir)?;
            Ok(Client { mounted, dir, ledger, writers })
        })
        .collect()
}

/// The server that has the volume loses it; waits until all clients go on, and starts another one
/// in its place.
fn lose(
    stage: &Stage<'_>,
    servers: &mut Servers<'_>,
    clients: &[Client],
    loss: Loss,
) -> Result<()> {
    go_on(clients)?;
    let had = servers.active()?;
    let begun = Instant::now();
    let mut cut = None;
    match loss {
        Loss::Killed => servers.at(had).signal(Signal::KILL)?,
        Loss::HandedOver => {
            stage.run(&["serve", servers.volume(), "--hand-over"])?;
        }
        Loss::Stopped => {
            servers.at(had).signal(Signal::STOP)?;
            stage.run(&["serve", servers.volume(), "--take-over"])?;
        }
        Loss::CutOff => cut = Some(servers.cut_off(had)?),
    }
    servers.wait_for_another(had)?;
    let taken = begun.elapsed();
    go_on(clients)?;
    let longest = clients.iter().map(|client| client.writers.take_longest()).max();
    let longest = longest.unwrap_or_default();
    println!("  {loss:?}: another has it after {taken:.1?}, the longest fsync {longest:.1?}");
    match (loss, cut) {
        (Loss::Stopped, _) => servers.at(had).signal(Signal::CONT)?,
        (_, Some(cut)) => drop(cut),
        _ => return servers.restart(had),
    }
    is_fenced(servers.at(had))?;
    go_on(clients)?;
    servers.restart(had)
}

/// A server that was taken for dead and is back says so, and ends.
fn is_fenced(server: &mut Server) -> Result<()> {
    let said = server.wait_for_end()?;
    match said.contains("fenced") {
        true => Ok(()),
        false => Err(Failed(format!("a server that was fenced does not say so: {said}"))),
    }
}

fn go_on(clients: &[Client]) -> Result<()> {
    clients.iter().try_for_each(|client| {
        let more = client.writers.wait_for_more(GOES_ON);
        more.map_err(|Failed(why)| Failed(format!("{why}: {}", client.mounted.said())))
    })
}

/// Ends the load. Each client's files are judged by the other's mount, and once more when the
/// volume is mounted by itself.
fn judge(
    stage: &Stage<'_>,
    (servers, volume): (Servers<'_>, &str),
    clients: &mut Vec<Client>,
) -> Result<()> {
    go_on(clients)?;
    let mut ledgers = Vec::new();
    let mut mounts = Vec::new();
    for client in clients.drain(..) {
        let Client { mounted, dir, mut ledger, writers } = client;
        if let Some((error, _)) = writers.end(&mut ledger).error {
            return Err(Failed(format!("a writer has failed: {error}: {}", mounted.said())));
        }
        let name = dir.file_name().unwrap_or_default().to_owned();
        ledgers.push((name, ledger));
        mounts.push(mounted);
    }
    for ((name, ledger), by) in ledgers.iter_mut().zip(mounts.iter().rev()) {
        ledger.judge(&by.dir.join(name))?;
    }
    mounts.into_iter().try_for_each(|mounted| stage.unmount(mounted))?;
    servers.end()?;
    stage.run(&["fsck", volume])?;
    let again = stage.mount(volume, "again")?;
    for (name, ledger) in &mut ledgers {
        ledger.judge(&again.dir.join(name))?;
    }
    let total: u64 = ledgers.iter().map(|(_, ledger)| ledger.total()).sum();
    println!("  {volume}: {total} acknowledged by two clients, none lost");
    stage.end(again, volume)
}
