//! MariaDB as a process of its own, with its data on the system that is measured, and sysbench's
//! oltp_insert against it. The paper has MySQL.

use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::place::{Failed, Place, Result, arg, failed, output, run};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// It starts, and ends, in this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rows that are there at first.
const ROWS: &str = "--table-size=10000";

/// A server. Dropped, it is killed.
pub struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    /// Makes a database in `dir`, with sysbench's table.
    pub fn prepare(place: &Place, dir: &Path) -> Result<()> {
        let data = format!("--datadir={}", arg(dir)?);
        let how = ["--no-defaults", "--auth-root-authentication-method=normal", "--user=root"];
        run("mariadb-install-db", &[&how[..], &["--skip-test-db", &data]].concat())?;
        let server = Self::start(place, dir)?;
        server.client("CREATE DATABASE sbtest")?;
        server.sysbench(&["prepare"])?;
        server.stop()
    }

    /// Starts one on what was prepared in `dir`, and waits until it answers. Each commit is durable
    /// before it is answered, by fsync.
    pub fn start(place: &Place, dir: &Path) -> Result<Self> {
        let socket = place.path("mariadb.socket");
        let log = place.path("mariadb.log");
        let log = std::fs::File::create(&log).map_err(failed(log.display()))?;
        let mut command = Command::new("mariadbd");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-grant-tables"]);
        command.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync"]);
        command.args(["--innodb-buffer-pool-size=128M", "--innodb-log-file-size=64M"]);
        command.arg(format!("--datadir={}", arg(dir)?));
        command.arg(format!("--socket={}", arg(&socket)?));
        command.arg(format!("--pid-file={}", arg(&place.path("mariadb.pid"))?));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().map_err(failed("mariadbd"))?;
        let mut server = Self { process, socket };
        server.wait_until_it_answers(place)?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self, place: &Place) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().map_err(failed("mariadbd"))? {
                let said = std::fs::read_to_string(place.path("mariadb.log")).unwrap_or_default();
                return Err(Failed(format!("mariadbd: {status}\n{said}")));
            }
            if self.client("SELECT 1").is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(Failed(format!("mariadbd does not answer after {PATIENCE:?}")))
    }

    fn client(&self, statement: &str) -> Result<String> {
        let socket = format!("--socket={}", arg(&self.socket)?);
        run("mariadb", &["--no-defaults", &socket, "--execute", statement])
    }

    fn sysbench(&self, more: &[&str]) -> Result<String> {
        let socket = format!("--mysql-socket={}", arg(&self.socket)?);
        let usual = ["oltp_insert", "--mysql-user=root", &socket, ROWS];
        run("sysbench", &[&usual[..], more].concat())
    }

    /// Inserts by this many threads for so long, and ends the server; rows, and seconds.
    pub fn insert(self, threads: u64, time: Duration) -> Result<(u64, f64)> {
        let seconds = time.as_secs_f64().ceil().max(1.0);
        let threads = format!("--threads={threads}");
        let said = self.sysbench(&[&threads, &format!("--time={seconds}"), "run"])?;
        self.stop()?;
        inserted(&said).ok_or_else(|| Failed(format!("sysbench says: {said}")))
    }

    fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).map_err(|e| Failed(format!("mariadbd: {e}")))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.process.try_wait().map_err(failed("mariadbd"))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failed(format!("mariadbd does not end after {PATIENCE:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Transactions and seconds of what sysbench prints.
fn inserted(said: &str) -> Option<(u64, f64)> {
    let after = |what: &str| said.lines().find_map(|line| line.trim().strip_prefix(what));
    let rows = after("transactions:")?.split_whitespace().next()?.parse().ok()?;
    let seconds: f64 = after("total time:")?.trim().trim_end_matches('s').parse().ok()?;
    (seconds > 0.0).then_some((rows, seconds))
}

/// The server's version.
pub fn version() -> String {
    let said = output("mariadbd", &["--version"]).map(|out| out.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).split_whitespace().nth(2).unwrap_or("?").to_owned()
}

#[cfg(test)]
#[path = "mariadb_tests.rs"]
mod tests;
