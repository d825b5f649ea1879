//! Header copies, slots, geometry.

use crate::superblock::Super;
use crate::{Check, Volume};
use siftfs_base::BLOCK_SIZE;
use siftfs_log::{
    Checked, HEADER_LEN, HOST_SLOTS, HostRecord, HostState, OPEN_END, REGISTRY_VERSION,
    SERVICE_SLOTS, ServiceRecord, StaticHeader, if_valid,
};

type Block = [u8; BLOCK_SIZE];

/// Decodes the block at `offset`: `None` if it is not valid; a newer format is a finding.
fn block<T>(
    c: &mut Check<'_>,
    offset: u64,
    what: &str,
    decode: fn(&Block) -> Checked<T>,
) -> Option<T> {
    let bytes = c.read(offset, BLOCK_SIZE, what)?;
    let mut b = [0; BLOCK_SIZE];
    b.copy_from_slice(&bytes);
    match if_valid(decode(&b)) {
        Ok(found) => found,
        Err(e) => {
            c.failed("header.content", what, &e);
            None
        }
    }
}

/// Checks the header and returns what the rest is checked against.
pub(crate) fn check(c: &mut Check<'_>, primary: Option<&Super>, apart: bool) -> Option<Volume> {
    let header = find(c, primary, apart)?;
    check_geometry(c, &header, primary);
    let host = Kind { name: "host", slots: HOST_SLOTS, reserved: &HOST_RESERVED };
    let (host, older_host) = slots(c, &header, &host, HostRecord::decode, |r| r.seq)?;
    let service = Kind { name: "service", slots: SERVICE_SLOTS, reserved: &SERVICE_RESERVED };
    let (service, _) = slots(c, &header, &service, ServiceRecord::decode, |r| r.seq)?;
    let older_blank = HOST_SLOTS.into_iter().any(|slot| is_blank(c, &header, slot));
    let volume = Volume { header, host, service, older_host, older_blank };
    check_link(c, &volume, primary);
    check_records(c, &volume).then_some(volume)
}

/// The static part, from where copies can be; says which copies are missing.
fn find(c: &mut Check<'_>, primary: Option<&Super>, apart: bool) -> Option<StaticHeader> {
    let first = if apart { Some(0) } else { primary.and_then(Super::len) };
    let guesses = [c.log.size().checked_sub(HEADER_LEN), first];
    let mut found = None;
    for offset in guesses.into_iter().flatten() {
        found = found.or(block(c, offset, "header", StaticHeader::decode));
        if c.findings.iter().any(|f| f.code == "incompatible") {
            // A volume of another version: nothing here is known well enough to be called damaged.
            return None;
        }
    }
    let Some(header) = found else {
        c.error("header.none", "neither copy of the header is valid");
        return None;
    };
    let others = guesses.into_iter().flatten().filter(|at| !header.header_offsets.contains(at));
    others.for_each(|offset| check_other(c, &header, offset));
    if header.external_log() != apart {
        let text = if apart {
            "what was given as log is a volume that holds its own"
        } else {
            "this is a log, and not the volume that it belongs to"
        };
        c.error("header.kind", text);
        return None;
    }
    for (i, offset) in header.header_offsets.into_iter().enumerate() {
        let what = format!("header copy {i}");
        match block(c, offset, &what, StaticHeader::decode) {
            None => c.warn("header.copy", format!("{what} at byte {offset} is not valid")),
            Some(h) if h != header => {
                c.error("header.disagree", format!("{what} describes another volume"));
            }
            Some(_) => check_reserved(c, offset, &what, &STATIC_RESERVED),
        }
    }
    Some(header)
}

/// A header where one may be that is not this one: from before the log was moved, if nothing was
/// written since; else nobody knows which of both counts.
fn check_other(c: &mut Check<'_>, header: &StaticHeader, offset: u64) {
    let Some(other) = block(c, offset, "header", StaticHeader::decode) else { return };
    if other == *header || !other.header_offsets.contains(&offset) {
        return;
    }
    let newest = [header, &other].map(|header| {
        let bases = header.header_offsets.into_iter();
        let places = bases.flat_map(|base| HOST_SLOTS.map(|slot| base + slot));
        let records = places.filter_map(|at| block(c, at, "host record", HostRecord::decode));
        records.max_by_key(|record| record.seq)
    });
    let one = (header.volume, header.area_uuid) == (other.volume, other.area_uuid);
    if one && newest[0] == newest[1] {
        c.warn(
            "header.moved",
            format!("the header at byte {offset} is from before the log was moved"),
        );
    } else {
        c.error("header.disagree", format!("the header at byte {offset} describes another volume"));
    }
}

