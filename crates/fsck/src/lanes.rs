//! Staging lanes: the chain of records from tail to end.

use crate::digest::{all_within, physical};
use crate::ring::Ring;
use crate::{Check, Volume};
use siftfs_base::{LaneId, Lsn};
use siftfs_log::{
    DecodeError, HostState, LaneMedium, LogKey, OPEN_END, RecordHead, RecordHeader, RecordParams,
    decode_record,
};

/// One lane being read.
struct Lane<'a> {
    id: LaneId,
    ring: Ring,
    key: LogKey,
    what: String,
    /// Bytes of the file-system area.
    area: u64,
    end: u64,
    crc: Option<u32>,
    lsn: Lsn,
    /// Every number of this epoch is larger.
    floor: Lsn,
    /// LSN of a damaged record at the end whose head survived.
    torn: Option<Lsn>,
    /// Highest LSN that any record calls durable.
    durable: Lsn,
    /// Where valid records are noted.
    records: &'a mut Vec<Link>,
}

/// A valid record, and those that it names as before it.
struct Link {
    lsn: Lsn,
    medium: LaneMedium,
    /// On its medium.
    prev: Lsn,
    /// In the record area, of a record that is not there.
    prev_compact: Lsn,
}

/// What the lanes' records say of their order.
#[derive(Default)]
pub(crate) struct Order {
    /// Every valid record.
    records: Vec<Link>,
    /// Highest number that any record calls durable.
    durable: Lsn,
}

impl Order {
    /// Is there a record in any lane?
    pub fn any(&self) -> bool {
        !self.records.is_empty()
    }
}

/// Checks every lane by itself.
pub(crate) fn check(c: &mut Check<'_>, v: &Volume) -> Order {
    let mut ends: Vec<(LaneId, Option<Lsn>, Lsn)> = Vec::new();
    let mut order = Order::default();
    for (i, entry) in v.header.lanes.iter().enumerate() {
        let tail = v.service.lane_tails[i];
        let mut lane = Lane {
            id: entry.id,
            ring: Ring::of(entry, tail),
            key: v.host.lane_key.lane(entry.id),
            what: format!("lane {i}"),
            area: v.header.area_len,
            end: tail,
            crc: None,
            lsn: Lsn(0),
            floor: v.host.lsn_floor,
            torn: None,
            durable: Lsn(0),
            records: &mut order.records,
        };
        let recorded = Some(v.host.lane_ends[i]).filter(|e| *e != OPEN_END);
        while recorded != Some(lane.end) && lane.advance(c, recorded) {}
        lane.judge(c, v, recorded);
        let (end, torn) = (lane.end, lane.torn.is_some());
        c.see(|seen| seen.lane(entry, tail, end, recorded, torn));
        ends.push((lane.id, lane.torn, lane.durable));
    }
    let durable = ends.iter().map(|e| e.2).max().unwrap_or_default();
    for (id, _, _) in ends.iter().filter(|e| e.1.is_some_and(|t| t <= durable)) {
        c.error("lane.rot", format!("lane {}: a durable record is damaged", id.0));
    }
    order.durable = durable;
    order
}

/// Checks the order of all lanes' records: above `base`, the newest journaled cut, each follows
/// those that it names (rules R24, R44). A cut leaves gaps only above what was durable (rule R14).
pub(crate) fn check_order(c: &mut Check<'_>, mut order: Order, base: Lsn) {
    order.records.sort_unstable_by_key(|record| record.lsn);
    let (mut last, mut last_compact) = (base, base);
    for Link { lsn, medium, prev, prev_compact } in order.records {
        if medium == LaneMedium::Bytes {
            last_compact = lsn;
            continue;
        }
        let lost = |before: Lsn, last: Lsn| (before > base && before != last).then_some(before);
        if let Some(before) = lost(prev, last).or(lost(prev_compact, last_compact)) {
            let missing = format!("record {} is in no lane, record {} follows it", before.0, lsn.0);
            if before <= order.durable {
                c.error("lane.gap", format!("{missing}, and it was durable"));
            } else {
                c.info("lane.gap", format!("{missing}; neither was acknowledged"));
            }
            return;
        }
        last = lsn;
    }
}

