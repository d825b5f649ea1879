//! Private logs in files of this machine, of a volume that a cluster has.

use siftfs_rbd_tests::ledger::Ledger;
use siftfs_rbd_tests::stage::{Mounted, Stage, is_refusal};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fs;
use std::time::Duration;

/// How long a writer may take to get further.
const GOES_ON: Duration = Duration::from_secs(60);

/// Logs that may die with the machine are refused unless the mount says that they may. A killed
/// daemon's are taken in by the next one; without them, as on another machine, the volume is opened
/// by nothing but a word that they are lost, and has all that the daemon itself had acknowledged.
pub fn private_logs(stage: &Stage<'_>) -> Result<()> {
    let volume = stage.volume("slow", "logs", 256)?;
    let logs = stage.place.path("private-logs");
    let options = format!("private_logs={}", arg(&logs)?);
    let dir = stage.place.mount_point("refused")?;
    for (options, why) in
        [(&*options, "log_may_die"), ("private_logs=on,log_may_die", "in which directory")]
    {
        let mut mount = stage.siftfs(&["mount", &volume, arg(&dir)?, "-o", options]);
        is_refusal(&mut mount, why)?;
    }
    let options = format!("{options},log_may_die");
    let mount = || stage.mount_by(&volume, "logs", &["-o", &options]);
    let mut ledger = Ledger::default();
    killed_under_load(mount()?, &mut ledger)?;
    let again = mount()?;
    ledger.judge(&again.dir)?;
    killed_under_load(again, &mut ledger)?;
    fs::remove_dir_all(&logs).map_err(failed("the directory of logs"))?;
    stage.refused(&["recover", &volume], "is missing")?;
    stage.run(&["recover", &volume, "--discard-log"])?;
    let mounted = stage.mount(&volume, "logs")?;
    ledger.judge(&mounted.dir)?;
    stage.end(mounted, &volume)?;
    match ledger.total() {
        0 => Err(Failed("nothing was acknowledged".into())),
        total => {
            println!("  {total} acknowledged, none lost with the directory of private logs");
            Ok(())
        }
    }
}

/// Writes for a while, and kills the mount's process.
fn killed_under_load(mounted: Mounted, ledger: &mut Ledger) -> Result<()> {
    let writers = ledger.write(&mounted.dir)?;
    writers.wait_for_more(GOES_ON)?;
    mounted.kill()?;
    writers.end(ledger);
    Ok(())
}
