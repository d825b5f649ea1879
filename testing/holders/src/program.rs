//! A program in a process of its own, and what it is told to do.

use crate::raw::Raw;
use crate::world::World;
use siftfs_accel::{Leased, Session, Through, Token};
use siftfs_base::InodeNr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process, from outside.
pub struct Program {
    child: Child,
    says: BufReader<ChildStdout>,
    told: ChildStdin,
}

impl Program {
    /// Starts one that has entered, and holds the lease of a file.
    pub fn start(command: &str, world: &World, ino: InodeNr, raw: bool) -> Self {
        let mut child = Command::new(command)
            .arg(world.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let says = BufReader::new(child.stdout.take().expect("a pipe"));
        let told = child.stdin.take().expect("a pipe");
        let pid = child.id();
        let mut program = Self { child, says, told };
        let tokens = [0; 2].map(|_| hex(&world.tokens.mint(ino, pid, true)));
        let kind = if raw { "raw" } else { "enter" };
        assert_eq!(program.tell(&format!("{kind} {} {}", tokens[0], tokens[1])), "leased");
        program
    }

    /// Tells it to do something, without a wait.
    pub fn send(&mut self, what: &str) {
        writeln!(self.told, "{what}").expect("it listens");
    }

    /// What it says next.
    pub fn says(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a line");
        line.trim_end().into()
    }

    /// Tells it to do something, and what it says of it.
    pub fn tell(&mut self, what: &str) -> String {
        self.send(what);
        self.says()
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    /// Waits until it is stopped.
    pub fn wait_stopped(&self) {
        let path = format!("/proc/{}/stat", self.pid());
        loop {
            let stat = std::fs::read_to_string(&path).expect("it is there");
            let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
            if state == Some('T') {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is ours");
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) {
        drop(self.told);
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn hex(token: &Token) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn token(hex: &str) -> Token {
    let bytes: Vec<u8> = (0..16)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("a number"))
        .collect();
    bytes.try_into().expect("sixteen")
}

/// What the program itself does: what it is told, line by line.
pub fn run(socket: &Path) {
    let mut leased: Option<(Session, Leased)> = None;
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (words.as_slice(), &leased) {
            (["raw", enter, lease], _) => {
                return raw(socket, (token(enter), token(lease)), lines);
            }
            (["enter", enter, lease], _) => {
                let session = Session::enter_with(socket, &token(enter)).expect("enter");
                let file = session.lease_with(&token(lease)).expect("lease");
                leased = Some((session, file));
                "leased".into()
            }
            (["again", lease], Some((session, _))) => {
                let session = session.clone();
                // The old lease is given back first.
                leased = None;
                match session.lease_with(&token(lease)) {
                    Ok(file) => {
                        leased = Some((session, file));
                        "leased".into()
                    }
                    Err(e) => e.to_string(),
                }
            }
            (["append", text], Some((_, file))) => through(file.append(text.as_bytes())),
            (["write", at, text], Some((_, file))) => {
                through(file.write_at(at.parse().expect("a number"), text.as_bytes()))
            }
            (["fill", pieces], Some((_, file))) => {
                let pieces: u32 = pieces.parse().expect("a number");
                let done = (0..pieces).filter(|_| file.append(&[b'f'; 4096]) != Through::Mount);
                done.count().to_string()
            }
            (["sync"], Some((_, file))) => match file.sync(false) {
                Ok(done) => through(done.map_unit()),
                Err(e) => format!("error {}", e.raw_os_error().unwrap_or(0)),
            },
            (["len"], Some((_, file))) => through(file.len()),
            (["read"], Some((_, file))) => {
                let mut bytes = [0; 4096];
                match file.read_at(0, &mut bytes).expect("read") {
                    Through::Lease(n) => String::from_utf8_lossy(&bytes[..n]).into_owned(),
                    Through::Mount => "mount".into(),
                }
            }
            _ => panic!("what is {line}?"),
        };
        println!("{answer}");
    }
}

fn through(done: Through<impl ToString>) -> String {
    match done {
        Through::Lease(value) => value.to_string(),
        Through::Mount => "mount".into(),
    }
}

/// Nothing, as something that can be said.
trait Unit {
    fn map_unit(self) -> Through<&'static str>;
}

impl Unit for Through<()> {
    fn map_unit(self) -> Through<&'static str> {
        match self {
            Through::Lease(()) => Through::Lease("durable"),
            Through::Mount => Through::Mount,
        }
    }
}

/// A program without the library.
fn raw(
    socket: &Path,
    (enter, lease): (Token, Token),
    lines: impl Iterator<Item = std::io::Result<String>>,
) {
    let mut raw = Raw::enter(socket, enter);
    let held = raw.lease(lease);
    println!("leased");
    for line in lines {
        let line = line.expect("a line");
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            // Publishes, and stops before it looks.
            ["stop", text] => {
                let published = raw.publish(held, text.as_bytes());
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("stops");
                println!("{}", if raw.look(&published) { "done" } else { "mount" });
            }
            ["rage", seed] => {
                raw.rage(held, seed.parse().expect("a number"));
                println!("over");
                return;
            }
            _ => panic!("what is {line}?"),
        }
    }
}
