//! What lies in a volume's log, and what recovery would do with it. The checks note what they see.
//! Names, contents and the secret nonces of the epochs are not among it.

use crate::digest::physical;
use crate::superblock::Super;
use crate::{Check, Devices, Finding, Severity, Volume};
use serde::Serialize;
use siftfs_base::BLOCK_SIZE;
use siftfs_device::Device;
use siftfs_log::{
    Checked, DecodeError, Digest, HOST_SLOTS, HostRecord, HostState, Item, JournalHeader,
    LaneEntry, LaneMedium, NameOpKind, OPEN_END, RecordAreaHeader, RecordHead, SERVICE_SLOTS,
    ServiceRecord, StaticHeader, Transaction, show_uuid,
};
use std::collections::BTreeMap;

/// All that is to be seen. Positions are byte counts that only grow; see the format's description.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The superblock's state.
    pub marker: Marker,
    /// Regions of the volume in bytes: name, offset, length.
    pub regions: Vec<(String, u64, u64)>,
    /// The volume's UUID, if a header was found.
    pub volume: Option<String>,
    /// The log lies on a device of its own.
    pub external_log: bool,
    /// The area's blocks are reserved in its file.
    pub reserved: bool,
    /// What is in each place of the header copies.
    pub slots: Vec<SlotView>,
    /// The host record that serves.
    pub host: Option<HostView>,
    /// The service record that serves.
    pub service: Option<ServiceView>,
    /// What the record area's header says.
    pub record_area: Option<RecordAreaView>,
    /// What the redo lane has.
    pub redo_lane: Option<RedoLaneView>,
    /// The staging lanes.
    pub lanes: Vec<LaneView>,
    /// The journal.
    pub journal: Option<JournalView>,
    /// What recovery would do.
    pub recovery: Recovery,
    /// What the checks found.
    pub findings: Vec<Finding>,
}

/// The superblock and the marker of a volume in use.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Marker {
    /// There is an ext4 superblock.
    pub superblock: bool,
    /// The superblock's checksum holds.
    pub whole: bool,
    /// The superblock carries the marker.
    pub marked: bool,
}

/// One place of a header copy.
#[derive(Clone, Debug, Serialize)]
pub struct SlotView {
    /// Header copy, 0 or 1.
    pub copy: usize,
    /// `static`, `host A`, ...
    pub name: &'static str,
    /// Byte on the log's device.
    pub offset: u64,
    /// Number of the record; `None` for the static part and for what is not valid.
    pub seq: Option<u64>,
    /// Why it is not valid.
    pub invalid: Option<String>,
}

/// The newest host record.
#[derive(Clone, Debug, Serialize)]
pub struct HostView {
    /// The record's number.
    pub seq: u64,
    /// `clean`, `mounted` or `recovering`.
    pub state: &'static str,
    /// Present epoch.
    pub epoch: u64,
    /// Epoch of the records in the lanes.
    pub lane_epoch: u64,
    /// Epoch of the records in the journal.
    pub journal_epoch: u64,
    /// Every LSN drawn later is larger.
    pub lsn_floor: u64,
    /// Lane ends that a recovery recorded; `None` is open.
    pub lane_ends: Vec<Option<u64>>,
    /// The registry of private logs, whose logs a recovery takes in last.
    pub registry: Option<RegistryView>,
}

/// A registry of private logs that the host record names.
#[derive(Clone, Debug, Serialize)]
pub struct RegistryView {
    /// Its UUID.
    pub uuid: String,
    /// The directory that it and its logs lie in.
    pub dir: String,
}

/// The newest service record.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceView {
    /// The record's number.
    pub seq: u64,
    /// Epoch of its writer.
    pub epoch: u64,
    /// Journal tail.
    pub journal_tail: u64,
    /// Transaction due at the tail.
    pub next_transaction: u64,
    /// Name operations up to it are in the area.
    pub ops_cut: u64,
    /// Staged transactions up to it are in the area.
    pub staged_cut: u64,
    /// Lane tails.
    pub lane_tails: Vec<u64>,
}

/// The header of a record area.
#[derive(Clone, Debug, Serialize)]
pub struct RecordAreaView {
    /// What it lies on, for people.
    pub medium: String,
    /// UUID of its volume.
    pub volume: String,
    /// Epoch of the newest mount that wrote it.
    pub epoch: u64,
    /// The header's number.
    pub seq: u64,
    /// Bytes of its lane.
    pub len: u64,
}

