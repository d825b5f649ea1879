//! A program whose file lies on several devices of one target: grants, tables and queues work in
//! addresses of the area.

#[path = "../../../placement/tests/support/striped.rs"]
mod striped;
#[path = "support/mod.rs"]
mod support;

use siftfs_base::Rng;
use siftfs_placement::{Dial, LocalVolume, OpenOptions, ServicePlace, TransportOptions};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use striped::{Serving, Set, UNIT};
use support::{all, bytes, create, open, session, user};

fn host(serving: &Serving) -> LocalVolume {
    let (target, options) = (serving.place.clone(), TransportOptions::default());
    let dial = Dial { address: target.address.clone(), options, secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
    LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {}).unwrap()
}

/// What the members hold.
fn contents(set: &Set) -> Vec<Vec<u8>> {
    set.members.iter().map(|path| std::fs::read(path).expect("a member")).collect()
}

#[test]
fn a_direct_file_on_stripes() {
    let set = Set::made(3, 48 << 20);
    let serving = Serving::start(&set);
    let v = host(&serving);
    let (program, other, mut rng) = (session(&v), user(&v), Rng::new(5));
    let file = create(&program, "f");
    let mut model = bytes(&mut rng, 40 * UNIT as usize);
    file.write_at(0, &model).unwrap();
    file.sync_all().unwrap();
    let begun = Instant::now();
    while !file.is_direct() {
        file.write_at(0, &model[..4096]).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is granted");
        thread::sleep(Duration::from_millis(20));
    }
    let before = contents(&set);
    for _ in 0..150 {
        let len = [1, 100, 4096, 70_000, 3 * UNIT as usize][rng.below(5) as usize];
        let at = rng.below((model.len() - len) as u64) as usize;
        if rng.chance(50) {
            let data = bytes(&mut rng, len);
            file.write_at(at as u64, &data).unwrap();
            model[at..at + len].copy_from_slice(&data);
        } else {
            assert!(file.read_at(at as u64, len).unwrap() == model[at..at + len]);
        }
    }
    assert!(file.is_direct(), "its bytes went to the target");
    file.sync_data().unwrap();
    let after = contents(&set);
    assert!(before.iter().zip(&after).all(|(was, is)| was != is), "each member was written");
    let handle = open(&other, "f");
    assert!(all(&other, handle) == model, "another one reads what was written");
    drop((file, program, other));
    v.close().unwrap();
    drop(serving);
    set.e2fsck();
    let v = set.open().unwrap();
    let again = user(&v);
    let handle = open(&again, "f");
    assert!(all(&again, handle) == model, "and so does the next mount");
    drop(again);
    v.close().unwrap();
}
