//! PostgreSQL as its own user: unix sockets alone, each commit durable before it is answered.

use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const USER: &str = "postgres";
/// Where Debian has a directory for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// It starts, and ends, in this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// pgbench's scale, of 100,000 rows each. Each transaction changes the row of a branch, and there
/// is one for each unit of scale: with fewer than clients these would wait for each other.
const SCALE: &str = "4";
/// pgbench's clients.
const CLIENTS: &str = "4";
/// Threads of pgbench itself.
const THREADS: &str = "2";

/// A database that is ready to be copied, and the programs.
pub struct Postgres {
    programs: PathBuf,
    /// The database's directory, of a server that has ended.
    template: PathBuf,
    sockets: PathBuf,
    log: PathBuf,
}

/// A server. Dropped, it is killed.
pub struct Server<'p> {
    postgres: &'p Postgres,
    process: Child,
}

/// The directory with the programs of the newest version; or, in words, why no such directory was
/// found.
pub fn installed() -> std::result::Result<PathBuf, String> {
    newest(Path::new(VERSIONS)).ok_or_else(|| {
        format!("no PostgreSQL with pgbench is installed in {VERSIONS}; apt install postgresql")
    })
}

fn newest(root: &Path) -> Option<PathBuf> {
    let whole = |bin: &Path| ["postgres", "initdb", "pgbench"].map(|p| bin.join(p).exists());
    let version = |p: &PathBuf| p.file_name()?.to_str()?.parse::<u32>().ok();
    let all = fs::read_dir(root).ok()?.flatten().map(|e| e.path());
    let all = all.filter(|p| version(p).is_some() && whole(&p.join("bin")) == [true; 3]);
    Some(all.max_by_key(version)?.join("bin"))
}

impl Postgres {
    /// Makes a database with pgbench's tables.
    pub fn prepare(place: &Place, programs: PathBuf) -> Result<Self> {
        // The server's user has to get through.
        let root = place.path("");
        fs::set_permissions(&root, Permissions::from_mode(0o755))
            .map_err(failed(root.display()))?;
        let path = |name: &str| place.path(&format!("postgres.{name}"));
        let (template, sockets, log) = (path("template"), path("sockets"), path("log"));
        private(&template)?;
        private(&sockets)?;
        let postgres = Self { programs, template, sockets, log };
        let data = arg(&postgres.template)?;
        let how = ["-A", "trust", "-U", USER, "--no-locale", "-E", "UTF8", "--no-sync"];
        postgres.run("initdb", &[&["-D", data], &how[..]].concat())?;
        let server = postgres.serve(&postgres.template)?;
        postgres.run("pgbench", &["-i", "-q", "-s", SCALE])?;
        server.stop()?;
        Ok(postgres)
    }

    /// One of its programs, as its user. It is told to end when this process does.
    fn program(&self, name: &str, args: &[&str]) -> Result<Command> {
        let program = self.programs.join(name);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--pdeathsig", "QUIT"]);
        command.args(["--", arg(&program)?]).args(args).stdin(Stdio::null()).current_dir("/");
        command.env("PGHOST", &self.sockets).env("PGUSER", USER).env("PGDATABASE", USER);
        command.env_remove("PGPORT");
        Ok(command)
    }

    fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        let out = self.program(name, args)?.output().map_err(failed(name))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&out.stderr);
        Err(Failed(format!("{name} {}: {}\n{text}{errors}", args.join(" "), out.status)))
    }

    /// A copy of the database in a new directory.
    pub fn copy_to(&self, data: &Path) -> Result<()> {
        run("cp", &["-a", arg(&self.template)?, arg(data)?]).map(drop)
    }

    /// A server that answers.
    pub fn serve(&self, data: &Path) -> Result<Server<'_>> {
        let log = File::create(&self.log).map_err(failed(self.log.display()))?;
        let other = log.try_clone().map_err(failed(self.log.display()))?;
        let sockets = format!("unix_socket_directories={}", self.sockets.display());
        let args = ["-D", arg(data)?, "-c", "listen_addresses=", "-c", &sockets, "-c", "fsync=on"];
        let mut command = self.program("postgres", &args)?;
        let process = command.stdout(log).stderr(other).spawn().map_err(failed("postgres"))?;
        let mut server = Server { postgres: self, process };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Server<'_> {
    fn wait_until_it_answers(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().map_err(failed("postgres"))? {
                return Err(Failed(format!("postgres: {status}\n{}", self.postgres.said())));
            }
            if self.postgres.run("pg_isready", &["-q"]).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Failed(format!("postgres does not answer\n{}", self.postgres.said())))
    }

    /// pgbench's usual transactions by all clients for this many seconds: transactions, and their
    /// rate.
    pub fn bench(&self, seconds: u64) -> Result<(u64, f64)> {
        let seconds = seconds.to_string();
        let said =
            self.postgres.run("pgbench", &["-n", "-c", CLIENTS, "-j", THREADS, "-T", &seconds])?;
        processed(&said).ok_or_else(|| Failed(format!("pgbench says: {said}")))
    }

    /// Ends it as its own command does: clients are cut off, and a checkpoint is made.
    pub fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .map_err(|e| Failed(format!("postgres: {e}")))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.process.try_wait().map_err(failed("postgres"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let said = self.postgres.said();
                    return Err(Failed(format!("postgres: {status}\n{said}")));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Err(Failed(format!("postgres does not end after {PATIENCE:?}")))
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Its own processes end with it: each looks whether it is there.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory for its user alone.
fn private(dir: &Path) -> Result<()> {
    let id = |flag| {
        let text = run("id", &[flag, USER])?;
        text.trim().parse::<u32>().map_err(|e| Failed(format!("id {USER}: {e}")))
    };
    fs::create_dir(dir).map_err(failed(dir.display()))?;
    chown(dir, Some(id("-u")?), Some(id("-g")?)).map_err(failed(dir.display()))?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed(dir.display()))
}

/// Transactions and their rate of what pgbench prints; none if one of them failed.
fn processed(said: &str) -> Option<(u64, f64)> {
    let after = |what: &str| said.lines().find_map(|line| line.trim().strip_prefix(what));
    let first = |what: &str| after(what)?.split_whitespace().next();
    let failed = first("number of failed transactions:").is_some_and(|n| n != "0");
    let all = first("number of transactions actually processed:")?.parse().ok()?;
    let rate: f64 = first("tps =")?.parse().ok()?;
    (!failed && rate > 0.0).then_some((all, rate))
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
