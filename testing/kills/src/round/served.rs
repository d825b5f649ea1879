//! What becomes of the server of a volume while the load goes on, and how such rounds end.

use super::{After, Left, Run, check, wait};
use crate::plan::served::{Death, Finish};
use crate::plan::{Mount, Plan, WORKERS};
use crate::signals::Signals;
use crate::stage::{LIMIT, Stage};
use crate::tree::walk;
use crate::worker::Worker;
use rustix::process::Signal;
use siftfs_rig::place::{Failed, Result};
use std::thread::sleep;
use std::time::Duration;

/// Something becomes of the server: the workers' mount waits, and comes back.
pub(super) fn happen(
    stage: &mut Stage<'_>,
    mount: &Mount,
    death: Death,
    signals: &Signals,
) -> Result<()> {
    let pause = |stage: &mut Stage<'_>, ms| wait(stage, Duration::from_millis(ms), signals);
    signals.server_dies();
    match death {
        Death::Kill(ms) => {
            stage.kill_server()?;
            pause(stage, ms)?;
        }
        Death::Twice(ms) => {
            stage.kill_server()?;
            stage.start_server(mount)?;
            pause(stage, ms)?;
            stage.kill_server()?;
        }
        Death::Recovering(ms) => {
            stage.kill_server()?;
            stage.spawn_server(mount)?;
            pause(stage, ms)?;
            stage.kill_server()?;
        }
        Death::Term(ms) => {
            stage.end_server(Signal::TERM)?;
            pause(stage, ms)?;
        }
        Death::Stop(ms) => {
            stage.signal_server(Signal::STOP)?;
            pause(stage, ms)?;
            match ms % 2 {
                0 => stage.signal_server(Signal::CONT)?,
                _ => stage.kill_server()?,
            }
        }
        Death::WithDevice(ms) => {
            stage.kill_server()?;
            stage.summary.device_kills += u64::from(stage.has_device());
            stage.kill_device()?;
            pause(stage, ms)?;
        }
    }
    if !stage.has_server() {
        stage.start_server(mount)?;
    }
    stage.until_it_is_back()?;
    signals.server_is_back();
    check(stage, signals)
}

/// What of the end comes while the load runs.
pub(super) fn finish(stage: &mut Stage<'_>, finish: Finish, signals: &Signals) -> Result<()> {
    let kill_client = |stage: &mut Stage<'_>| {
        signals.host_dies();
        stage.summary.host_kills += 1;
        stage.kill_host()
    };
    let kill_server = |stage: &mut Stage<'_>| {
        signals.server_dies();
        stage.kill_server()
    };
    match finish {
        Finish::ClientInUnmount(_) | Finish::ServerInUnmount(_) => Ok(()),
        Finish::Client => kill_client(stage),
        Finish::ClientThenServer(ms) => {
            kill_client(stage)?;
            sleep(Duration::from_millis(ms));
            kill_server(stage)
        }
        Finish::ServerThenClient(ms) => {
            kill_server(stage)?;
            sleep(Duration::from_millis(ms));
            kill_client(stage)
        }
        Finish::All => {
            kill_server(stage)?;
            stage.summary.device_kills += u64::from(stage.has_device());
            stage.kill_device()?;
            kill_client(stage)
        }
    }
}

impl Run<'_> {
    /// What of the end comes when the load has stopped.
    pub(super) fn end_served(&mut self, finish: Finish) -> Result<Left> {
        match finish {
            Finish::Client => Ok(Left::AtServer),
            Finish::ClientThenServer(_) | Finish::ServerThenClient(_) | Finish::All => {
                Ok(Left::Dirty)
            }
            Finish::ClientInUnmount(ms) => self.client_in_unmount(Duration::from_millis(ms)),
            Finish::ServerInUnmount(ms) => self.server_in_unmount(Duration::from_millis(ms)),
        }
    }

    fn client_in_unmount(&mut self, after: Duration) -> Result<Left> {
        // At the server, which lives, all of it is as good as durable.
        self.compare_mounted()?;
        let stage = &mut self.stage;
        let mut command = stage.start_unmount()?;
        sleep(after);
        if stage.host.as_mut().map_or(Ok(None), |host| host.ended())?.is_some() {
            stage.finish_unmount(command)?;
            return Ok(Left::Plain);
        }
        stage.summary.host_kills += 1;
        stage.kill_host()?;
        // It may have found the daemon gone, or have ended before.
        let _status = command.wait(LIMIT)?;
        stage.detach();
        Ok(Left::AtServer)
    }

    /// An unmount whose server dies ends all the same. If it says that all is well, all that was
    /// answered is durable.
    fn server_in_unmount(&mut self, after: Duration) -> Result<Left> {
        self.all_is_there()?;
        let stage = &mut self.stage;
        let mut command = stage.start_unmount()?;
        sleep(after);
        stage.kill_server()?;
        let status = command.wait(LIMIT)?;
        let Some(mut host) = stage.host.take() else { return Ok(Left::Dirty) };
        let ended = host.wait(LIMIT)?;
        stage.detach();
        if status.success() {
            if !ended.success() {
                return Err(Failed(format!("the unmount ended well, and the daemon with {ended}")));
            }
            self.workers.iter_mut().for_each(Worker::all_is_kept);
        }
        Ok(Left::Dirty)
    }

    /// The tree as the mount shows it is the model's, which does not say that it is durable.
    fn all_is_there(&mut self) -> Result<()> {
        self.stage.summary.trees_compared += WORKERS as u64;
        for worker in &self.workers {
            let tree = walk(&worker.place).map_err(Failed)?;
            if let Some(why) = worker.differences(&tree).first() {
                return Err(Failed(format!("worker {}: {why}", worker.place.worker)));
            }
        }
        Ok(())
    }

    /// The mount died, and its server has all that it answered: another mount of it shows that, and
    /// so does the volume when the server has ended in order.
    pub(super) fn after_client(&mut self, plan: &Plan, next: &Mount) -> Result<()> {
        self.stage.watch.alive();
        if !plan.recovery.offline {
            self.stage.mount(&plan.mount)?;
            let dir = self.stage.dir.clone();
            self.judge(&dir, After::Death)?;
            let command = self.stage.start_unmount()?;
            self.stage.finish_unmount(command)?;
            self.stage.summary.trees_after_deaths += WORKERS as u64;
            return self.after_unmount(next);
        }
        self.stage.end_server(Signal::TERM)?;
        self.judge_offline()?;
        self.stage.end_device(Signal::TERM)?;
        self.stage.mount(next)
    }
}
