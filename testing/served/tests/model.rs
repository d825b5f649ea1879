//! Drawn operations through a served session, beside the model: what a call does over a wire is
//! what it does in process.

use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_model::{Generator, Lockstep, Profile};
use siftfs_remote::Claim;
use siftfs_served::{Setup, Way};

const OPS: usize = 400;

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::SMALL));
    open(media).unwrap()
}

/// By each way between processes on one machine whose server believes a client that it is a kernel.
#[test]
fn a_served_session_is_the_models() {
    let seeds = if std::env::var_os("SIFTFS_LONG").is_some() { 40 } else { 4 };
    for way in Way::TRUSTED {
        for seed in 0..seeds {
            let driver = driver();
            let setup = Setup::new(&driver.volume, way);
            let client = setup.client(Claim::Kernel).unwrap();
            let mut pair = Lockstep::new(&client, &driver).unwrap();
            let mut generator = Generator::new(seed, Profile::default());
            for _ in 0..OPS {
                let op = generator.next(&pair.model);
                let outcome = pair.step(&op);
                let _ = outcome.unwrap_or_else(|e| panic!("{way:?}, seed {seed}: {op:?}: {e}"));
            }
            pair.check_tree().unwrap_or_else(|e| panic!("{way:?}, seed {seed}: {e}"));
            drop(pair);
            drop(client);
            drop(setup);
            driver.volume.close().unwrap();
        }
    }
}
