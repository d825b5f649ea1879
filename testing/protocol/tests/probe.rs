//! probe
use siftfs_protocol::config::Step::*;
use siftfs_protocol::*;
use stateright::{Checker, Model};
fn run(c: Config) {
    let name = c.name;
    let t = std::time::Instant::now();
    let ch =
        Protocol::new(c).checker().finish_when(stateright::HasDiscoveries::Any).spawn_dfs().join();
    println!(
        "{name}: {} unique {} generated depth {} {:?}",
        ch.unique_state_count(),
        ch.state_count(),
        ch.max_depth(),
        t.elapsed()
    );
    for (n, p) in ch.discoveries() {
        println!("  BROKEN {n}: ");
        let last = p.last_state().clone();
        for a in p.into_actions() {
            println!("     {a:?}");
        }
        println!("{last:#?}");
    }
}
#[test]
fn probe() {
    let a: &[Step] = &[Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)];
    let mut c = Config::new("plain", &[a]);
    run(c.clone());
    c.unmount = true;
    c.direct = true;
    c.name = "unmount";
    run(c.clone());
    c.name = "onefault";
    c.faults = Faults { total: 1, host: 1, device: 1, link: 1, power: 1 };
    run(c.clone());
}
