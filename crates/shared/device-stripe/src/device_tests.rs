//! The members as one device: as a flat one, also over power cuts of each member by itself.

use super::*;
use crate::geometry::MIN_UNIT;
use siftfs_base::Rng;
use siftfs_device::{Fault, FaultDevice, Gate, Image, MemDevice, OpClass, SharedDevice};
use std::sync::Arc;

const UNIT: u64 = MIN_UNIT;
const UNITS: u64 = 4;

/// A set on these devices, which have room for four units each.
fn over<D: Device + 'static>(devices: &[Arc<D>]) -> StripedDevice {
    let member =
        |(at, device): (usize, &Arc<D>)| Member { name: format!("m{at}"), device: device.clone() };
    let members = devices.iter().enumerate().map(member).collect();
    let geometry = Geometry::new(devices.len(), UNIT, UNITS * UNIT).unwrap();
    StripedDevice::over(members, geometry, Some([1; 16]))
}

fn faulty(count: usize) -> Vec<Arc<FaultDevice>> {
    let size = DATA_BEGIN + UNITS * UNIT;
    (0..count).map(|n| Arc::new(FaultDevice::new(size, n as u64))).collect()
}

/// A range of the area, often at a border of units.
fn range(rng: &mut Rng, size: u64) -> (u64, usize) {
    let near = rng.below(size / UNIT) * UNIT;
    let offset = match rng.below(3) {
        0 => rng.below(size),
        1 => near,
        _ => (near + UNIT).saturating_sub(1 + rng.below(600)),
    };
    let len = [0, 1, 511, 4096, UNIT, UNIT + 1, 3 * UNIT][rng.below(7) as usize];
    (offset.min(size), len.min(size - offset.min(size)) as usize)
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Writes, durable writes, batches, reads: what a flat buffer shows.
#[test]
fn a_device_as_any_other() {
    for count in [2, 3, 16] {
        let members: Vec<_> =
            (0..count).map(|_| Arc::new(MemDevice::new(DATA_BEGIN + UNITS * UNIT))).collect();
        let striped = over(&members);
        let (mut rng, mut model) = (Rng::new(count as u64), vec![0u8; striped.size() as usize]);
        for _ in 0..120 {
            let mut pieces = Vec::new();
            for _ in 0..=rng.below(4) {
                let (at, len) = range(&mut rng, striped.size());
                pieces.push((at, bytes(&mut rng, len)));
            }
            // The order within a batch is open: its writes do not meet.
            pieces.sort_by_key(|(at, _)| *at);
            pieces.dedup_by(|b, a| a.0 + a.1.len() as u64 > b.0);
            match rng.below(3) {
                0 => pieces.iter().for_each(|(at, data)| striped.write(*at, data, true).unwrap()),
                1 => pieces.iter().for_each(|(at, data)| striped.write(*at, data, false).unwrap()),
                _ => {
                    let op = |(offset, data): &'_ (u64, Vec<u8>)| (*offset, data.clone());
                    let copies: Vec<_> = pieces.iter().map(op).collect();
                    let ops: Vec<_> =
                        copies.iter().map(|(o, data)| WriteOp { offset: *o, data }).collect();
                    striped.write_batch(&ops).unwrap();
                }
            }
            for (at, data) in &pieces {
                model[*at as usize..][..data.len()].copy_from_slice(data);
            }
            let ranges: Vec<_> = (0..3).map(|_| range(&mut rng, striped.size())).collect();
            let mut found: Vec<_> = ranges.iter().map(|(_, len)| vec![1; *len]).collect();
            let mut ops: Vec<_> = ranges
                .iter()
                .zip(&mut found)
                .map(|((offset, _), buf)| ReadOp { offset: *offset, buf })
                .collect();
            striped.read_batch(&mut ops).unwrap();
            for ((at, len), found) in ranges.iter().zip(&found) {
                assert!(model[*at as usize..][..*len] == found[..], "{len} bytes at {at}");
            }
        }
        let mut all = vec![1; model.len()];
        striped.read(0, &mut all).unwrap();
        assert!(all == model, "{count} members");
    }
}

/// A refused batch touches nothing, also not the member that it could reach.
#[test]
fn ranges_outside_are_refused() {
    let members = faulty(2);
    let striped = over(&members);
    let size = striped.size();
    let invalid = |r: Result<()>| matches!(r, Err(Error::Io { errno: libc::EINVAL, .. }));
    for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (0, size as usize + 1)] {
        assert!(invalid(striped.read(offset, &mut vec![0; len])));
        assert!(invalid(striped.write(offset, &vec![0; len], false)));
        assert!(invalid(striped.write(offset, &vec![0; len], true)));
        assert!(invalid(striped.discard(offset, len as u64)));
    }
    let ops = [WriteOp { offset: 0, data: &[9] }, WriteOp { offset: size, data: &[9] }];
    assert!(invalid(striped.write_batch(&ops)));
    assert!(members.iter().all(|member| member.stats().writes == 0));
    striped.write(size, &[], true).unwrap();
    striped.flush().expect("what was refused has latched nothing");
}