impl Lane<'_> {
    /// Takes the next record; false at the end.
    fn advance(&mut self, c: &mut Check<'_>, recorded: Option<u64>) -> bool {
        for pos in self.ring.candidates(self.end) {
            let Some(head) = self.whole_at(c, pos) else { continue };
            let h = head.header;
            let chained = h.params.prev_end == self.end
                && self.crc.is_none_or(|crc| crc == h.params.prev_crc)
                && recorded.is_none_or(|r| h.end() <= r);
            if !chained {
                continue;
            }
            if h.params.lsn <= self.lsn {
                let text = format!("{}: number {} after {}", self.what, h.params.lsn.0, self.lsn.0);
                c.error("lane.lsn", text);
            }
            if self.lsn == Lsn(0) && h.params.lsn <= self.floor {
                let text = format!("{}: number {} was drawn before", self.what, h.params.lsn.0);
                c.error("lane.floor", text);
            }
            self.check_homes(c, &head);
            self.end = h.end();
            self.crc = Some(h.crc);
            self.lsn = self.lsn.max(h.params.lsn);
            let RecordParams { lsn, prev_lsn: prev, prev_compact, .. } = h.params;
            self.records.push(Link { lsn, medium: self.ring.medium, prev, prev_compact });
            c.see(|seen| seen.record(&head));
            self.durable = self.durable.max(h.params.durable_lsn);
            self.torn = None;
            return true;
        }
        false
    }

    /// Only records of the record area are digested, so only they may have physical ranges, and
    /// those lie in the file-system area (rule R42).
    fn check_homes(&self, c: &mut Check<'_>, head: &RecordHead) {
        let name = || format!("{}: record {}", self.what, head.header.params.lsn.0);
        if self.ring.medium != LaneMedium::Bytes && physical(head).next().is_some() {
            let text =
                format!("{}: it names the place of its data, and nothing digests it", name());
            c.error("lane.home", text);
        }
        if !all_within(head, self.area) {
            let text = format!("{}: its data belongs outside the file system", name());
            c.error("lane.home", text);
        }
    }

    fn header_at(&self, c: &mut Check<'_>, pos: u64) -> Option<RecordHeader> {
        self.ring.header(c, pos, self.id, &self.key, &self.what)
    }

    /// A record whose head and data hold. Valid checksums over impossible content are findings.
    fn whole_at(&mut self, c: &mut Check<'_>, pos: u64) -> Option<RecordHead> {
        let header = self.header_at(c, pos)?;
        let bytes = self.ring.read(c, pos, u64::from(header.layout.len), &self.what)?;
        let max = self.ring.max_record();
        match decode_record(&bytes, &self.key, self.id, pos, max) {
            Ok((head, _)) => Some(head),
            Err(DecodeError::Invalid(_)) => {
                let head_ok = header.verify_head(&self.key, &bytes);
                let next = header.params.prev_end == self.end;
                self.torn = (head_ok && next).then_some(header.params.lsn).or(self.torn);
                None
            }
            Err(DecodeError::Stop(e)) => {
                c.failed("lane.item", &format!("{} at position {pos}", self.what), &e);
                None
            }
        }
    }

    /// Is the end found a good one?
    fn judge(&mut self, c: &mut Check<'_>, v: &Volume, recorded: Option<u64>) {
        let (end, tail) = (self.end, self.ring.tail);
        if let Some(recorded) = recorded {
            if end != recorded {
                let text = format!("{}: valid to {end}, but to {recorded} before", self.what);
                c.error("lane.end", text);
            }
            return;
        }
        if v.host.state == HostState::Clean && end != tail {
            let text = format!("{}: {} bytes of records in a clean volume", self.what, end - tail);
            c.error("lane.not-empty", text);
        }
        let max = self.ring.max_record();
        let (mut horizon, mut skip_to) = (self.ring.horizon(end, max), 0);
        let mut behind = 0;
        for pos in self.ring.behind(end) {
            if pos > horizon {
                break;
            }
            if pos < skip_to {
                continue;
            }
            let Some(header) = self.header_at(c, pos) else { continue };
            let bytes = self.ring.read(c, pos, u64::from(header.layout.len), &self.what);
            if !bytes.is_some_and(|b| header.verify_head(&self.key, &b)) {
                continue;
            }
            if header.params.lsn <= self.lsn {
                continue;
            }
            behind += 1;
            self.durable = self.durable.max(header.params.durable_lsn);
            (skip_to, horizon) = (header.end(), header.end() + max);
            if header.params.durable_pos > end {
                let text = format!("{}: the durable record at {end} is damaged", self.what);
                c.error("lane.rot", text);
                return;
            }
        }
        if behind > 0 || self.torn.is_some() {
            let text = format!("{}: torn at {end}, {behind} unacknowledged behind", self.what);
            c.info("lane.torn", text);
        }
        debug_assert!(end % self.ring.medium.unit() == 0, "records are whole units");
    }
}
