//! A network between client and server that has delays, and breaks: for machines whose kernel has
//! no netem(8).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What it does to bytes.
#[derive(Default)]
pub struct Plan {
    /// How long each byte is on its way, in microseconds.
    pub delay: AtomicU64,
    /// Bytes, of both directions together, after which the connection is cut. Negative:
    /// never.
    pub left: AtomicI64,
    /// What is on its way is lost, and nobody learns of it. Connections made later are well.
    pub hole: AtomicBool,
    /// Pieces from the client that are on their way.
    under_way: AtomicU64,
    /// The most that there were.
    pub most: AtomicU64,
    /// Connections that were cut.
    pub cuts: AtomicU64,
    /// Connections that were made.
    pub made: AtomicU64,
}

/// A proxy on a port of this machine.
pub struct Proxy {
    /// Where clients are to connect.
    pub address: String,
    /// What it does.
    pub plan: Arc<Plan>,
    to: Arc<Mutex<String>>,
    /// Connections as they are now, and whether no other is made.
    live: Arc<Mutex<(Vec<TcpStream>, bool)>>,
}

impl Proxy {
    /// Before the server at `to`, which has the form `tcp:HOST:PORT`.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let plan = Arc::new(Plan { left: AtomicI64::new(-1), ..Plan::default() });
        let to = Arc::new(Mutex::new(to.trim_start_matches("tcp:").to_string()));
        let live: Arc<Mutex<(Vec<TcpStream>, bool)>> = Arc::default();
        let (theirs, target, alive) = (plan.clone(), to.clone(), live.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let target = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A server that is not there: the client finds its connection closed.
                let Ok(server) = TcpStream::connect(target) else { continue };
                let mut alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
                if alive.1 {
                    continue;
                }
                alive.0.extend([&client, &server].map(|end| end.try_clone().unwrap()));
                theirs.made.fetch_add(1, Ordering::SeqCst);
                connect(&client, &server, &theirs);
            }
        });
        Self { address, plan, to, live }
    }

    /// Another server is the one from now on.
    pub fn lead_to(&self, to: &str) {
        let to = to.trim_start_matches("tcp:").into();
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// All connections are cut now, and no other is made until [`Proxy::join`].
    pub fn part(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.1 = true;
        live.0.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    /// Connections arrive again, and so does what is sent.
    pub fn join(&self) {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).1 = false;
    }

    /// The server's ends of all connections are cut now, and the clients learn of nothing until
    /// [`Proxy::fill`]. Connections are made as before.
    pub fn part_from_server(&self) {
        self.swallow();
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        // Each connection is a client's end and a server's.
        let servers = live.0.iter().skip(1).step_by(2);
        servers.for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    /// What is on its way is lost from now on, and nobody learns of it, until [`Proxy::fill`].
    pub fn swallow(&self) {
        self.plan.hole.store(true, Ordering::SeqCst);
    }

    /// What is sent arrives again.
    pub fn fill(&self) {
        self.plan.hole.store(false, Ordering::SeqCst);
    }

    /// Each byte is on its way for so long from now on.
    pub fn delay(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.plan.delay.store(micros, Ordering::SeqCst);
    }

    /// The connection is cut behind this number of bytes.
    pub fn cut_after(&self, bytes: i64) {
        self.plan.left.store(bytes, Ordering::SeqCst);
    }
}

/// Moves bytes both ways, each by two threads.
fn connect(client: &TcpStream, server: &TcpStream, plan: &Arc<Plan>) {
    let hole = plan.hole.load(Ordering::SeqCst);
    for (from, to, counts) in [(client, server, true), (server, client, false)] {
        let [from, to] = [from, to].map(|end| end.try_clone().unwrap());
        let _ = to.set_nodelay(true);
        let plan = plan.clone();
        thread::spawn(move || carry(from, to, &plan, (counts, hole)));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, plan: &Arc<Plan>, (counts, hole): (bool, bool)) {
    let (send, sent) = channel::<(Instant, Vec<u8>)>();
    let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
    let theirs = plan.clone();
    let writes = thread::spawn(move || {
        // One that was there when the hole opened has lost its way.
        let is_lost = || theirs.hole.load(Ordering::SeqCst) && !hole;
        for (due, bytes) in sent {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if counts {
                theirs.under_way.fetch_sub(1, Ordering::SeqCst);
            }
            if is_lost() {
                continue;
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        if !is_lost() {
            let _ = to.shutdown(Shutdown::Write);
        }
    });
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let left = plan.left.load(Ordering::SeqCst);
        let len = if left >= 0 { n.min(left as usize) } else { n };
        if counts {
            let now = plan.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            plan.most.fetch_max(now, Ordering::SeqCst);
        }
        let delay = Duration::from_micros(plan.delay.load(Ordering::SeqCst));
        if send.send((Instant::now() + delay, buffer[..len].to_vec())).is_err() {
            break;
        }
        if left >= 0 && plan.left.fetch_sub(len as i64, Ordering::SeqCst) <= len as i64 {
            plan.left.store(-1, Ordering::SeqCst);
            plan.cuts.fetch_add(1, Ordering::SeqCst);
            drop(send);
            // What was sent until then arrives: the rest of the message never does.
            let _ = writes.join();
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
            return;
        }
    }
    drop(send);
    let _ = writes.join();
}