/// What each sector may hold after a power cut: what was durable, or what came since.
struct Sectors(Vec<Vec<u8>>);

impl Sectors {
    fn write(&mut self, at: usize, count: usize, value: u8) {
        self.0[at..at + count].iter_mut().for_each(|may| may.push(value));
    }
    fn durable(&mut self, at: usize, count: usize) {
        for may in &mut self.0[at..at + count] {
            may.drain(..may.len() - 1);
        }
    }
}

/// Random writes and flushes; then each member loses its power by itself, at its own time.
#[test]
fn power_cuts_of_each_member_apart() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let members = faulty(3);
        let striped = over(&members);
        let all = (striped.size() / 512) as usize;
        let mut sectors = Sectors(vec![vec![0]; all]);
        for value in 1..=40u8 {
            let at = rng.below(all as u64 - 1) as usize;
            let most = [1, 8, 200, 500][rng.below(4) as usize];
            let count = most.min(all - at);
            let data = vec![value; count * 512];
            sectors.write(at, count, value);
            match rng.below(4) {
                0 => {
                    striped.write(at as u64 * 512, &data, true).unwrap();
                    sectors.durable(at, count);
                }
                1 => {
                    striped.write(at as u64 * 512, &data, false).unwrap();
                    striped.flush().unwrap();
                    sectors.durable(0, all);
                }
                _ => striped.write(at as u64 * 512, &data, false).unwrap(),
            }
        }
        let left: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(at, member)| {
                let image: Image = match rng.below(3) {
                    0 => member.contents(),
                    1 => member.durable(),
                    _ => member.power_cut_image(seed * 3 + at as u64),
                };
                Arc::new(MemDevice::from_image(image))
            })
            .collect();
        let (after, mut found) = (over(&left), vec![0; striped.size() as usize]);
        after.read(0, &mut found).unwrap();
        for (at, (sector, may)) in found.chunks(512).zip(&sectors.0).enumerate() {
            let whole = sector.iter().all(|byte| *byte == sector[0]);
            assert!(whole && may.contains(&sector[0]), "seed {seed}, sector {at}: {may:?}");
        }
    }
}

/// A durable write is so on each member that it touches, and on those alone.
#[test]
fn a_durable_write_is_one_on_its_members() {
    let members = faulty(3);
    let striped = over(&members);
    striped.write(2 * UNIT, &[1; 512], false).unwrap();
    striped.write(UNIT - 512, &[2; 1024], true).unwrap();
    let counts = |at: usize| (members[at].stats().fua_writes, members[at].stats().flushes);
    assert_eq!([counts(0), counts(1), counts(2)], [(1, 0), (1, 0), (0, 0)]);
    assert_eq!(members[2].pending().len(), 1, "it says nothing of other writes");
    striped.write(0, &vec![3; 4 * UNIT as usize], true).unwrap();
    assert!(members[0].pending().is_empty() && members[0].stats().flushes == 1, "two units");
    striped.flush().unwrap();
    assert!(members.iter().all(|member| member.pending().is_empty()));
}

