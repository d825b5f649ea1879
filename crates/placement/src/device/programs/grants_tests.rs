use super::*;
use crate::device::programs::door_tests::Gated;
use crate::device::programs::request::by_grant;
use siftfs_base::{BLOCK_SIZE, Rng, SharedBlock};
use siftfs_device::{FaultDevice, MemDevice};
use siftfs_wire::{StorageAnswer, StorageCall};
use std::thread;
use std::time::Duration;

const AREA: Range<u64> = 10 * BLOCK_BYTES..110 * BLOCK_BYTES;

/// One call under a grant.
fn carry_out(grant: &Arc<Grant>, call: StorageCall) -> Result<StorageAnswer> {
    let table = grant.inside().ok_or(Error::Posix(libc::ESTALE))?;
    by_grant(grant, &table, &call)
}

fn run(block: u64, len: u64) -> GrantRun {
    GrantRun { block, len, first: block, fresh: false }
}

fn settled(written: bool, lost: bool) -> Result<Settled> {
    Ok(Settled { written, lost, report: Report::default() })
}

fn grants() -> (Arc<Tokens>, HostGrants) {
    let tokens = Arc::new(Tokens::new(None, std::env::temp_dir()));
    let grants = HostGrants::new(&tokens);
    (tokens, grants)
}

fn found(tokens: &Tokens, token: &Token) -> Arc<Grant> {
    match tokens.find(token) {
        Ok(Found::Grant(grant)) => grant,
        _ => panic!("it was granted"),
    }
}

fn memory() -> Arc<dyn Device> {
    Arc::new(MemDevice::new(120 * BLOCK_BYTES))
}

fn write(offset: u64, len: u32, byte: u8) -> StorageCall {
    let blocks = vec![SharedBlock::from([byte; BLOCK_SIZE]); (len as usize).div_ceil(BLOCK_SIZE)];
    StorageCall::Write { device: 0, offset, len, durable: false, blocks }
}

/// The bytes of a range are the program's if all of its blocks are, whatever runs those lie in.
#[test]
fn a_range_is_granted_or_not() {
    let (_tokens, grants) = grants();
    let mut rng = Rng::new(1);
    for round in 0..200 {
        let device = memory();
        let (mut runs, mut own, mut at) = (Vec::new(), vec![false; 100], rng.below(4));
        while at < 90 {
            let len = 1 + rng.below(6);
            runs.push(run(at, len));
            (at..at + len).for_each(|block| own[block as usize] = true);
            at += len + rng.below(3);
        }
        let last = runs.len() - 1;
        runs.swap(0, last);
        let token = grants.grant((round, round), (true, runs), &device, AREA).unwrap();
        let grant = found(&grants.tokens, &token);
        for _ in 0..50 {
            let (offset, len) = (rng.below(100 * BLOCK_BYTES), rng.below(9 * BLOCK_BYTES) as u32);
            let blocks = offset / BLOCK_BYTES..(offset + u64::from(len)).div_ceil(BLOCK_BYTES);
            let granted = blocks.clone().all(|b| own.get(b as usize) == Some(&true));
            let read = carry_out(&grant, StorageCall::Read { device: 0, offset, len });
            assert_eq!(read.is_ok(), granted || len == 0, "{blocks:?}");
            assert_eq!(carry_out(&grant, write(offset, len, 1)).is_ok(), granted || len == 0);
        }
        let mut bytes = vec![0; 120 * BLOCK_SIZE];
        device.read(0, &mut bytes).unwrap();
        for (block, bytes) in bytes.chunks(BLOCK_SIZE).enumerate() {
            let own = block >= 10 && own.get(block - 10) == Some(&true);
            assert!(own || bytes.iter().all(|byte| *byte == 0), "block {block}");
        }
        grants.revoke(round, &token).unwrap();
    }
}

