//! MariaDB: two clients whose every commit is counted, beside sysbench's mixed transactions.

use crate::program::{Output, Program, guarded};
use crate::work::{App, LIMIT, Needs, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITERS: usize = 2;
/// sysbench's table.
const SYSBENCH: [&str; 4] =
    ["oltp_read_write", "--mysql-user=root", "--table-size=2000", "--threads=2"];

/// The application.
#[derive(Default)]
pub struct MariaDb {
    acks: [AtomicU64; WRITERS],
}

fn socket(at: &Site) -> PathBuf {
    at.scratch.join("mariadb.socket")
}

fn data(at: &Site) -> Result<String> {
    Ok(format!("--datadir={}", arg(&at.dir.join("data"))?))
}

fn client(at: &Site, args: &[&str]) -> Result<std::process::Command> {
    let socket = format!("--socket={}", arg(&socket(at))?);
    let usual = ["--no-defaults", &socket, "--user=root", "--batch", "--skip-column-names"];
    Ok(guarded("mariadb", &[&usual, args].concat()))
}

fn sql(at: &Site, statement: &str) -> Result<String> {
    let command = client(at, &["--execute", statement])?;
    Ok(at.run("mariadb-client", command)?.trim().to_string())
}

fn sysbench(at: &Site, more: &[&str]) -> Result<std::process::Command> {
    let socket = format!("--mysql-socket={}", arg(&socket(at))?);
    Ok(guarded("sysbench", &[&SYSBENCH, &[socket.as_str()][..], more].concat()))
}

/// A server that answers. Each commit is durable before it is answered, by fsync(2).
fn server(at: &Site) -> Result<Program> {
    let (data, socket) = (data(at)?, format!("--socket={}", arg(&socket(at))?));
    let pid = format!("--pid-file={}", arg(&at.scratch.join("mariadb.pid"))?);
    let args = [
        ["--no-defaults", "--user=root"],
        ["--skip-networking", "--skip-grant-tables"],
        ["--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync"],
        ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"],
        ["--log-bin", "--sync-binlog=1"],
        [&data, &socket],
        [&pid, "--server-id=1"],
    ];
    let server = at.start("mariadbd", guarded("mariadbd", &args.concat()), Output::Logged)?;
    let start = Instant::now();
    loop {
        if let Some(status) = server.ended()? {
            return Err(Failed(format!("the server ended: {status}\n{}", server.printed())));
        }
        if sql(at, "SELECT 1").is_ok() {
            return Ok(server);
        }
        if at.stopped() || start.elapsed() > LIMIT {
            return Err(Failed(format!("the server does not start\n{}", server.printed())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A clean end.
fn shut_down(server: &Program) -> Result<()> {
    server.signal(rustix::process::Signal::TERM)?;
    let status = server.wait(LIMIT, || false)?;
    if status.success() {
        return Ok(());
    }
    Err(Failed(format!("the server's end: {status}\n{}", server.printed())))
}

impl MariaDb {
    fn write(&self, at: &Site, writer: usize) -> Result<()> {
        let mut command = client(at, &["--unbuffered", "test"])?;
        command.stdin(Stdio::piped());
        let client = at.start(&format!("mariadb-{writer}"), command, Output::Piped)?;
        let pipes = client.child(|c| (c.stdin.take(), c.stdout.take()));
        let (Some(mut input), Some(output)) = pipes else {
            return Err(Failed("mariadb without pipes".into()));
        };
        let mut lines = BufReader::new(output).lines();
        let mut n = self.acks[writer].load(Ordering::Relaxed);
        while !at.stopped() {
            n += 1;
            // After a crash the newest may be there without having been acknowledged.
            let sent = writeln!(
                input,
                "INSERT IGNORE INTO log VALUES({writer}, {n}, repeat('x', 300));\nSELECT {n};"
            );
            match (sent, lines.next()) {
                (Ok(()), Some(Ok(line))) if line == n.to_string() && at.alive() => {
                    self.acks[writer].store(n, Ordering::Relaxed);
                }
                _ if at.stopped() || !at.alive() => break,
                (_, line) => {
                    let text = client.printed();
                    return Err(Failed(format!("writer {writer}: answer {line:?}\n{text}")));
                }
            }
        }
        Ok(())
    }
}

impl App for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let dir = at.dir.join("data");
        std::fs::create_dir(&dir).map_err(failed(dir.display()))?;
        let (data, how) = (data(at)?, "--auth-root-authentication-method=normal");
        let args = ["--no-defaults", how, "--user=root", "--skip-test-db", &data];
        at.run("mariadb-install-db", guarded("mariadb-install-db", &args))?;
        let server = server(at)?;
        sql(at, "CREATE DATABASE test; CREATE DATABASE sbtest")?;
        let columns = "writer INT, n INT, payload TEXT, PRIMARY KEY(writer, n)";
        sql(at, &format!("CREATE TABLE test.log({columns}) ENGINE=InnoDB"))?;
        at.run("sysbench-prepare", sysbench(at, &["prepare"])?)?;
        shut_down(&server)
    }

    fn work(&self, at: &Site) -> Result<()> {
        let server = server(at)?;
        let others = sysbench(at, &["--time=3600", "--events=0", "run"])?;
        let others = at.start("sysbench", others, Output::Logged)?;
        let result = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|w| scope.spawn(move || self.write(at, w))).collect();
            let panicked = |_| Err(Failed("a writer panicked".into()));
            writers.into_iter().try_for_each(|w| w.join().unwrap_or_else(panicked))
        });
        if let (Some(status), true) = (others.ended()?, at.alive()) {
            return Err(Failed(format!("sysbench: {status}\n{}", others.printed())));
        }
        let printed = server.printed();
        result.map_err(|Failed(e)| Failed(format!("{e}\n{printed}")))
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        let server = server(at)?;
        for (writer, acks) in self.acks.iter().enumerate() {
            let n = acks.load(Ordering::Relaxed);
            let found = sql(
                at,
                &format!(
                    "SELECT count(*) FROM test.log WHERE writer={writer} AND n<={n} AND \
                     length(payload)=300"
                ),
            )?;
            if found != n.to_string() {
                return Err(Failed(format!(
                    "writer {writer}: {n} commits were acknowledged, {found} are there"
                )));
            }
        }
        let checked = sql(at, "CHECK TABLE test.log, sbtest.sbtest1 EXTENDED")?;
        if checked.lines().count() != 2 || !checked.lines().all(|line| line.ends_with("OK")) {
            return Err(Failed(format!("CHECK TABLE says:\n{checked}")));
        }
        shut_down(&server)
    }

    fn needs(&self) -> Needs {
        Needs::Leases
    }

    fn acknowledged(&self) -> String {
        let total: u64 = self.acks.iter().map(|a| a.load(Ordering::Relaxed)).sum();
        format!("{total} commits")
    }
}