impl RecordAreaView {
    pub(crate) fn of(area: &RecordAreaHeader, medium: String) -> Self {
        let RecordAreaHeader { seq, volume, epoch, len } = *area;
        Self { medium, volume: show_uuid(&volume), epoch: epoch.0, seq, len }
    }
}

/// A redo lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedoLaneView {
    /// Ring length in bytes.
    pub len: u64,
    /// Number of the slot that counts.
    pub seq: u64,
    /// Where the records begin that are not in their blocks.
    pub tail: u64,
    /// Where committed transactions end.
    pub end: u64,
    /// Number of the transaction due at the tail.
    pub next_transaction: u64,
    /// Committed transactions, which recovery writes to their blocks.
    pub transactions: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// A staging lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneView {
    /// The lane's number.
    pub lane: u16,
    /// Ring length in bytes.
    pub len: u64,
    /// Where the lane's unreclaimed records begin.
    pub tail: u64,
    /// Where the lane's records end.
    pub end: u64,
    /// Why the lane's records end there.
    pub why: &'static str,
    /// The records, in order.
    pub records: Vec<RecordView>,
}

/// A staged transaction.
#[derive(Clone, Debug, Serialize)]
pub struct RecordView {
    /// Position in the lane.
    pub pos: u64,
    /// Length in bytes.
    pub len: u32,
    /// The record's LSN.
    pub lsn: u64,
    /// Number of the one before it in the order of all lanes.
    pub prev_lsn: u64,
    /// Number of the record of the record area before it, 0 if there is none or it is one itself.
    pub prev_compact: u64,
    /// Is it one of the record area?
    pub compact: bool,
    /// Every number up to it was known durable when this was written.
    pub durable_lsn: u64,
    /// Items by kind.
    pub items: BTreeMap<&'static str, u64>,
    /// Bytes of file data.
    pub data: u32,
    /// Would recovery apply it?
    pub applies: bool,
    /// Physical ranges: those that name their place in the file system themselves.
    pub physical: usize,
}

/// The journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalView {
    /// Ring length in bytes.
    pub len: u64,
    /// What the journal holds of staged data: `ref` or `copy`.
    pub data: String,
    /// Where unreclaimed transactions begin.
    pub tail: u64,
    /// Where the journal's transactions end.
    pub end: u64,
    /// The committed transactions, in order.
    pub transactions: Vec<TransactionView>,
}

/// A background journal transaction.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionView {
    /// The transaction's number.
    pub seq: u64,
    /// Position in the journal.
    pub pos: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name operations up to it are contained.
    pub ops_cut: u64,
    /// Staged transactions up to it are contained.
    pub staged_cut: u64,
    /// Staged transactions named.
    pub staged: usize,
    /// Copy tags.
    pub copies: usize,
    /// Zero tags.
    pub zeros: usize,
    /// Metadata images.
    pub images: usize,
    /// Freed runs.
    pub drops: usize,
    /// Runs written straight to the area.
    pub direct: usize,
    /// Bytes of staged data that it repeats.
    pub repeated: u32,
    /// The physical ranges that it contains, if there are any.
    pub digest: Option<DigestView>,
}

/// The physical ranges that a transaction contains: all those of a lane's records from `from` up to
/// where the transaction ends in that lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DigestView {
    /// The lane's number.
    pub lane: u16,
    /// Position in the lane.
    pub from: u64,
    /// Number of the ranges.
    pub ranges: u32,
}

impl From<&Digest> for DigestView {
    fn from(digest: &Digest) -> Self {
        let Digest { lane, from, ranges, .. } = *digest;
        Self { lane: lane.0, from, ranges }
    }
}

/// What recovery would do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recovery {
    /// Is there anything to do?
    pub needed: bool,
    /// Why it would refuse.
    pub stops: Option<String>,
    /// Journal transactions to replay.
    pub replay: usize,
    /// Staged transactions found.
    pub found: usize,
    /// Of them, to apply: newer than the newest cut.
    pub apply: usize,
    /// Of them, behind a lost record: never acknowledged, to be dropped.
    pub drop: usize,
    /// The newest durable cut.
    pub cut: u64,
}