#[test]
fn runs_that_are_no_blocks_of_the_area_are_refused() {
    let (_tokens, grants) = grants();
    let device = memory();
    for runs in [
        vec![run(0, 0)],
        vec![run(99, 2)],
        vec![run(u64::MAX, 1)],
        vec![run(1, u64::MAX)],
        vec![run(4, 2), run(5, 1)],
        vec![run(3, 1); 2],
        vec![run(1, 1); GRANT_MAX_RUNS + 1],
    ] {
        let refused = grants.grant((1, 1), (true, runs.clone()), &device, AREA);
        assert!(matches!(refused, Err(Error::Refused(_))), "{:?}", &runs[..1]);
    }
    grants.grant((1, 1), (true, vec![run(99, 1), run(0, 1)]), &device, AREA).unwrap();
    assert!(grants.grant((1, 1), (true, vec![run(5, 1)]), &device, AREA).is_err(), "it has one");
}

#[test]
fn there_is_an_end_of_grants() {
    let (_tokens, grants) = grants();
    let device = memory();
    let many = || (0..50).map(|at| run(2 * at, 1)).collect::<Vec<_>>();
    let mut granted = 0;
    while grants.grant((granted, 7), (false, many()), &device, AREA).is_ok() {
        granted += 1;
    }
    assert_eq!(granted, MOST_GRANTS as u64);
    let token = lock(&grants.own).by_lease[&0].grant.token;
    grants.revoke(0, &token).unwrap();
    grants.grant((0, 7), (false, many()), &device, AREA).unwrap();
}