/// Members do their parts of a long call at the same time.
#[test]
fn members_work_at_once() {
    let members = faulty(2);
    let striped = over(&members);
    for class in [OpClass::Write, OpClass::Read, OpClass::Flush] {
        let gates = [Gate::new(), Gate::new()];
        for (member, gate) in members.iter().zip(&gates) {
            member.inject(Fault::hold(class, gate).once());
        }
        thread::scope(|scope| {
            let mut buf = vec![5; 2 * UNIT as usize];
            let striped = &striped;
            scope.spawn(move || match class {
                OpClass::Write => striped.write(0, &buf, false).unwrap(),
                OpClass::Read => striped.read(0, &mut buf).unwrap(),
                _ => striped.flush().unwrap(),
            });
            let both = gates.iter().all(|gate| gate.wait_arrived(1, Duration::from_secs(20)));
            gates.iter().for_each(Gate::open);
            assert!(both, "{class:?}: one member waits for the other");
        });
        members.iter().for_each(|member| member.remove_all());
    }
}

/// Once a member has failed a flush or a durable write, nothing is durable any more (rule R21).
#[test]
fn a_member_that_fails_latches_the_area() {
    for durable in [false, true] {
        let members = faulty(2);
        let striped = over(&members);
        let class = if durable { OpClass::Write } else { OpClass::Flush };
        members[1].inject(Fault::fail(class, libc::EIO).once());
        let failed = match durable {
            true => striped.write(UNIT, &[1; 512], true),
            false => striped.flush(),
        };
        assert!(matches!(failed, Err(Error::Io { errno: libc::EIO, .. })), "{failed:?}");
        assert_eq!(striped.flush(), failed, "a later flush");
        assert_eq!(striped.write(0, &[1; 512], true), failed, "on the member that is well");
        striped.write(0, &[2; 512], false).expect("no promise was asked for");
        let mut found = [0; 512];
        striped.read(0, &mut found).unwrap();
        assert_eq!(found, [2; 512]);
    }
}

/// All of them are asked, also behind one that fails: what they can keep, they keep.
#[test]
fn a_flush_goes_to_all_members() {
    let members = faulty(3);
    let striped = over(&members);
    striped.write(0, &vec![1; 3 * UNIT as usize], false).unwrap();
    members[0].inject(Fault::fail(OpClass::Flush, libc::EIO));
    striped.flush().unwrap_err();
    assert!(members[1].pending().is_empty() && members[2].pending().is_empty());
}

/// A plain write or read that fails is that call's error, and no latch.
#[test]
fn a_failed_call_is_its_callers() {
    let members = faulty(2);
    let striped = over(&members);
    members[1].inject(Fault::fail(OpClass::Write, libc::ENOSPC).once());
    members[0].inject(Fault::fail(OpClass::Read, libc::EIO).once());
    assert_eq!(striped.write(0, &vec![1; 2 * UNIT as usize], false).unwrap_err().errno(), 28);
    striped.read(0, &mut [0; 512]).unwrap_err();
    striped.write(0, &vec![1; 2 * UNIT as usize], false).unwrap();
    striped.flush().unwrap();
}

/// A role is had on all members, or on none.
#[test]
fn roles_are_had_on_all_members() {
    let shared: Vec<_> = faulty(3).into_iter().map(|member| SharedDevice::new(member)).collect();
    let process = || shared.iter().map(SharedDevice::open).collect::<Vec<_>>();
    let (one, two, other) = (over(&process()), over(&process()), shared[2].open());
    other.claim(Role::Host, Duration::ZERO).unwrap();
    one.claim(Role::Host, Duration::from_millis(30)).expect_err("the last member is taken");
    two.claim(Role::Host, Duration::ZERO).expect_err("it still is");
    other.unclaim(Role::Host).unwrap();
    two.claim(Role::Host, Duration::ZERO).expect("what was had in part was given back");
    two.claim(Role::Host, Duration::ZERO).expect("it has the role");
    one.claim(Role::Service, Duration::ZERO).expect("another role");
    one.claim(Role::Host, Duration::ZERO).unwrap_err();
    two.unclaim(Role::Host).unwrap();
    one.claim(Role::Host, Duration::ZERO).unwrap();
    drop(one);
    two.claim(Role::Host, Duration::ZERO).expect("roles end with their device");
    two.claim(Role::Service, Duration::ZERO).unwrap();
}