/// Bytes that the format keeps for later: from, to, and since which version they mean something.
type Reserved = (usize, usize, u32);
const LATER: u32 = u32::MAX;
const STATIC_RESERVED: [Reserved; 3] = [(28, 32, LATER), (112, 256, LATER), (1280, 4092, LATER)];
const HOST_RESERVED: [Reserved; 3] =
    [(344, 1024, LATER), (2048, 3068, REGISTRY_VERSION), (3068, 4092, LATER)];
const SERVICE_RESERVED: [Reserved; 1] = [(192, 4092, LATER)];

/// Reserved bytes that are not zero under a valid checksum were most likely written by a newer
/// version, whose feature flags say whether they must be understood.
fn check_reserved(c: &mut Check<'_>, offset: u64, what: &str, reserved: &[Reserved]) {
    let Some(bytes) = c.read(offset, BLOCK_SIZE, what) else { return };
    let version = bytes.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let kept = reserved.iter().filter(|(.., since)| version < *since);
    let mut parts = kept.filter_map(|(start, end, _)| bytes.get(*start..*end));
    if parts.any(|part| part.iter().any(|b| *b != 0)) {
        let text =
            format!("{what} at byte {offset}: bytes that this version does not use are not zero");
        c.info("header.reserved", text);
    }
}

fn check_geometry(c: &mut Check<'_>, header: &StaticHeader, primary: Option<&Super>) {
    for (name, offset, len) in header.regions() {
        if offset + len > c.log.size() {
            c.error("geometry.truncated", format!("{name} lies beyond the device's end"));
        }
    }
    let Some(primary) = primary.filter(|p| p.checksum_ok()) else { return };
    let room = if header.external_log() { c.area.size() } else { header.area_len };
    match primary.len() {
        Some(len) if len > room && header.external_log() => c.error(
            "geometry.truncated",
            format!("the file system has {len} bytes, its device {room}"),
        ),
        Some(len) if len > room => c.error(
            "geometry.grown",
            format!("the file system has {len} bytes, header and log begin at {}", header.area_len),
        ),
        None => c.error("geometry.grown", "the file system's length cannot be"),
        _ => {}
    }
    if primary.uuid() != header.area_uuid {
        c.error("geometry.uuid", "the log belongs to a file system with another UUID");
    }
}

/// A log elsewhere and the area name each other, and a marked area has the log of its own mount
/// (rule R16).
fn check_link(c: &mut Check<'_>, v: &Volume, primary: Option<&Super>) {
    let Some(primary) = primary.filter(|_| v.header.external_log()) else { return };
    let link = primary.link();
    match link {
        Some(link) if link.volume != v.header.volume => {
            let uuid = siftfs_log::show_uuid(&link.volume);
            c.error("link.volume", format!("the file system's log is another one, {uuid}"));
        }
        None => c.info("link.none", "the superblock names no log; the next mount notes this one"),
        Some(_) => {}
    }
    let wanted = siftfs_log::AreaLink::of_super(&v.host.superblock[..]);
    if primary.checksum_ok() && primary.marker() && link != wanted {
        c.error("link.epoch", "log and file system are of different times: one is an older copy");
    }
}

/// A kind of record.
struct Kind {
    name: &'static str,
    slots: [u64; 2],
    reserved: &'static [Reserved],
}