/// A grant's end, also with its host, flushes what was written, once; another process's grant may
/// have lost something.
#[test]
fn what_was_written_is_durable_at_the_end() {
    let (tokens, grants) = grants();
    let disk = Arc::new(FaultDevice::new(120 * BLOCK_BYTES, 1));
    let device: Arc<dyn Device> = disk.clone();
    let token = grants.grant((1, 1), (true, vec![run(0, 50)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    assert_eq!(grants.settle(1, &token), settled(false, false));
    carry_out(&grant, write(0, 5000, 1)).unwrap();
    assert_eq!(disk.pending().len(), 1);
    assert_eq!(grants.settle(1, &token), settled(true, false));
    assert_eq!((disk.pending().len(), disk.ops()), (0, 2), "a write, and a flush");
    assert_eq!(grants.settle(1, &token), settled(false, false));
    assert_eq!(disk.ops(), 2, "nothing is left to flush");
    carry_out(&grant, write(0, 4096, 2)).unwrap();
    assert_eq!(grants.settle(1, &[0; 32]), settled(true, true), "of another process");
    drop(grants);
    assert_eq!(disk.pending().len(), 0);
    assert!(!grant.lasts() && matches!(tokens.find(&token), Ok(Found::Ended(_))));
    let next = HostGrants::new(&tokens);
    assert_eq!(next.settle(1, &token), settled(true, false), "its end has flushed it");
    assert_eq!(next.revoke(1, &token), settled(true, false));
}

/// A flush of the program's own that is under way has made nothing durable yet: a settling beside
/// it flushes for itself.
#[test]
fn a_settling_relies_on_no_flush_that_runs() {
    let (tokens, grants) = grants();
    let device = Gated::new(false);
    let area: Arc<dyn Device> = device.clone();
    let range = 0..device.size();
    let token = grants.grant((1, 1), (true, vec![run(0, 8)]), &area, range).unwrap();
    let grant = found(&tokens, &token);
    carry_out(&grant, write(0, 4096, 1)).unwrap();
    device.hold_flushes(true);
    let flushes = || device.flushes.load(Ordering::SeqCst);
    thread::scope(|scope| {
        let own = scope.spawn(|| carry_out(&grant, StorageCall::Flush { device: 0 }));
        while flushes() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let settling = scope.spawn(|| grants.settle(1, &token));
        thread::sleep(Duration::from_millis(100));
        let early = settling.is_finished();
        device.hold_flushes(false);
        own.join().unwrap().unwrap();
        assert_eq!(settling.join().unwrap(), settled(true, false));
        assert!(!early, "it is answered while nothing is durable");
    });
    assert_eq!(flushes(), 2);
    assert_eq!(grants.settle(1, &token), settled(false, false));
    assert_eq!(flushes(), 2, "nothing is to be flushed");
}

#[test]
fn what_could_not_be_made_durable_may_be_lost() {
    let (tokens, grants) = grants();
    let disk = Arc::new(FaultDevice::new(120 * BLOCK_BYTES, 1));
    let device: Arc<dyn Device> = disk.clone();
    let token = grants.grant((1, 1), (true, vec![run(0, 50)]), &device, AREA).unwrap();
    carry_out(&found(&tokens, &token), write(0, 4096, 1)).unwrap();
    disk.cut_now();
    drop(grants);
    let next = HostGrants::new(&tokens);
    assert_eq!(next.settle(1, &token), settled(true, true));
}

/// A part of a block keeps the rest of it, also beside a write of all of it.
#[test]
fn parts_of_blocks_keep_the_rest() {
    let (tokens, grants) = grants();
    let device = memory();
    let token = grants.grant((1, 1), (true, vec![run(0, 8)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    for round in 0..200u64 {
        let byte = (round % 250) as u8;
        carry_out(&grant, write(0, 8192, byte)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| carry_out(&grant, write(4000, 200, 251)).unwrap());
            scope.spawn(|| carry_out(&grant, write(0, 8192, byte + 1)).unwrap());
            scope.spawn(|| carry_out(&grant, write(4100, 3, 252)).unwrap());
        });
        let mut bytes = vec![0; 8192];
        device.read(AREA.start, &mut bytes).unwrap();
        let (patched, rest): (Vec<_>, Vec<_>) = (0..8192).partition(|at| (4000..4200).contains(at));
        assert!(rest.iter().all(|at| bytes[*at] == byte + 1), "round {round}");
        assert!(patched.iter().all(|at| [byte + 1, 251, 252].contains(&bytes[*at])));
    }
}

/// Memory whose writes take a while.
struct Slow(MemDevice);

impl Device for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        thread::sleep(Duration::from_micros(500));
        self.0.write(offset, data, fua)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

/// Rule R29: when a grant has ended, nothing runs under it, and nothing begins.
#[test]
fn r29_nothing_runs_under_a_grant_that_has_ended() {
    let (tokens, grants) = grants();
    let slow = Arc::new(Slow(MemDevice::new(120 * BLOCK_BYTES)));
    let device: Arc<dyn Device> = slow.clone();
    for lease in 0..40 {
        let token = grants.grant((lease, lease), (true, vec![run(3, 1)]), &device, AREA).unwrap();
        let grant = found(&tokens, &token);
        thread::scope(|scope| {
            for _ in 0..2 {
                let write = || carry_out(&grant, write(3 * BLOCK_BYTES, 4096, 0xee));
                scope.spawn(move || while write().is_ok() {});
            }
            thread::sleep(Duration::from_micros(700));
            grants.revoke(lease, &token).unwrap();
            let place = AREA.start + 3 * BLOCK_BYTES;
            slow.0.write(place, &[lease as u8; BLOCK_SIZE], false).unwrap();
            thread::sleep(Duration::from_millis(2));
            let mut bytes = [0; BLOCK_SIZE];
            device.read(place, &mut bytes).unwrap();
            assert!(bytes == [lease as u8; BLOCK_SIZE], "lease {lease}");
        });
    }
}

/// Of the grants that ended last it is known what was carried out; of others, that they ended.
#[test]
fn grants_that_ended_are_remembered_for_a_while() {
    let (tokens, grants) = grants();
    let device = memory();
    let token = |lease| {
        let token = grants.grant((lease, lease), (true, vec![run(0, 1)]), &device, AREA).unwrap();
        assert!(found(&tokens, &token).queue.attach(lease + 1, TERM).1.is_ok());
        grants.revoke(lease, &token).unwrap();
        token
    };
    let first = token(0);
    assert!(matches!(tokens.find(&first), Ok(Found::Ended(_))));
    let last = (1..=MOST_ENDED as u64).map(token).last().unwrap();
    assert!(matches!(tokens.find(&first), Err(Error::Posix(libc::ESTALE))));
    assert!(matches!(tokens.find(&last), Ok(Found::Ended(_))));
    let mut other = last;
    other[31] ^= 1;
    assert!(matches!(tokens.find(&other), Err(Error::Posix(libc::ESTALE))), "as good as ended");
    other[0] ^= 1;
    assert!(matches!(tokens.find(&other), Err(Error::Refused(_))));
}

/// A block is one file's. A file has one grant that writes, or several that read, which share what
/// each of them names; the last one's end frees it.
#[test]
fn a_block_is_one_files() {
    let (tokens, grants) = grants();
    let device = memory();
    let grant = |lease, file, write, start| {
        grants.grant((lease, file), (write, vec![run(start, 4)]), &device, AREA)
    };
    let refused = |granted: Result<Token>| assert!(matches!(granted, Err(Error::Refused(_))));
    let writes = grant(1, 10, true, 0).unwrap();
    refused(grant(2, 11, false, 3));
    refused(grant(2, 10, false, 50));
    refused(grant(2, 10, true, 50));
    let first = grant(2, 11, false, 4).unwrap();
    let second = grant(3, 11, false, 6).unwrap();
    refused(grant(4, 11, true, 50));
    let reads = |token: &Token, block: u64| {
        let offset = block * BLOCK_BYTES;
        carry_out(&found(&tokens, token), StorageCall::Read { device: 0, offset, len: 4096 })
    };
    for token in [&first, &second] {
        let own: Vec<u64> = (0..12).filter(|block| reads(token, *block).is_ok()).collect();
        assert_eq!(own, [4, 5, 6, 7, 8, 9]);
    }
    grants.revoke(2, &first).unwrap();
    assert!(reads(&second, 4).is_ok());
    refused(grant(4, 12, true, 8));
    grants.revoke(3, &second).unwrap();
    let next = grant(4, 12, true, 6).unwrap();
    assert!(reads(&next, 6).is_ok() && reads(&next, 4).is_err() && reads(&writes, 0).is_ok());
    grants.revoke(1, &writes).unwrap();
    grant(5, 11, true, 0).unwrap();
}

fn fresh(block: u64, len: u64) -> GrantRun {
    GrantRun { block, len, first: 1000 + block, fresh: true }
}

fn read(offset: u64, len: u32) -> StorageCall {
    StorageCall::Read { device: 0, offset, len }
}

/// Rule R30: what is read of fresh blocks, and what a part of one is written into, is zeros,
/// whatever lies there. Against an array, with blocks beside them that were written before.
#[test]
fn r30_fresh_blocks_are_zeros_until_they_are_written() {
    for seed in 0..40 {
        let (tokens, grants) = grants();
        let (device, mut rng) = (memory(), Rng::new(seed));
        device.write(0, &vec![0xaa; 120 * BLOCK_SIZE], false).unwrap();
        let runs = vec![run(0, 3), fresh(3, 20), run(23, 2), fresh(25, 5)];
        let token = grants.grant((1, 1), (true, runs), &device, AREA).unwrap();
        let grant = found(&tokens, &token);
        let mut model = vec![0u8; 30 * BLOCK_SIZE];
        model[..3 * BLOCK_SIZE].fill(0xaa);
        model[23 * BLOCK_SIZE..25 * BLOCK_SIZE].fill(0xaa);
        for step in 0..60 {
            let len = [1, 100, 4096, 5000, 20_000][rng.below(5) as usize];
            let at = rng.below(30 * BLOCK_BYTES - len);
            let whole = rng.chance(50);
            let at = if whole { at / BLOCK_BYTES * BLOCK_BYTES } else { at };
            let place = at as usize..(at + len) as usize;
            if rng.chance(40) {
                carry_out(&grant, write(at, len as u32, step)).unwrap();
                model[place].fill(step);
                continue;
            }
            let StorageAnswer::Data { blocks } = carry_out(&grant, read(at, len as u32)).unwrap()
            else {
                panic!("no data")
            };
            let found: Vec<u8> = blocks.iter().flat_map(|block| block.to_vec()).collect();
            assert!(found[..len as usize] == model[place], "seed {seed}: {len} bytes at {at}");
        }
    }
}

/// What is told of first writes is durable before, is told once, and is lost for a host whose
/// connection ended before it heard of it.
#[test]
fn first_writes_are_told_when_they_are_durable() {
    let (tokens, grants) = grants();
    let disk = Arc::new(FaultDevice::new(120 * BLOCK_BYTES, 1));
    let device: Arc<dyn Device> = disk.clone();
    let token = grants.grant((1, 1), (true, vec![fresh(3, 4)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    let told = |first, len, end| {
        let runs = vec![siftfs_wire::FileRun { first, len }];
        let report = Report { runs, end: end * BLOCK_BYTES, more: false };
        Ok(Settled { written: true, lost: false, report })
    };
    carry_out(&grant, write(3 * BLOCK_BYTES, 4096, 1)).unwrap();
    // A flush of the program's own covers it; it is flushed again all the same.
    carry_out(&grant, StorageCall::Flush { device: 0 }).unwrap();
    assert_eq!(grants.settle(1, &token), told(1003, 1, 1004));
    assert_eq!(grants.settle(1, &token), settled(false, false));
    carry_out(&grant, write(5 * BLOCK_BYTES, 4096, 1)).unwrap();
    assert_eq!(disk.pending().len(), 1);
    assert_eq!(grants.revoke(1, &token), told(1005, 1, 1006));
    assert_eq!(disk.pending().len(), 0, "it is durable");
    assert_eq!(grants.settle(1, &token), settled(true, false), "it was told");

    let token = grants.grant((2, 2), (true, vec![fresh(3, 4)]), &device, AREA).unwrap();
    let quiet = grants.grant((3, 3), (true, vec![fresh(9, 4)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    carry_out(&grant, write(4 * BLOCK_BYTES, 4096, 1)).unwrap();
    drop(grants);
    let next = HostGrants::new(&tokens);
    assert_eq!(next.settle(2, &token), settled(true, true), "nobody was told");
    assert!(matches!(tokens.find(&token), Err(Error::Refused(_))));
    assert_eq!(next.settle(3, &quiet), settled(true, false), "there was nothing to tell");
    assert!(matches!(tokens.find(&quiet), Ok(Found::Ended(_))));
}

/// What one report has no room for is told by the next, also of a grant that has ended.
#[test]
fn the_rest_of_a_report_outlives_its_grant() {
    const AREA: Range<u64> = 0..1 << 30;
    let (tokens, grants) = grants();
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
    let token = grants.grant((1, 1), (true, vec![fresh(0, 4000)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    for block in 0..1500 {
        carry_out(&grant, write(2 * block * BLOCK_BYTES, 4096, 1)).unwrap();
    }
    let first = grants.revoke(1, &token).unwrap().report;
    assert!(first.more && first.runs.len() == siftfs_wire::SETTLED_MAX_RUNS);
    assert!(carry_out(&grant, write(0, 4096, 1)).is_err(), "it has ended");
    let second = grants.revoke(1, &token).unwrap().report;
    assert!(!second.more && first.runs.len() + second.runs.len() == 1500);
    assert_eq!(grants.revoke(1, &token), settled(true, false));
    grants.grant((1, 1), (true, vec![fresh(0, 4000)]), &device, AREA).unwrap();
}

/// A host's fresh blocks take memory here, and have an end as its runs do.
#[test]
fn there_is_an_end_of_fresh_blocks() {
    const AREA: Range<u64> = 0..1 << 50;
    let (_tokens, grants) = grants();
    let most = siftfs_wire::GRANT_MAX_FRESH;
    let one = |lease| vec![GrantRun { first: 0, ..fresh(lease * most, most) }];
    let mut granted = 0;
    let mut tokens = Vec::new();
    while let Ok(token) = grants.grant((granted, granted), (true, one(granted)), &memory(), AREA) {
        granted += 1;
        tokens.push(token);
    }
    assert_eq!(granted, MOST_FRESH / most);
    grants.revoke(0, &tokens[0]).unwrap();
    grants.grant((0, 0), (true, one(0)), &memory(), AREA).unwrap();
}

/// What is added is the program's from then on, fresh or not, and ends with the rest.
#[test]
fn a_grant_grows() {
    let ((tokens, grants), device) = (grants(), memory());
    device.write(AREA.start, &vec![7; 100 * BLOCK_SIZE], false).unwrap();
    let token = grants.grant((1, 12), (true, vec![run(0, 2)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    let at = |block: u64| block * BLOCK_BYTES;
    let block = BLOCK_SIZE as u32;
    let may = |number| carry_out(&grant, read(at(number), block)).is_ok();
    assert!(may(1) && !may(5) && !may(20));
    let fresh = GrantRun { fresh: true, ..run(20, 3) };
    grants.extend((1, &token), vec![run(5, 1), fresh], &AREA).unwrap();
    assert!(may(1) && may(5) && may(22) && !may(6) && !may(23));
    let zeros = vec![SharedBlock::from([0; BLOCK_SIZE])];
    assert_eq!(carry_out(&grant, read(at(20), block)), Ok(StorageAnswer::Data { blocks: zeros }));
    carry_out(&grant, write(at(21), 100, 9)).unwrap();
    let Settled { written, lost, report } = grants.settle(1, &token).unwrap();
    assert_eq!((written, lost, report.end), (true, false, at(21) + 100));
    assert_eq!(report.runs, [siftfs_wire::FileRun { first: 21, len: 1 }]);
    grants.revoke(1, &token).unwrap();
    assert!(!may(1) && !may(5) && !may(20), "what was added ends with the rest");
    let over = grants.extend((1, &token), vec![run(7, 1)], &AREA).unwrap_err();
    assert_eq!(over.errno(), libc::ESTALE);
    // Nobody has any of it: another file may.
    grants.grant((2, 13), (true, vec![run(0, 30)]), &device, AREA).unwrap();
}

/// What may not be added changes nothing.
#[test]
fn r29_a_grant_does_not_grow_over_others() {
    let ((tokens, grants), device) = (grants(), memory());
    let token = grants.grant((1, 12), (true, vec![run(0, 2)]), &device, AREA).unwrap();
    let other = grants.grant((2, 13), (true, vec![run(50, 2)]), &device, AREA).unwrap();
    let grant = found(&tokens, &token);
    let fresh = |block, len| GrantRun { fresh: true, ..run(block, len) };
    for wrong in [
        vec![run(4, 1), fresh(51, 1)],
        vec![fresh(4, 1), run(49, 2)],
        vec![fresh(4, 1), run(100, 1)],
        vec![fresh(4, 2), run(5, 1)],
        vec![run(4, 0)],
        vec![fresh(4, 1), GrantRun { first: 4, ..fresh(6, 1) }],
    ] {
        assert!(grants.extend((1, &token), wrong.clone(), &AREA).is_err(), "{wrong:?}");
        for block in [4, 5, 6, 50] {
            assert!(carry_out(&grant, read(block * BLOCK_BYTES, 1)).is_err(), "{wrong:?}");
        }
        assert_eq!(grant.fresh.blocks(), 0, "{wrong:?}");
    }
    assert!(grants.extend((1, &other), vec![run(4, 1)], &AREA).is_err(), "another's token");
    assert!(grants.extend((3, &token), vec![run(4, 1)], &AREA).is_err(), "another's lease");
    grants.extend((1, &token), vec![fresh(4, 1)], &AREA).unwrap();
}

/// All that was ever added counts.
#[test]
fn a_grant_grows_to_its_bound() {
    let tokens = Arc::new(Tokens::new(None, std::env::temp_dir()));
    let grants = HostGrants::new(&tokens);
    let area = 0..1 << 40;
    let token = grants.grant((1, 12), (true, vec![run(0, 1)]), &memory(), area.clone()).unwrap();
    let all = siftfs_wire::GRANT_ALL_RUNS as u64;
    let runs = |from: u64, to: u64| (from..to).map(|at| run(2 * at, 1)).collect::<Vec<_>>();
    for from in (1..all).step_by(GRANT_MAX_RUNS) {
        let to = all.min(from + GRANT_MAX_RUNS as u64);
        grants.extend((1, &token), runs(from, to), &area).unwrap();
    }
    assert!(grants.extend((1, &token), runs(all, all + 1), &area).is_err());
}
