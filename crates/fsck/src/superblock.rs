//! The ext4 superblock and its backups: checksum and marker (rule R15).

use crate::{Check, Volume};
use siftfs_log::{
    AreaLink, DESCRIPTOR_HEADER_LEN, EXT4_MARKER, HostState, JournalHeader, LaneMedium,
    RECORD_HEADER_LEN, RecordHeader,
};

const LEN: usize = 1024;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const INCOMPAT_64BIT: u32 = 0x80;

/// Fields of a superblock that the log's checks need.
pub(crate) struct Super {
    bytes: Vec<u8>,
}

impl Super {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let magic = bytes.get(56..58) == Some(&[0x53, 0xef][..]);
        (magic && bytes.len() == LEN).then(|| Self { bytes: bytes.to_vec() })
    }
    fn u32(&self, at: usize) -> u32 {
        let mut b = [0; 4];
        b.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(b)
    }
    pub fn marker(&self) -> bool {
        self.u32(96) & EXT4_MARKER != 0
    }
    pub fn checksum_ok(&self) -> bool {
        let used = self.u32(100) & RO_COMPAT_METADATA_CSUM != 0;
        used && !siftfs_base::crc32c(&self.bytes[..1020]) == self.u32(1020)
    }
    /// Time and number of the last mount.
    fn mounts(&self) -> (u32, u32) {
        (self.u32(44), self.u32(52) & 0xffff)
    }
    fn blocks(&self) -> u64 {
        let high = if self.u32(96) & INCOMPAT_64BIT != 0 { self.u32(0x150) } else { 0 };
        u64::from(high) << 32 | u64::from(self.u32(4))
    }
    /// Length of the file system in bytes, if it can be one.
    pub fn len(&self) -> Option<u64> {
        (self.u32(24) <= 6).then(|| self.blocks().checked_mul(1024 << self.u32(24))).flatten()
    }
    /// The log elsewhere that it names.
    pub fn link(&self) -> Option<AreaLink> {
        AreaLink::of_super(&self.bytes)
    }
    pub fn uuid(&self) -> &[u8] {
        &self.bytes[104..120]
    }
    /// First blocks of the groups that hold a backup.
    fn backups(&self) -> Vec<u64> {
        let per_group = u64::from(self.u32(32));
        if per_group == 0 || self.u32(92) & COMPAT_SPARSE_SUPER2 != 0 {
            return Vec::new();
        }
        let groups = self.blocks().div_ceil(per_group);
        if self.u32(100) & RO_COMPAT_SPARSE_SUPER == 0 {
            return (1..groups.min(1 << 16)).map(|g| g * per_group).collect();
        }
        let mut all = vec![1];
        for base in [3u64, 5, 7] {
            all.extend(std::iter::successors(Some(base), |g| g.checked_mul(base)).take(40));
        }
        all.retain(|g| *g < groups);
        all.sort_unstable();
        all.into_iter().filter_map(|g| g.checked_mul(per_group)).collect()
    }
}

/// The primary superblock of an area at the device's start, whole or not.
pub(crate) fn primary(c: &mut Check<'_>) -> Option<Super> {
    c.read_area(1024, LEN, "primary superblock").as_deref().and_then(Super::parse)
}

/// Is the primary superblock whole? A power cut may tear it while the marker is set or cleared:
/// the header holds a copy, and recovery puts it back (rule R15).
pub(crate) fn judge(c: &mut Check<'_>, v: Option<&Volume>, primary: Option<&Super>) {
    let (code, what) = match primary {
        Some(s) if s.checksum_ok() => return,
        Some(_) => ("super.torn", "the primary superblock is torn: its checksum does not hold"),
        None => ("super.missing", "there is no ext4 superblock at byte 1024"),
    };
    if let Some(v) = v.filter(|v| v.host.state == HostState::Clean) {
        check_torn_at_the_end(c, v);
    }
    if v.and_then(copy_of).is_some_and(|s| s.checksum_ok()) {
        let text = format!("{what}; recovery restores it from the header's copy");
        c.warn(code, text);
    } else {
        c.error(code, format!("{what}, and the header holds no copy of it"));
    }
}

/// A damaged superblock under a clean header is one that an unmount tore, if the header is the
/// newest there was: nothing else may say that a mount came later.
fn check_torn_at_the_end(c: &mut Check<'_>, v: &Volume) {
    if v.host.seq > 0 || !v.older_blank {
        check_older(c, v);
    }
    let first = copy_of(v).and_then(|copy| Some((copy.backups().first().copied()?, copy.u32(24))));
    if let Some((block, size)) = first {
        let at = block.saturating_mul(1024 << size.min(6)).saturating_add(v.header.area_offset);
        let backup = c.read_area(at, LEN, "first backup superblock");
        if backup.as_deref().and_then(Super::parse).is_some_and(|s| s.checksum_ok() && s.marker()) {
            let text = "the backup superblock is marked as in use, and the newest host record says that \
                        the log is empty: the record of the last mount may be lost";
            c.error("host.older", text);
        }
    }
    check_nothing_newer(c, v);
}

/// Under a clean header nothing lies in the log that a later mount wrote.
fn check_nothing_newer(c: &mut Check<'_>, v: &Volume) {
    if has_traces(c, v, v.host.key.epoch.0 + 1) {
        c.error(
            "host.older",
            "the newest host record says that the log is empty, but a later mount wrote to it: the record \
             of that mount is lost",
        );
    }
}

