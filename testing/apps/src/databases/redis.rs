//! Redis with `appendfsync always`: clients set keys, the log is rewritten meanwhile.

use crate::program::{Output, Program, guarded};
use crate::work::{App, LIMIT, Needs, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITERS: usize = 2;
const REWRITE_EVERY: Duration = Duration::from_secs(2);
/// Keys of one question.
const BATCH: u64 = 500;

/// The application.
#[derive(Default)]
pub struct Redis {
    acks: [AtomicU64; WRITERS],
}

/// A connection that speaks inline commands.
struct Client {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Client {
    fn connect(at: &Site) -> Result<Self> {
        let what = || failed("redis");
        let output = UnixStream::connect(socket(at)).map_err(what())?;
        output.set_read_timeout(Some(LIMIT)).map_err(what())?;
        let input = BufReader::new(output.try_clone().map_err(what())?);
        Ok(Self { input, output })
    }

    /// One command, one line of answer.
    fn ask(&mut self, command: &str) -> Result<String> {
        let mut answer = String::new();
        self.output
            .write_all(format!("{command}\r\n").as_bytes())
            .and_then(|()| self.input.read_line(&mut answer))
            .map_err(failed("redis"))?;
        Ok(answer.trim_end().to_string())
    }
}

fn socket(at: &Site) -> PathBuf {
    at.scratch.join("redis.sock")
}

impl Redis {
    fn server(at: &Site) -> Result<Program> {
        let data = at.dir.join("data");
        let socket = socket(at);
        let args = [
            ["--dir", arg(&data)?],
            ["--unixsocket", arg(&socket)?],
            ["--port", "0"],
            ["--appendonly", "yes"],
            ["--appendfsync", "always"],
            ["--auto-aof-rewrite-percentage", "0"],
            ["--save", ""],
            ["--daemonize", "no"],
        ];
        let server = at.start("redis", guarded("redis-server", &args.concat()), Output::Logged)?;
        let start = Instant::now();
        loop {
            if let Some(status) = server.ended()? {
                return Err(Failed(format!("the server ended: {status}\n{}", server.printed())));
            }
            if Client::connect(at).and_then(|mut c| c.ask("PING")).is_ok_and(|a| a == "+PONG") {
                return Ok(server);
            }
            if at.stopped() || start.elapsed() > LIMIT {
                return Err(Failed(format!("the server does not start\n{}", server.printed())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn write(&self, at: &Site, writer: usize) -> Result<()> {
        let mut client = Client::connect(at)?;
        let value = "x".repeat(200);
        let mut n = self.acks[writer].load(Ordering::Relaxed);
        while !at.stopped() {
            n += 1;
            match client.ask(&format!("SET {writer}:{n} {value}")) {
                Ok(answer) if answer == "+OK" && at.alive() => {
                    self.acks[writer].store(n, Ordering::Relaxed);
                }
                _ if at.stopped() || !at.alive() => break,
                other => return Err(Failed(format!("writer {writer}: {other:?}"))),
            }
        }
        Ok(())
    }

    fn rewrite(at: &Site) -> Result<()> {
        let mut client = Client::connect(at)?;
        let mut last = Instant::now();
        while !at.stopped() {
            std::thread::sleep(Duration::from_millis(10));
            if last.elapsed() >= REWRITE_EVERY {
                last = Instant::now();
                if client.ask("BGREWRITEAOF").is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn find(&self, at: &Site) -> Result<()> {
        let mut client = Client::connect(at)?;
        for (writer, acks) in self.acks.iter().enumerate() {
            let last = acks.load(Ordering::Relaxed);
            for from in (1..=last).step_by(usize::try_from(BATCH).unwrap_or(1)) {
                let to = (from + BATCH - 1).min(last);
                let keys: Vec<String> = (from..=to).map(|n| format!("{writer}:{n}")).collect();
                let answer = client.ask(&format!("EXISTS {}", keys.join(" ")))?;
                if answer != format!(":{}", keys.len()) {
                    return Err(Failed(format!(
                        "writer {writer}: of the acknowledged keys {from} to {to}, the server \
                         finds {answer}"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl App for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let data = at.dir.join("data");
        std::fs::create_dir(&data).map_err(failed(data.display()))?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let server = Self::server(at)?;
        let result = std::thread::scope(|scope| {
            let mut threads: Vec<_> =
                (0..WRITERS).map(|w| scope.spawn(move || self.write(at, w))).collect();
            threads.push(scope.spawn(|| Self::rewrite(at)));
            let panicked = |_| Err(Failed("a writer panicked".into()));
            threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(panicked))
        });
        let printed = server.printed();
        result.map_err(|Failed(e)| Failed(format!("{e}\n{printed}")))
    }

    /// The server first: it cuts off a record that was never acknowledged, as it documents.
    fn check(&mut self, at: &Site) -> Result<()> {
        let server = Self::server(at)?;
        self.find(at)?;
        let mut client = Client::connect(at)?;
        // No answer comes to this one.
        let _ = client.ask("SHUTDOWN NOSAVE");
        let status = server.wait(LIMIT, || false)?;
        if !status.success() {
            return Err(Failed(format!("the server's end: {status}\n{}", server.printed())));
        }
        let manifest = at.dir.join("data/appendonlydir/appendonly.aof.manifest");
        at.run("redis-check-aof", guarded("redis-check-aof", &[arg(&manifest)?])).map(drop)
    }

    fn needs(&self) -> Needs {
        Needs::Leases
    }

    fn acknowledged(&self) -> String {
        let total: u64 = self.acks.iter().map(|a| a.load(Ordering::Relaxed)).sum();
        format!("{total} keys")
    }
}
