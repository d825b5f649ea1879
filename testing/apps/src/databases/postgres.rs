//! PostgreSQL as an unprivileged user: pgbench beside writers whose every commit is counted.

use crate::program::{Output, Program, guarded};
use crate::work::{App, LIMIT, Site};
use siftfs_rig::place::{Failed, Result, arg, failed, run};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USER: &str = "postgres";
const WRITERS: usize = 2;

/// The application.
pub struct Postgres {
    programs: PathBuf,
    acks: [AtomicU64; WRITERS],
}

impl Postgres {
    /// The newest version that is installed.
    pub fn new() -> Result<Self> {
        let root = Path::new("/usr/lib/postgresql");
        let versions = std::fs::read_dir(root).map_err(failed(root.display()))?;
        let number = |p: &PathBuf| p.file_name()?.to_str()?.parse::<u32>().ok();
        let newest = versions.flatten().map(|e| e.path()).filter(|p| number(p).is_some());
        let newest = newest.max_by_key(number);
        let newest = newest.ok_or_else(|| Failed("no PostgreSQL server is installed".into()))?;
        Ok(Self { programs: newest.join("bin"), acks: Default::default() })
    }

    /// One of its programs, guarded and as its own user.
    fn program(&self, name: &str, args: &[&str]) -> Result<Command> {
        let program = self.programs.join(name);
        let mut all = vec!["--reuid", USER, "--regid", USER, "--init-groups", "--"];
        all.push(arg(&program)?);
        all.extend(args);
        let mut command = guarded("setpriv", &all);
        command.current_dir("/").env("PGHOST", "").env_remove("PGPORT");
        Ok(command)
    }

    fn client(&self, at: &Site, name: &str, args: &[&str]) -> Result<Command> {
        let mut command = self.program(name, args)?;
        command.env("PGHOST", sockets(at)).env("PGUSER", USER).env("PGDATABASE", USER);
        Ok(command)
    }

    fn sql(&self, at: &Site, script: &str) -> Result<String> {
        let args = ["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", script];
        Ok(at.run("psql", self.client(at, "psql", &args)?)?.trim().to_string())
    }

    /// A server that answers.
    fn server(&self, at: &Site) -> Result<Program> {
        let data = at.dir.join("data");
        let sockets = format!("unix_socket_directories={}", sockets(at).display());
        let args = ["-D", arg(&data)?, "-c", "listen_addresses=", "-c", &sockets];
        let server = at.start("postgres", self.program("postgres", &args)?, Output::Logged)?;
        let start = Instant::now();
        loop {
            if let Some(status) = server.ended()? {
                return Err(Failed(format!("the server ended: {status}\n{}", server.printed())));
            }
            let ready = self.client(at, "pg_isready", &["-q"])?;
            if at.run("pg_isready", ready).is_ok() {
                return Ok(server);
            }
            if at.stopped() || start.elapsed() > LIMIT {
                return Err(Failed(format!("the server does not start\n{}", server.printed())));
            }
        }
    }

    /// A checkpoint, and a clean end.
    fn shut_down(server: &Program) -> Result<()> {
        server.signal(rustix::process::Signal::INT)?;
        let status = server.wait(LIMIT, || false)?;
        if status.success() {
            return Ok(());
        }
        Err(Failed(format!("the server's end: {status}\n{}", server.printed())))
    }

    fn write(&self, at: &Site, writer: usize) -> Result<()> {
        let args = ["-qAtX", "-v", "ON_ERROR_STOP=1"];
        let mut command = self.client(at, "psql", &args)?;
        command.stdin(Stdio::piped());
        let psql = at.start(&format!("writer-{writer}"), command, Output::Piped)?;
        let pipes = psql.child(|c| (c.stdin.take(), c.stdout.take()));
        let (Some(mut input), Some(output)) = pipes else {
            return Err(Failed("psql without pipes".into()));
        };
        let mut lines = BufReader::new(output).lines();
        let mut n = self.acks[writer].load(Ordering::Relaxed);
        while !at.stopped() {
            n += 1;
            // After a crash the newest may be there without having been acknowledged.
            let sent = writeln!(
                input,
                "INSERT INTO log VALUES({writer}, {n}, repeat('x', 300)) ON CONFLICT DO NOTHING;\n\
                 SELECT 'done', {n};"
            );
            match (sent, lines.next()) {
                (Ok(()), Some(Ok(line))) if line == format!("done|{n}") && at.alive() => {
                    self.acks[writer].store(n, Ordering::Relaxed);
                }
                _ if at.stopped() || !at.alive() => break,
                (_, line) => {
                    let text = psql.printed();
                    return Err(Failed(format!("writer {writer}: answer {line:?}\n{text}")));
                }
            }
        }
        Ok(())
    }
}