/// Does anything claim to be of epoch `from` or a later one, where the log's next records would
/// lie?
fn has_traces(c: &mut Check<'_>, v: &Volume, from: u64) -> bool {
    let mut found = false;
    for (lane, head) in v.header.lanes.iter().zip(&v.host.lane_heads) {
        for pos in [*head, siftfs_log::next_lap(*head, lane.len)] {
            let (at, len) = (lane.offset + pos % lane.len, RECORD_HEADER_LEN);
            let bytes = match lane.medium {
                LaneMedium::Block => c.read(at, len, "the head of a lane"),
                LaneMedium::Bytes => c.read_bytes(at, len, "the head of the record area"),
            };
            let claimed = bytes.and_then(|b| RecordHeader::claimed_epoch(&b, lane.id, pos));
            found |= claimed.is_some_and(|epoch| epoch.0 >= from);
        }
    }
    let (tail, len) = (v.service.journal_tail, v.header.journal_len);
    for pos in [tail, siftfs_log::next_lap(tail, len)] {
        let at = v.header.journal_offset + pos % len;
        let bytes = c.read(at, DESCRIPTOR_HEADER_LEN, "the journal's tail");
        let claimed = bytes.and_then(|b| JournalHeader::claimed_epoch(&b, pos));
        found |= claimed.is_some_and(|epoch| epoch.0 >= from);
    }
    found
}

/// A volume that was mounted has two host records. If one of both slots is damaged in both copies,
/// that may have been the newer one, without which the log cannot be read.
fn check_older(c: &mut Check<'_>, v: &Volume) -> bool {
    if !v.older_host {
        c.error(
            "slot.lost",
            "a host slot is damaged in both copies, and the file system is marked as in use: the \
             record of the last mount may be lost, and with it what is only in the log",
        );
    }
    v.older_host
}

/// A clean header and a marked area are what an unmount leaves that was cut off, unless the volume
/// was mounted after the record was written.
fn check_stale(c: &mut Check<'_>, v: &Volume, primary: &Super) {
    if !check_older(c, v) {
        return;
    }
    if copy_of(v).is_none_or(|copy| copy.mounts() != primary.mounts()) {
        c.error(
            "host.older",
            "the newest host record says that the log is empty, but the volume was mounted after it \
             was written: the record of that mount is lost, and with it what is only in the log",
        );
        return;
    }
    if has_traces(c, v, v.host.key.epoch.0 + 1) {
        return check_nothing_newer(c, v);
    }
    c.warn(
        "marker.stale",
        "the log is empty, but the file system is still marked as in use; the next mount and \
         unmount clears it",
    );
}

/// The header's copy of the superblock.
fn copy_of(v: &Volume) -> Option<Super> {
    Super::parse(&v.host.superblock[..])
}

/// Marker and header must agree: dirty means marked everywhere, clean means marked nowhere. `held`:
/// something is in the log.
pub(crate) fn check_marker(c: &mut Check<'_>, v: &Volume, primary: Option<&Super>, held: bool) {
    let dirty = v.host.state != HostState::Clean;
    if dirty {
        match copy_of(v) {
            Some(s) if s.marker() && s.checksum_ok() && s.uuid() == v.header.area_uuid => {}
            _ => c.error(
                "host.superblock",
                "the header's superblock image is damaged, unmarked or another's",
            ),
        }
    }
    // A torn superblock may have the marker of its old half.
    let Some(primary) = primary.filter(|p| p.checksum_ok()) else { return };
    let untouched = siftfs_base::crc32c(&primary.bytes[..1020]) == v.host.area_crc;
    let held = held || dirty && has_traces(c, v, v.host.key.epoch.0);
    // A registry is named after the marker was set.
    let begun =
        held || v.host.state != HostState::Mounted || v.host.registry.is_some() || !untouched;
    match (dirty, primary.marker()) {
        (true, false) if !begun => c.warn(
            "marker.pending",
            "a mount was interrupted before it began; the next mount or recovery puts it right",
        ),
        (true, false) => c.error(
            "marker.missing",
            "the header says that the log is in use, but the marker is gone from the file \
             system: someone may have changed it since",
        ),
        (false, true) => check_stale(c, v, primary),
        (false, false) if !v.older_host => check_nothing_newer(c, v),
        _ => {}
    }
    if !dirty && !untouched {
        c.info("super.changed", "the file system was changed since SiftFS last unmounted it");
    }
    check_backups(c, v, primary, dirty, held);
}

fn check_backups(c: &mut Check<'_>, v: &Volume, primary: &Super, dirty: bool, held: bool) {
    let size = 1024u64 << primary.u32(24).min(6);
    for block in primary.backups() {
        let at = v.header.area_offset.saturating_add(block.saturating_mul(size));
        let what = format!("backup superblock in block {block}");
        match c.read_area(at, LEN, &what).as_deref().and_then(Super::parse) {
            None => c.warn("super.backup", format!("{what} is none")),
            Some(s) if !s.checksum_ok() => {
                c.warn("super.backup", format!("{what}: its checksum does not hold"));
            }
            Some(s) if dirty && !held && !s.marker() => {
                // The backups get it last, before the first append.
                let text = format!("{what} lacks the marker: a mount was interrupted");
                c.warn("marker.pending", text);
            }
            Some(s) if s.marker() != dirty => {
                let says = if dirty { "lacks the marker" } else { "still has the marker" };
                c.warn("marker.backup", format!("{what} {says}"));
            }
            Some(_) => {}
        }
    }
}