/// What the checks note.
#[derive(Default)]
pub(crate) struct Seen {
    pub volume: Option<Volume>,
    pub journal_end: u64,
    pub record_area: Option<RecordAreaView>,
    pub redo_lane: Option<RedoLaneView>,
    marker: Marker,
    records: Vec<RecordView>,
    lanes: Vec<LaneView>,
    transactions: Vec<TransactionView>,
}

impl Seen {
    pub fn primary(&mut self, primary: Option<&Super>) {
        let Some(s) = primary else { return };
        self.marker = Marker { superblock: true, whole: s.checksum_ok(), marked: s.marker() };
    }

    pub fn record(&mut self, head: &RecordHead) {
        let p = &head.header.params;
        let mut items = BTreeMap::new();
        for item in &head.items {
            *items.entry(kind(item)).or_default() += 1;
        }
        self.records.push(RecordView {
            pos: p.pos,
            len: head.header.layout.len,
            lsn: p.lsn.0,
            prev_lsn: p.prev_lsn.0,
            prev_compact: p.prev_compact.0,
            compact: head.header.layout.medium == LaneMedium::Bytes,
            durable_lsn: p.durable_lsn.0,
            items,
            data: head.header.layout.data_len,
            applies: false,
            physical: physical(head).count(),
        });
    }

    /// The records noted since the last lane are this one's.
    pub fn lane(&mut self, e: &LaneEntry, tail: u64, end: u64, recorded: Option<u64>, torn: bool) {
        let why = match recorded {
            Some(r) if r == end => "an earlier recovery recorded this end",
            Some(_) => "damage: an earlier recovery found records beyond",
            None if torn => "the next record is torn or damaged",
            None => "no valid record of this epoch follows",
        };
        let records = std::mem::take(&mut self.records);
        self.lanes.push(LaneView { lane: e.id.0, len: e.len, tail, end, why, records });
    }

    pub fn transaction(&mut self, t: &Transaction, header: &JournalHeader) {
        self.transactions.push(TransactionView {
            seq: t.seq.0,
            pos: header.params.pos,
            len: header.layout.len,
            ops_cut: t.ops_cut.0,
            staged_cut: t.staged_cut.0,
            staged: t.staged.len(),
            copies: t.copies.len(),
            zeros: t.zeros.len(),
            images: t.images.len(),
            drops: t.drops.len(),
            direct: t.direct.len(),
            repeated: header.layout.data_len,
            digest: t.digest.as_ref().map(DigestView::from),
        });
    }
}

fn kind(item: &Item) -> &'static str {
    match item {
        Item::Inode(_) => "inode",
        Item::Data { .. } => "data",
        Item::Zero { .. } => "zero",
        Item::Truncate { .. } => "truncate",
        Item::Allocate { .. } => "allocate",
        Item::Xattrs { .. } => "xattrs",
        Item::Reply(_) => "reply",
        Item::NameOp(op) => match op.kind {
            NameOpKind::Create { .. } => "create",
            NameOpKind::Link { .. } => "link",
            NameOpKind::Unlink { .. } => "unlink",
            NameOpKind::RemoveDir { .. } => "rmdir",
            NameOpKind::Rename { .. } => "rename",
            NameOpKind::Exchange { .. } => "exchange",
        },
    }
}

/// Looks at all of a volume's log; nothing is written.
pub fn inspect<'a>(devices: impl Into<Devices<'a>>) -> Inspection {
    let devices = devices.into();
    let check = Check::of(devices, Some(Seen::default()));
    let mut check = crate::run(check, devices.log.is_some());
    let mut seen = check.seen.take().unwrap_or_default();
    let recovery = recovery(&check.findings, &mut seen);
    let v = seen.volume.as_ref();
    let journal = v.map(|v| JournalView {
        len: v.header.journal_len,
        data: v.header.journal_data().to_string(),
        tail: v.service.journal_tail,
        end: seen.journal_end,
        transactions: std::mem::take(&mut seen.transactions),
    });
    Inspection {
        marker: seen.marker,
        regions: v.map_or(Vec::new(), |v| v.header.regions()),
        volume: v.map(|v| show_uuid(&v.header.volume)),
        external_log: v.is_some_and(|v| v.header.external_log()),
        reserved: v.is_some_and(|v| v.header.reserved()),
        slots: v.map_or(Vec::new(), |v| slots(check.log, &v.header)),
        host: v.map(|v| host_view(&v.host)),
        service: v.map(|v| service_view(&v.service)),
        record_area: seen.record_area,
        redo_lane: seen.redo_lane,
        lanes: seen.lanes,
        journal,
        recovery,
        findings: check.findings,
    }
}