fn sockets(at: &Site) -> PathBuf {
    at.scratch.join("sockets")
}

/// Directories for its user alone.
fn private(user: &str, dir: &Path) -> Result<()> {
    let id = |flag| {
        let text = run("id", &[flag, user])?;
        text.trim().parse::<u32>().map_err(|e| Failed(format!("id {user}: {e}")))
    };
    std::fs::create_dir(dir).map_err(failed(dir.display()))?;
    chown(dir, Some(id("-u")?), Some(id("-g")?)).map_err(failed(dir.display()))?;
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(dir, mode).map_err(failed(dir.display()))
}

/// The sums that pgbench's transactions keep equal.
const SUMS: &str = "SELECT count(DISTINCT s) FROM (\
    SELECT sum(abalance) s FROM pgbench_accounts UNION ALL \
    SELECT sum(tbalance) FROM pgbench_tellers UNION ALL \
    SELECT sum(bbalance) FROM pgbench_branches UNION ALL \
    SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS sums";

impl App for Postgres {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let data = at.dir.join("data");
        private(USER, &data)?;
        private(USER, &sockets(at))?;
        let args = ["-D", arg(&data)?, "-A", "trust", "-U", USER, "--no-locale", "-E", "UTF8"];
        at.run("initdb", self.program("initdb", &args)?)?;
        let server = self.server(at)?;
        self.sql(at, "CREATE TABLE log(writer int, n int, payload text, PRIMARY KEY(writer, n))")?;
        self.sql(at, "CREATE EXTENSION amcheck")?;
        at.run("pgbench", self.client(at, "pgbench", &["-i", "-q", "-s", "2"])?)?;
        Self::shut_down(&server)
    }

    fn work(&self, at: &Site) -> Result<()> {
        let server = self.server(at)?;
        let pgbench = self.client(at, "pgbench", &["-n", "-c", "2", "-T", "3600"])?;
        let pgbench = at.start("pgbench", pgbench, Output::Logged)?;
        let result = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|w| scope.spawn(move || self.write(at, w))).collect();
            while !at.stopped() && writers.iter().all(|w| !w.is_finished()) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let panicked = |_| Err(Failed("a writer panicked".into()));
            writers.into_iter().try_for_each(|w| w.join().unwrap_or_else(panicked))
        });
        if let (Some(status), true) = (pgbench.ended()?, at.alive()) {
            return Err(Failed(format!("pgbench: {status}\n{}", pgbench.printed())));
        }
        drop(server);
        result
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        let server = self.server(at)?;
        for (writer, acks) in self.acks.iter().enumerate() {
            let n = acks.load(Ordering::Relaxed);
            let query = format!(
                "SELECT count(*) FROM log WHERE writer={writer} AND n<={n} AND length(payload)=300"
            );
            let found = self.sql(at, &query)?;
            if found != n.to_string() {
                return Err(Failed(format!(
                    "writer {writer}: {n} commits were acknowledged, {found} are there"
                )));
            }
        }
        if self.sql(at, SUMS)? != "1" {
            return Err(Failed("pgbench's balances do not agree with its history".into()));
        }
        let args = ["--heapallindexed", "--all"];
        at.run("pg_amcheck", self.client(at, "pg_amcheck", &args)?)?;
        at.run("pg_dump", self.client(at, "pg_dump", &["-f", "/dev/null"])?)?;
        Self::shut_down(&server)
    }

    fn acknowledged(&self) -> String {
        let total: u64 = self.acks.iter().map(|a| a.load(Ordering::Relaxed)).sum();
        format!("{total} commits")
    }
}
