//! Messages for tests: one of every variant, and generators of arbitrary ones. The tests of the
//! transports use this file, too.

use proptest::collection::vec;
use proptest::prelude::*;
use siftfs_base::{BLOCK_SIZE, BlockRun, Epoch, Error, LaneId, Lsn, SharedBlock, TxnSeq, corrupt};
use siftfs_device::{DeviceInfo, Discards, Medium, Role};
use siftfs_log::{CopyTag, Digest, StagedRef, Transaction, ZeroTag};
use siftfs_status::{ClusterInfo, Persists};
use siftfs_wire::{
    Access, AtomicRun, Carried, CheckpointReport, DeviceStatistics, DirectRun, FileRun,
    FromService, GrantRun, IoCounts, OriginCounts, Place, ProgramStatistics, RegionCounts,
    ServiceStatistics, StorageAnswer, StorageCall, StorageDevice, ToService, Urgency,
    WorkerStatistics,
};

/// A block of which no two differ in only a few bytes.
pub fn block(seed: u8) -> SharedBlock {
    let mut bytes = [0; BLOCK_SIZE];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(31) ^ seed.wrapping_add((i >> 8) as u8);
    }
    SharedBlock::from(bytes)
}

/// A transaction in which every list has `n` entries.
pub fn transaction(n: u64) -> Transaction {
    let run = |i: u64| BlockRun { start: 100 * i, len: i + 1 };
    Transaction {
        seq: TxnSeq(n),
        ops_cut: Lsn(n + 1),
        staged_cut: Lsn(n + 2),
        lane_upto: (0..n).map(|i| i << 40).collect(),
        staged: (0..n)
            .map(|i| StagedRef {
                lane: LaneId(i as u16),
                pos: i << 33,
                len: 4096,
                lsn: Lsn(i),
                crc: i as u32 ^ 0xdead_beef,
            })
            .collect(),
        zeros: (0..n).map(|i| ZeroTag { dst: i, len: i as u32 + 1 }).collect(),
        copies: (0..n)
            .map(|i| CopyTag { source: i as u32, data_offset: 7, dst: i + 9, len: 11 })
            .collect(),
        images: (0..n).map(|i| i * 3).collect(),
        image_data: (0..n).map(|i| block(i as u8)).collect(),
        direct: (0..n).map(run).collect(),
        digest: (n > 0).then(|| Digest {
            lane: LaneId(1),
            from: 64 * n,
            prev_crc: 5,
            crc: 6,
            ranges: n as u32,
        }),
        drops: (0..n).map(|i| run(i + 50)).collect(),
    }
}

/// Every variant at least once, empty lists and full ones, smallest and largest numbers.
pub fn to_service() -> Vec<ToService> {
    let runs = vec![
        DirectRun { run: BlockRun { start: 7, len: 2 }, data: vec![block(1), block(2)] },
        DirectRun { run: BlockRun { start: 90, len: 1 }, data: vec![block(3)] },
    ];
    let mut all = vec![
        ToService::Hello { version: 1, volume: [0xa5; 16], epoch: Epoch(u64::MAX) },
        ToService::Direct { seq: TxnSeq(9), runs, waited: true },
        ToService::Direct { seq: TxnSeq(10), runs: vec![], waited: false },
        ToService::Submit { txn: Box::new(transaction(0)), waited: false },
        ToService::Submit { txn: Box::new(transaction(5)), waited: true },
        ToService::Checkpoint { id: 1, upto: TxnSeq(u64::MAX), urgency: Urgency::Background },
        ToService::Checkpoint { id: 2, upto: TxnSeq(0), urgency: Urgency::Emergency },
        ToService::Statistics,
        ToService::Goodbye,
        ToService::Objection { reason: "transaction 9 was never sent".into() },
        ToService::Inquire { version: 7, volume: [0x5a; 16] },
        ToService::ExpectUrgent { ms: 100 },
        ToService::Discard { id: 0, runs: vec![] },
        ToService::Discard { id: 77, runs: vec![BlockRun { start: 5, len: 6 }] },
    ];
    all.extend((1..).zip(storage_calls()).map(|(id, call)| ToService::Storage { id, call }));
    let place = Place { queue: 7, number: 1 << 40, first: (1 << 40) - 2 };
    all.push(ToService::Queued { id: 9, place, call: StorageCall::Flush { device: 0 } });
    all
}

