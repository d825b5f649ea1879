//! What the transports cost: time of a round trip, with spinning and without, and throughput of
//! images. The Service is a process of its own, except in process. Every round measures each case
//! once, one after the other, so that a machine's moods meet all of them; printed are medians,
//! with the smallest and the largest in brackets.
//!
//! `cargo run --release -p siftfs-transport --example transport_cost [ROUNDS]`

use siftfs_base::{BlockRun, SharedBlock, TxnSeq};
use siftfs_transport::{
    Address, CallerEnd, Listener, Received, ServerEnd, TransportOptions, connect, in_process,
};
use siftfs_wire::{BlockProtocol, DirectRun, FromService, ToService};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const TRIPS: u32 = 2000;
const IMAGES: u32 = 200;
const BLOCKS: u64 = 256;

#[derive(Clone, Copy)]
enum Way {
    InProcess,
    Unix,
    Shared,
    Tcp,
}

const CASES: [(&str, Way, u64); 7] = [
    ("in process", Way::InProcess, 0),
    ("unix", Way::Unix, 0),
    ("unix, spin", Way::Unix, 50),
    ("shared memory", Way::Shared, 0),
    ("shared memory, spin", Way::Shared, 50),
    ("tcp", Way::Tcp, 0),
    ("tcp, spin", Way::Tcp, 50),
];

fn options(way: Way, spin_us: u64) -> TransportOptions {
    let shared_memory = if matches!(way, Way::Shared) { 16 << 20 } else { 0 };
    TransportOptions { spin: Duration::from_micros(spin_us), shared_memory, ..Default::default() }
}

/// Answers requests for statistics; reads the bytes of all blocks, as a journal does.
fn serve(mut end: ServerEnd<BlockProtocol>) {
    let mut buffer = vec![[0; 4096]; BLOCKS as usize];
    loop {
        match end.receiver.recv(None) {
            Ok(Received::Message(ToService::Direct { runs, .. })) => {
                let blocks = runs.iter().flat_map(|r| &r.data);
                blocks.zip(&mut buffer).for_each(|(block, to)| block.copy_to(to));
            }
            Ok(Received::Message(_)) => {
                let answer = FromService::Statistics(Box::default());
                if end.sender.send(answer).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

fn trip(host: &mut CallerEnd<BlockProtocol>) {
    host.sender.send(ToService::Statistics).expect("the Service is there");
    match host.receiver.recv(None) {
        Ok(Received::Message(_)) => {}
        other => panic!("no answer but {other:?}"),
    }
}

/// Microseconds of a round trip, and MiB per second of images of 1 MiB.
fn measure(host: &mut CallerEnd<BlockProtocol>) -> (f64, f64) {
    (0..TRIPS / 10).for_each(|_| trip(host));
    let start = Instant::now();
    (0..TRIPS).for_each(|_| trip(host));
    let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS);
    let data: Vec<_> = (0..BLOCKS).map(|i| SharedBlock::from([i as u8; 4096])).collect();
    let start = Instant::now();
    for _ in 0..IMAGES {
        let runs = vec![DirectRun { run: BlockRun { start: 0, len: BLOCKS }, data: data.clone() }];
        let message = ToService::Direct { seq: TxnSeq(1), runs, waited: false };
        host.sender.send(message).expect("the Service is there");
    }
    trip(host);
    (micros, f64::from(IMAGES) / start.elapsed().as_secs_f64())
}

fn case(way: Way, spin_us: u64) -> (f64, f64) {
    if matches!(way, Way::InProcess) {
        let (mut host, device) = in_process::<BlockProtocol>(options(way, spin_us));
        let service = std::thread::spawn(move || serve(device));
        let measured = measure(&mut host);
        host.sender.close();
        service.join().expect("the Service ended in order");
        return measured;
    }
    let dir = tempfile::tempdir().expect("a directory for the socket");
    let address = match way {
        Way::Tcp => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
        _ => Address::Unix(dir.path().join("device.sock")),
    };
    let told = dir.path().join("address");
    let mut child = start_service(&address, way, spin_us, &told);
    let address = address_in(&told);
    let mut host =
        connect::<BlockProtocol>(&address, &options(way, spin_us)).expect("the Service listens");
    let measured = measure(&mut host);
    host.sender.close();
    drop(host);
    child.wait().expect("the Service's process");
    measured
}

/// A process that runs [`serve`]; it writes where it listens to the file `told`.
fn start_service(address: &Address, way: Way, spin_us: u64, told: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["serve", &address.to_string(), &(way as u8).to_string(), &spin_us.to_string()])
        .arg(told)
        .spawn()
        .expect("a second process")
}

/// What stands in the file, once it is there.
fn address_in(told: &Path) -> Address {
    loop {
        if let Ok(text) = std::fs::read_to_string(told) {
            return text.parse().expect("an address");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn service_process(args: &[String]) {
    let [address, way, spin, told] = args else { panic!("four arguments") };
    let way = [Way::InProcess, Way::Unix, Way::Shared, Way::Tcp]
        .into_iter()
        .find(|w| (*w as u8).to_string() == *way)
        .expect("a way");
    let options = options(way, spin.parse().expect("microseconds"));
    let address: Address = address.parse().expect("an address");
    let listener =
        Listener::<BlockProtocol>::bind(&address, &options).expect("an address of its own");
    let partly = format!("{told}.new");
    std::fs::write(&partly, listener.address().to_string()).expect("a file");
    std::fs::rename(&partly, told).expect("a file");
    serve(listener.accept(None).expect("a Runtime").expect("no timeout"));
}

fn median(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    format!("{:.1} ({:.1} to {:.1})", values[values.len() / 2], values[0], values[last])
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "serve") {
        return service_process(&args[1..]);
    }
    let rounds: usize = args.first().map_or(5, |a| a.parse().expect("a number of rounds"));
    let mut results: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); CASES.len()];
    for _ in 0..rounds {
        for ((_, way, spin), (micros, rate)) in CASES.iter().zip(&mut results) {
            let (m, r) = case(*way, *spin);
            micros.push(m);
            rate.push(r);
        }
    }
    println!("{:<22} {:<28} MiB/s of 1 MiB images", "", "round trip, µs");
    for ((name, ..), (micros, rate)) in CASES.iter().zip(&mut results) {
        println!("{name:<22} {:<28} {}", median(micros), median(rate));
    }
}