/// Newest record of two slots in two copies, and whether there is an older one, in the other slot.
fn slots<T: Clone + PartialEq>(
    c: &mut Check<'_>,
    header: &StaticHeader,
    kind: &Kind,
    decode: fn(&Block) -> Checked<T>,
    seq: fn(&T) -> u64,
) -> Option<(T, bool)> {
    let name = kind.name;
    let mut newest: [Option<T>; 2] = [None, None];
    let mut all: Vec<T> = Vec::new();
    let mut filled = [false; 2];
    for (copy, base) in header.header_offsets.into_iter().enumerate() {
        for (i, slot) in kind.slots.into_iter().enumerate() {
            let what = format!("{name} record in header copy {copy}");
            let Some(r) = block(c, base + slot, &what, decode) else { continue };
            check_reserved(c, base + slot, &what, kind.reserved);
            filled[i] = true;
            if all.iter().any(|o| seq(o) == seq(&r) && *o != r) {
                c.error("slot.conflict", format!("two {name} records have number {}", seq(&r)));
            }
            all.push(r.clone());
            if newest[copy].as_ref().is_none_or(|n| seq(&r) > seq(n)) {
                newest[copy] = Some(r);
            }
        }
    }
    let [a, b] = newest;
    let newest = match (a.as_ref().map(seq), b.as_ref().map(seq)) {
        (None, None) => {
            c.error("slot.none", format!("there is no valid {name} record in either copy"));
            None
        }
        (x, y) if x == y => a,
        (x, y) => {
            let behind = if x < y { 0 } else { 1 };
            c.warn("slot.behind", format!("header copy {behind} lacks the newest {name} record"));
            if behind == 0 { b } else { a }
        }
    };
    newest.map(|record| (record, filled == [true, true]))
}

/// Does this slot hold zeroes in both copies?
fn is_blank(c: &mut Check<'_>, header: &StaticHeader, slot: u64) -> bool {
    header.header_offsets.into_iter().all(|base| {
        let bytes = c.read(base + slot, BLOCK_SIZE, "host slot");
        bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    })
}

/// Checks tails, ends and counts; returns false if lanes and journal cannot be checked.
fn check_records(c: &mut Check<'_>, v: &Volume) -> bool {
    let lanes = v.header.lanes.len();
    if v.host.lane_ends.len() != lanes
        || v.host.lane_heads.len() != lanes
        || v.service.lane_tails.len() != lanes
    {
        c.error("record.lanes", "header and records disagree about the number of lanes");
        return false;
    }
    for (i, lane) in v.header.lanes.iter().enumerate() {
        let (tail, end) = (v.service.lane_tails[i], v.host.lane_ends[i]);
        let end_ok = end == OPEN_END
            || (end % lane.medium.unit() == 0 && end >= tail && end - tail <= lane.len);
        if !end_ok {
            c.error(
                "lane.tail",
                format!("lane {i}: tail {tail} and end {end} do not fit its ring"),
            );
            return false;
        }
    }
    let mut lanes = v.service.lane_tails.iter().zip(&v.host.lane_heads);
    if v.host.state == HostState::Mounted && lanes.any(|(tail, head)| tail < head) {
        c.error("record.older", "the newest service record is lost: an older one is left");
    }
    if v.service.epoch > v.host.key.epoch {
        c.error("record.epoch", "the Service wrote under an epoch that no host opened");
    }
    if v.host.lane_key.epoch > v.host.key.epoch || v.host.journal_key.epoch > v.host.key.epoch {
        c.error("record.epoch", "records of an epoch that the host record does not know yet");
    }
    check_clean(c, v);
    check_registry(c, v);
    if v.service.ops_cut > v.service.staged_cut {
        c.error("record.cut", "the service record's cuts contradict each other");
    }
    true
}

/// Programs' logs that the volume waits for. They are files of the host's, which are not looked at
/// here: only recovery can judge them.
fn check_registry(c: &mut Check<'_>, v: &Volume) {
    let Some(name) = &v.host.registry else { return };
    let (uuid, dir) = (siftfs_log::show_uuid(name.uuid()), name.dir().display());
    let text = format!(
        "logs of programs in {dir} (registry {uuid}) may hold what is not in the volume: it is not \
         clean before a recovery has taken them in"
    );
    c.info("registry.named", text);
}

/// What the next mount of a clean volume builds on: where it appends, and from which number on it
/// counts. Below the cut, recovery would take new records for contained ones.
fn check_clean(c: &mut Check<'_>, v: &Volume) {
    if v.host.state != HostState::Clean {
        return;
    }
    for (i, lane) in v.header.lanes.iter().enumerate() {
        let (head, tail) = (v.host.lane_heads[i], v.service.lane_tails[i]);
        if head < tail || head - tail > lane.len || head % lane.medium.unit() != 0 {
            c.error(
                "lane.head",
                format!("lane {i}: head {head} and tail {tail} do not fit its ring"),
            );
        }
    }
    if v.service.staged_cut > v.host.lsn_floor {
        let (cut, floor) = (v.service.staged_cut.0, v.host.lsn_floor.0);
        c.error("record.floor", format!("numbers would start at {floor}, below the cut {cut}"));
    }
}