/// One call of every kind.
pub fn storage_calls() -> Vec<StorageCall> {
    let (device, offset) = (1, 1 << 40);
    vec![
        StorageCall::Open { version: 8, volume: "mail.img".into(), access: Access::Alone },
        StorageCall::Open { version: 8, volume: String::new(), access: Access::ReadOnly },
        StorageCall::Open { version: 8, volume: "a-uuid".into(), access: Access::Shared },
        StorageCall::Claim { device, role: Role::Host, patience: 500 },
        StorageCall::Unclaim { device, role: Role::Service },
        StorageCall::Read { device, offset, len: 5000 },
        StorageCall::Write {
            device,
            offset,
            len: 5000,
            durable: true,
            blocks: vec![block(7), block(8)],
        },
        StorageCall::Write { device: 0, offset: 0, len: 0, durable: false, blocks: vec![] },
        StorageCall::Flush { device },
        StorageCall::Discard { device, offset, len: u64::MAX },
        StorageCall::Describe { device },
        StorageCall::Grant { lease: 5, file: 12, write: false, runs: vec![] },
        StorageCall::Grant {
            lease: u64::MAX,
            file: 13,
            write: true,
            runs: vec![
                GrantRun { block: 1 << 33, len: 9, first: 3, fresh: true },
                GrantRun { block: 7, len: 1, first: 1 << 31, fresh: false },
            ],
        },
        StorageCall::Extend {
            lease: 6,
            token: [0x5a; 32],
            runs: vec![GrantRun { block: 9, len: 2, first: 4, fresh: true }],
        },
        StorageCall::Settle { lease: 6, token: [0x3c; 32] },
        StorageCall::Revoke { lease: 7, token: [0xc3; 32] },
        StorageCall::Attach { version: 9, token: [0xa5; 32], queue: 3, life: 2 },
        StorageCall::AtomicWrite {
            transaction: 1 << 50,
            commit: true,
            runs: vec![AtomicRun { offset, len: 4100 }, AtomicRun { offset: 3, len: 7 }],
            blocks: vec![block(1), block(2)],
        },
        StorageCall::AtomicWrite { transaction: 1, commit: false, runs: vec![], blocks: vec![] },
        StorageCall::AtomicAbort { transaction: u64::MAX },
    ]
}

/// One answer of every kind.
pub fn storage_answers() -> Vec<StorageAnswer> {
    let area = StorageDevice {
        size: 1 << 33,
        medium: Medium::Block,
        discards: Some(Discards { unit: 4096, usual: true }),
    };
    let bytes = StorageDevice { size: 1 << 20, medium: Medium::Bytes, discards: None };
    let info = DeviceInfo {
        path: "/dev/pmem0".into(),
        kind: "memory".into(),
        volatile_cache: Some(false),
        fua: None,
        direct: true,
        uring: false,
        persistent: Some(true),
        durable_write: "lines written back".into(),
        why: "it was asked".into(),
        persists: Some(Persists { persists: 1, fences: 2, bytes: 3, inherited: 4 }),
        cluster: Some(Box::new(ClusterInfo {
            fsid: "c0ffee".into(),
            pool: "fast".into(),
            object_bytes: 4 << 20,
            health: "HEALTH_OK".into(),
            waiting: 5,
            longest_ms: 6,
        })),
    };
    let devices = vec![area, bytes];
    vec![
        StorageAnswer::Opened { log: false, record_area: true, devices },
        StorageAnswer::Done,
        StorageAnswer::Data { blocks: vec![block(9)] },
        StorageAnswer::Described { info },
        StorageAnswer::Described { info: DeviceInfo::default() },
        StorageAnswer::Failed { error: Error::Refused("no such device".into()) },
        StorageAnswer::Granted { token: [0x5a; 32], programs: None },
        StorageAnswer::Granted { token: [0x5b; 32], programs: Some("unix:/run/p".into()) },
        StorageAnswer::Settled { written: true, lost: false, fresh: vec![], end: 0, more: false },
        StorageAnswer::Settled {
            written: true,
            lost: true,
            fresh: vec![FileRun { first: 3, len: 2 }, FileRun { first: 1 << 31, len: 1 }],
            end: 1 << 43,
            more: true,
        },
        StorageAnswer::Attached { carried: Carried { life: 3, low: 70, before: 5, from: 1 << 63 } },
        StorageAnswer::Ended { carried: Carried { life: 9, low: 2, before: 3 << 62, from: 4 } },
    ]
}

