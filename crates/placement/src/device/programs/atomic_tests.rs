use crate::device::programs::door_tests::Door;
use crate::{Media, MkfsOptions, mkfs_on};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE};
use siftfs_device::{Device, Fault, FaultDevice, Gate, OpClass, RegionKind};
use siftfs_device_target::{Fate, Next, Outcome, Queue, RequestOrder};
use siftfs_service::{RedoLane, RedoParts};
use siftfs_volume::{read_headers, region_descs};
use siftfs_wire::{GrantRun, Token};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A block of the area that the file system does not use.
const BLOCK: u64 = 14 << 8;

/// A target with a redo lane, and a grant of one block.
struct World {
    door: Door,
    disk: Arc<FaultDevice>,
    /// Where the lane lies.
    lane: Range<u64>,
    token: Token,
}

impl World {
    fn new() -> Self {
        let disk = Arc::new(FaultDevice::new(32 << 20, 1));
        let options = MkfsOptions {
            log_size: Some(6 << 20),
            lanes: 1,
            redo_lane: Some(2 << 20),
            ..MkfsOptions::default()
        };
        mkfs_on(disk.clone(), &options).unwrap();
        let header = read_headers(&*disk).unwrap().header;
        let redo = header.redo.unwrap();
        let area = region_descs(&header).into_iter().find(|d| d.kind == RegionKind::Area).unwrap();
        let media = Media::from(disk.clone());
        let parts = RedoParts::of(&media, &media.read().unwrap()).unwrap();
        let door = Door::new();
        door.grants.set_redo(Some(RedoLane::open(parts, 9).unwrap().0.into()));
        let run = GrantRun { block: BLOCK, len: 1, first: 0, fresh: false };
        let device: Arc<dyn Device> = disk.clone();
        let area = area.offset..area.offset + area.len;
        let token = door.grants.grant((1, 12), (true, vec![run]), &device, area).unwrap();
        Self { door, disk, lane: redo.offset..redo.offset + redo.len, token }
    }

    /// A commit whose connection breaks while the lane is written: what is left of its queue.
    fn broken(&self, fate: &Arc<Fate>) -> Queue {
        let queue = self.door.queue(self.token, RequestOrder::Merging);
        let gate = Gate::new();
        self.disk.inject(Fault::hold(OpClass::Write, &gate).within(self.lane.clone()));
        thread::scope(|scope| {
            let write = scope.spawn(|| queue.write_atomic(&[(BLOCK * BLOCK_BYTES, b"one")], fate));
            assert!(gate.wait_arrived(1, Duration::from_secs(20)));
            self.door.cut();
            assert!(write.join().unwrap().is_err());
        });
        gate.open();
        queue
    }
}

fn begins_with(queue: &Queue, bytes: &[u8]) {
    let mut block = [0; BLOCK_SIZE];
    queue.read_at(BLOCK * BLOCK_BYTES, &mut block).unwrap();
    assert_eq!(&block[..bytes.len()], bytes);
}

/// Its answer is lost, and it is there: the next life says so, and its caller must not make it
/// again over what was written since.
#[test]
fn a_commit_whose_answer_was_lost_is_known() {
    let (world, fate) = (World::new(), Arc::default());
    let queue = world.broken(&fate);
    let Next::Life(queue, done) = queue.again() else { panic!("the grant lasts") };
    assert_eq!((done, fate.outcome()), (Ok(()), Outcome::Done));
    begins_with(&queue, b"one");
}

/// The same where the grant ends before its program asks.
#[test]
fn a_commit_whose_grant_has_ended_is_known() {
    let (world, fate) = (World::new(), Arc::default());
    let queue = world.broken(&fate);
    world.door.grants.revoke(1, &world.token).unwrap();
    let Next::Ended(left, done) = queue.again() else { panic!("the grant has ended") };
    assert_eq!((left, done, fate.outcome()), (vec![], Ok(()), Outcome::Done));
}

/// One that never came to the target is not there, and a program that has lost its queue to
/// somebody else does not know.
#[test]
fn a_commit_that_was_not_made_is_known() {
    let (world, fate) = (World::new(), Arc::<Fate>::default());
    let queue = world.door.queue(world.token, RequestOrder::Merging);
    queue.write_atomic(&[(BLOCK * BLOCK_BYTES, b"two")], &fate).unwrap();
    world.door.cut();
    assert!(queue.write_atomic(&[(BLOCK * BLOCK_BYTES, b"one")], &fate).is_err());
    let Next::Life(queue, _) = queue.again() else { panic!("the grant lasts") };
    assert_eq!(fate.outcome(), Outcome::Undone);
    begins_with(&queue, b"two");

    let fate = Arc::default();
    let world = World::new();
    let queue = world.broken(&fate);
    let mut other = world.door.raw();
    assert!(other.attaches(world.token, 2));
    let block = siftfs_wire::Place { queue: 0, number: 0, first: 0 };
    let read = siftfs_wire::StorageCall::Read { device: 0, offset: BLOCK * BLOCK_BYTES, len: 9 };
    other.say(block, read);
    assert!(other.answer(Duration::from_secs(20)).is_some());
    drop(other);
    let Next::Life(..) = queue.again() else { panic!("the grant lasts") };
    assert_eq!(fate.outcome(), Outcome::InDoubt);
}