/// One patience for all members together.
#[test]
fn patience_is_for_all_members_together() {
    let shared: Vec<_> = faulty(2).into_iter().map(|member| SharedDevice::new(member)).collect();
    let process = || shared.iter().map(SharedDevice::open).collect::<Vec<_>>();
    let (one, first, second) = (over(&process()), shared[0].open(), shared[1].open());
    first.claim(Role::Host, Duration::ZERO).unwrap();
    second.claim(Role::Host, Duration::ZERO).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            first.unclaim(Role::Host).unwrap();
        });
        one.claim(Role::Host, Duration::from_millis(500)).unwrap_err();
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(490) && took < Duration::from_millis(790), "{took:?}");
}

#[test]
fn discards_reach_each_member_as_one_run() {
    let members = faulty(2);
    assert_eq!(over(&members).discards(), None);
    members[0].enable_discard();
    assert_eq!(over(&members).discards(), None, "one member cannot");
    members[1].enable_discard();
    let striped = over(&members);
    let discards = striped.discards().unwrap();
    assert_eq!(discards.unit, 4096);
    striped.write(0, &vec![1; 8 * UNIT as usize], true).unwrap();
    striped.discard(UNIT / 2, 4 * UNIT).unwrap();
    striped.flush().unwrap();
    assert!(members.iter().all(|member| member.stats().discards == 1));
    let mut found = vec![0; 8 * UNIT as usize];
    striped.read(0, &mut found).unwrap();
    let gone = (UNIT / 2) as usize..(UNIT / 2 + 4 * UNIT) as usize;
    assert!(found[..gone.start].iter().chain(&found[gone.end..]).all(|byte| *byte == 1));
    striped.discard(0, 0).unwrap();
}

/// A disk that gives back in larger pieces than a stripe's unit.
struct Coarse(MemDevice, u64);

impl Device for Coarse {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.0.write(offset, data, fua)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discards(&self) -> Option<Discards> {
        Some(Discards { unit: self.1, usual: self.1 == UNIT })
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        assert!(offset.is_multiple_of(self.1) && len.is_multiple_of(self.1), "{len} at {offset}");
        Ok(())
    }
}

#[test]
fn what_can_be_given_back_follows_from_the_members() {
    let set = |units: [u64; 2]| {
        over(&units.map(|unit| Arc::new(Coarse(MemDevice::new(DATA_BEGIN + 4 * UNIT), unit))))
    };
    let coarse = set([2 * UNIT, UNIT]);
    let discards = coarse.discards().unwrap();
    assert_eq!((discards.unit, discards.usual), (4 * UNIT, false));
    coarse.discard(discards.unit, discards.unit).unwrap();
    assert_eq!(set([UNIT, UNIT]).discards(), Some(Discards { unit: UNIT, usual: true }));
    assert_eq!(set([2 * DATA_BEGIN, UNIT]).discards(), None, "the data begins within one");
    assert_eq!(set([3 * 512, UNIT]).discards(), None);
}

#[test]
fn reports_have_all_members() {
    let striped = over(&faulty(2));
    let info = striped.describe();
    assert_eq!(info.path, "stripe:m0,m1");
    assert_eq!(info.kind, "stripes of 64 KiB: memory");
    assert_eq!((info.durable_write.as_str(), info.persistent), ("none", None));
}

#[test]
fn hints_reach_the_members() {
    let members = faulty(2);
    let striped = over(&members);
    striped.urgent(true);
    striped.expect_urgent(Duration::from_secs(1));
    striped.give_way(Duration::ZERO);
    for member in &members {
        let stats = member.stats();
        assert_eq!((stats.urgent, stats.pauses), (1, 1));
        assert_eq!(stats.expected, Some(Duration::from_secs(1)));
    }
}