/// Every field another number.
pub fn report(base: u64) -> CheckpointReport {
    CheckpointReport {
        trigger: Some(Urgency::Emergency),
        batch: base + 1,
        coalesced_batches: base + 2,
        light_batches: base + 3,
        staged: base + 4,
        raw_tags: base + 5,
        surviving_tags: base + 6,
        raw_blocks: base + 7,
        surviving_blocks: base + 8,
        raw_images: base + 9,
        surviving_images: base + 10,
        raw_inodes: base + 11,
        surviving_inodes: base + 12,
        reads: base + 13,
        read_bytes: base + 14,
        writes: base + 15,
        write_bytes: base + 16,
        flushes: base + 17,
        windows: base + 18,
        journal_credits: base + 19,
        staging_credits: base + 20,
        index_nanos: base + 21,
        read_nanos: base + 22,
        write_nanos: base + 23,
        flush_nanos: base + 24,
        nanos: base + 25,
    }
}

/// Every field another number.
pub fn device(base: u64) -> DeviceStatistics {
    let io = |n: u64| IoCounts {
        reads: n,
        read_bytes: n + 1,
        writes: n + 2,
        write_bytes: n + 3,
        flushes: n + 4,
        errors: n + 5,
        discards: n + 100,
        discard_bytes: n + 101,
    };
    let by = |n: u64| OriginCounts { foreground: io(n), background: io(n + 6), admin: io(n + 12) };
    DeviceStatistics {
        pid: 17,
        cpu_us: base,
        messages: base + 1,
        refusals: base + 2,
        hosts: base + 3,
        hints: base + 4,
        programs: ProgramStatistics {
            queues: base + 5,
            requests: base + 6,
            groups: base + 7,
            waited: base + 8,
            further_lives: base + 9,
        },
        workers: WorkerStatistics {
            workers: base + 10,
            connections: base + 11,
            begun: base + 12,
            helped: base + 13,
            waited: base + 14,
            most_helpers: base + 15,
            broken: base + 16,
        },
        io: RegionCounts {
            area: by(base + 20),
            staging: by(base + 40),
            journal: by(base + 60),
            header: by(base + 80),
        },
    }
}

/// One error of every kind.
pub fn errors() -> Vec<Error> {
    vec![
        Error::Posix(28),
        corrupt("header copy 0", "its checksum does not hold — 0x17"),
        Error::Incompatible("feature 12".into()),
        Error::Io { op: "flush", offset: u64::MAX, len: 0, errno: 5 },
        Error::Latched("earlier".into()),
        Error::Refused(String::new()),
        Error::Link("gone".into()),
    ]
}

/// Every variant at least once.
pub fn from_service() -> Vec<FromService> {
    let statistics = ServiceStatistics {
        journaled_transactions: 1,
        journaled_bytes: 2,
        journaled_tags: 3,
        digested_ranges: 10,
        journaled_images: 4,
        direct_bytes: 5,
        drops: 6,
        checkpoints_background: 7,
        checkpoints_emergency: 8,
        checkpoint_total: report(1 << 40),
        checkpoint_last: report(100),
        checkpoint_last_s: -1,
        device: Some(device(9)),
    };
    let mut all = vec![
        FromService::Welcome { version: 1, journaled: TxnSeq(3), checkpointed: TxnSeq(2) },
        FromService::Journaled { seq: TxnSeq(4), bytes: 8192, image_pos: 1 << 50 },
        FromService::Reclaimed { seq: TxnSeq(4), journal_tail: 5, lane_tails: vec![6, 7] },
        FromService::Reclaimed { seq: TxnSeq(0), journal_tail: 0, lane_tails: vec![] },
        FromService::CheckpointDone { id: 9, urgency: Urgency::Emergency, report: report(0) },
        FromService::Statistics(Box::new(statistics)),
        FromService::Refused { reason: "another volume".into() },
        FromService::Bye,
        FromService::Discarded { id: 77, blocks: 6, failed: 1, unsupported: true },
    ];
    all.extend(errors().into_iter().map(|error| FromService::Failed { error }));
    all.extend(
        (1..).zip(storage_answers()).map(|(id, answer)| FromService::Storage { id, answer }),
    );
    all
}