/// Follows the order of recovery: the journal's transactions, then records above the newest cut, as
/// far as each follows the one it names.
fn recovery(findings: &[Finding], seen: &mut Seen) -> Recovery {
    let stops = findings.iter().find(|f| f.severity == Severity::Error).map(|f| f.text.clone());
    let Some(v) = &seen.volume else {
        return Recovery { needed: seen.marker.marked, stops, ..Recovery::default() };
    };
    let dirty = v.host.state != HostState::Clean;
    let needed = dirty || seen.marker.marked || !seen.marker.whole;
    let cut = seen.transactions.last().map_or(v.service.staged_cut.0, |t| t.staged_cut);
    let mut all: Vec<_> = seen.lanes.iter_mut().flat_map(|l| &mut l.records).collect();
    all.sort_by_key(|r| r.lsn);
    let mut drop = 0;
    let (found, mut last, mut last_compact, mut gap, mut apply) = (all.len(), cut, cut, false, 0);
    for record in all {
        let follows = |prev: u64, last: u64| prev <= cut || prev == last;
        if record.compact {
            last_compact = record.lsn;
        } else {
            let chained = follows(record.prev_lsn, last);
            gap |= !(chained && follows(record.prev_compact, last_compact));
            last = record.lsn;
        }
        let kept = record.compact || !gap;
        record.applies = dirty && kept && record.lsn > cut;
        apply += usize::from(record.applies);
        drop += usize::from(!kept);
    }
    Recovery { needed, stops, replay: seen.transactions.len(), found, apply, drop, cut }
}

fn host_view(h: &HostRecord) -> HostView {
    HostView {
        seq: h.seq,
        state: match h.state {
            HostState::Clean => "clean",
            HostState::Mounted => "mounted",
            HostState::Recovering => "recovering",
        },
        epoch: h.key.epoch.0,
        lane_epoch: h.lane_key.epoch.0,
        journal_epoch: h.journal_key.epoch.0,
        lsn_floor: h.lsn_floor.0,
        lane_ends: h.lane_ends.iter().map(|e| Some(*e).filter(|e| *e != OPEN_END)).collect(),
        registry: h.registry.as_ref().map(|name| RegistryView {
            uuid: show_uuid(name.uuid()),
            dir: name.dir().to_string_lossy().into_owned(),
        }),
    }
}

fn service_view(s: &ServiceRecord) -> ServiceView {
    ServiceView {
        seq: s.seq,
        epoch: s.epoch.0,
        journal_tail: s.journal_tail,
        next_transaction: s.next_seq.0,
        ops_cut: s.ops_cut.0,
        staged_cut: s.staged_cut.0,
        lane_tails: s.lane_tails.clone(),
    }
}

/// Every place of both copies.
fn slots(dev: &dyn Device, header: &StaticHeader) -> Vec<SlotView> {
    let mut all = Vec::new();
    for (copy, base) in header.header_offsets.into_iter().enumerate() {
        let mut look =
            |name, offset, decode: &dyn Fn(&[u8; BLOCK_SIZE]) -> Checked<Option<u64>>| {
                let mut block = [0; BLOCK_SIZE];
                let read = dev.read(offset, &mut block).map_err(DecodeError::from);
                let (seq, invalid) = match read.and_then(|()| decode(&block)) {
                    Ok(seq) => (seq, None),
                    Err(DecodeError::Invalid(why)) => (None, Some(why.0.to_string())),
                    Err(DecodeError::Stop(e)) => (None, Some(e.to_string())),
                };
                all.push(SlotView { copy, name, offset, seq, invalid });
            };
        look("static", base, &|b| StaticHeader::decode(b).map(|_| None));
        for (name, at) in ["host A", "host B"].into_iter().zip(HOST_SLOTS) {
            look(name, base + at, &|b| HostRecord::decode(b).map(|r| Some(r.seq)));
        }
        for (name, at) in ["service A", "service B"].into_iter().zip(SERVICE_SLOTS) {
            look(name, base + at, &|b| ServiceRecord::decode(b).map(|r| Some(r.seq)));
        }
    }
    all
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