fn runs() -> impl Strategy<Value = Vec<BlockRun>> {
    let run = (0..u64::MAX / 2, 0..u64::MAX / 2).prop_map(|(start, len)| BlockRun { start, len });
    vec(run, 0..5)
}

fn blocks() -> impl Strategy<Value = Vec<SharedBlock>> {
    vec(any::<u8>().prop_map(block), 0..4)
}

fn arbitrary_transaction() -> impl Strategy<Value = Transaction> {
    let staged = (any::<u16>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>()).prop_map(
        |(lane, pos, len, lsn, crc)| StagedRef { lane: LaneId(lane), pos, len, lsn: Lsn(lsn), crc },
    );
    let zero = (0..u64::MAX / 2, any::<u32>()).prop_map(|(dst, len)| ZeroTag { dst, len });
    let copy = (any::<u32>(), any::<u32>(), 0..u64::MAX / 2, any::<u32>())
        .prop_map(|(source, data_offset, dst, len)| CopyTag { source, data_offset, dst, len });
    let digest = (any::<u16>(), any::<[u32; 3]>(), any::<u64>()).prop_map(
        |(lane, [prev_crc, crc, ranges], from)| Digest {
            lane: LaneId(lane),
            from,
            prev_crc,
            crc,
            ranges,
        },
    );
    let digest = proptest::option::of(digest);
    let lists = (vec(any::<u64>(), 0..17), vec(staged, 0..9), vec(zero, 0..9), vec(copy, 0..9));
    let bulk = (vec(any::<u64>(), 0..9), blocks(), runs(), runs());
    (any::<[u64; 3]>(), digest, lists, bulk).prop_map(|([seq, ops, cut], digest, lists, bulk)| {
        let (lane_upto, staged, zeros, copies) = lists;
        let (images, image_data, direct, drops) = bulk;
        let (seq, ops_cut, staged_cut) = (TxnSeq(seq), Lsn(ops), Lsn(cut));
        let tags = Transaction {
            seq,
            ops_cut,
            staged_cut,
            lane_upto,
            digest,
            staged,
            ..Default::default()
        };
        Transaction { zeros, copies, images, image_data, direct, drops, ..tags }
    })
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![Just(Urgency::Background), Just(Urgency::Emergency)]
}

/// Any message to a Service whose ranges end within 64 bits.
pub fn any_to_service() -> impl Strategy<Value = ToService> {
    let run = (runs(), blocks()).prop_map(|(runs, data)| {
        let run = runs.first().copied().unwrap_or_default();
        DirectRun { run, data }
    });
    prop_oneof![
        (any::<u32>(), any::<[u8; 16]>(), any::<u64>()).prop_map(|(version, volume, epoch)| {
            ToService::Hello { version, volume, epoch: Epoch(epoch) }
        }),
        (any::<u64>(), vec(run, 0..4), any::<bool>()).prop_map(|(seq, runs, waited)| {
            ToService::Direct { seq: TxnSeq(seq), runs, waited }
        }),
        (arbitrary_transaction(), any::<bool>())
            .prop_map(|(txn, waited)| ToService::Submit { txn: Box::new(txn), waited }),
        (any::<u64>(), any::<u64>(), urgency()).prop_map(|(id, upto, urgency)| {
            ToService::Checkpoint { id, upto: TxnSeq(upto), urgency }
        }),
        Just(ToService::Statistics),
        Just(ToService::Goodbye),
        text().prop_map(|reason| ToService::Objection { reason }),
        (any::<u32>(), any::<[u8; 16]>())
            .prop_map(|(version, volume)| ToService::Inquire { version, volume }),
        any::<u32>().prop_map(|ms| ToService::ExpectUrgent { ms }),
        (any::<u64>(), runs()).prop_map(|(id, runs)| ToService::Discard { id, runs }),
        (any::<u64>(), any_call()).prop_map(|(id, call)| ToService::Storage { id, call }),
        (any::<u64>(), any::<(u32, u64, u64)>(), any_call()).prop_map(|(id, at, call)| {
            let (queue, number, first) = at;
            ToService::Queued { id, place: Place { queue, number, first }, call }
        }),
    ]
}

fn any_call() -> impl Strategy<Value = StorageCall> {
    let write = (any::<u8>(), any::<u64>(), any::<u32>(), any::<bool>(), blocks()).prop_map(
        |(device, offset, len, durable, blocks)| StorageCall::Write {
            device,
            offset,
            len,
            durable,
            blocks,
        },
    );
    let read = (any::<u8>(), any::<u64>(), any::<u32>())
        .prop_map(|(device, offset, len)| StorageCall::Read { device, offset, len });
    let open = (any::<u32>(), text()).prop_map(|(version, volume)| StorageCall::Open {
        version,
        volume,
        access: Access::Alone,
    });
    prop_oneof![write, read, open, proptest::sample::select(storage_calls())]
}

fn text() -> impl Strategy<Value = String> {
    ".{0,60}"
}

fn error() -> impl Strategy<Value = Error> {
    let io = (0..3usize, any::<u64>(), any::<u64>(), any::<i32>()).prop_map(
        |(op, offset, len, errno)| Error::Io {
            op: ["read", "write", "flush"][op],
            offset,
            len,
            errno,
        },
    );
    prop_oneof![
        any::<i32>().prop_map(Error::Posix),
        (text(), text()).prop_map(|(what, detail)| Error::Corrupt { what, detail }),
        text().prop_map(Error::Incompatible),
        io,
        text().prop_map(Error::Latched),
        text().prop_map(Error::Refused),
        text().prop_map(Error::Link),
    ]
}

/// Any message of a Service.
pub fn any_from_service() -> impl Strategy<Value = FromService> {
    prop_oneof![
        (any::<u32>(), any::<[u64; 2]>()).prop_map(|(version, [j, c])| FromService::Welcome {
            version,
            journaled: TxnSeq(j),
            checkpointed: TxnSeq(c),
        }),
        any::<[u64; 3]>().prop_map(|[seq, bytes, image_pos]| FromService::Journaled {
            seq: TxnSeq(seq),
            bytes,
            image_pos,
        }),
        (any::<[u64; 2]>(), vec(any::<u64>(), 0..17)).prop_map(|([seq, tail], lane_tails)| {
            FromService::Reclaimed { seq: TxnSeq(seq), journal_tail: tail, lane_tails }
        }),
        (any::<u64>(), urgency(), 0..u64::MAX - 99).prop_map(|(id, urgency, base)| {
            FromService::CheckpointDone { id, urgency, report: report(base) }
        }),
        (0..u64::MAX - 199, any::<i64>()).prop_map(|(base, checkpoint_last_s)| {
            let statistics = ServiceStatistics {
                journaled_bytes: base,
                checkpoint_total: report(base),
                checkpoint_last_s,
                device: (base % 2 == 0).then(|| device(base)),
                ..Default::default()
            };
            FromService::Statistics(Box::new(statistics))
        }),
        error().prop_map(|error| FromService::Failed { error }),
        text().prop_map(|reason| FromService::Refused { reason }),
        Just(FromService::Bye),
        (any::<[u64; 3]>(), any::<bool>()).prop_map(|([id, blocks, failed], unsupported)| {
            FromService::Discarded { id, blocks, failed, unsupported }
        }),
        (any::<u64>(), blocks()).prop_map(|(id, blocks)| FromService::Storage {
            id,
            answer: StorageAnswer::Data { blocks },
        }),
        (any::<u64>(), proptest::sample::select(storage_answers()))
            .prop_map(|(id, answer)| FromService::Storage { id, answer }),
    ]
}
