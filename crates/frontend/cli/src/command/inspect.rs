//! `siftfs inspect`: what lies in a volume's log, and what recovery would do.

use crate::command::volume::{devices, failure, open_options};
use crate::options::args::Check;
use crate::options::size::show_size;
use crate::show::failure::{DAMAGED, OPERATIONAL, Outcome};
use crate::show::human::count;
use crate::show::output::print;
use crate::show::output::print_json;
use serde::Serialize;
use siftfs_fsck::{DigestView, Inspection, LaneView, RedoLaneView, Severity};
use siftfs_log::show_uuid;
use siftfs_placement::{StripedDevice, open_media_for};
use std::fmt::Write;
use std::path::Path;

/// Records and transactions shown to people; JSON has all.
const SHOWN: usize = 20;

/// All that is shown as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    seen: &'a Inspection,
    #[serde(skip_serializing_if = "Option::is_none")]
    stripes: Option<Stripes>,
}

/// How the area lies on its members.
#[derive(Serialize)]
struct Stripes {
    set: String,
    members: Vec<String>,
    unit: u64,
    member_bytes: u64,
    /// What dmsetup(8) makes the same area by.
    dmsetup: String,
}

impl Stripes {
    fn of(striped: &StripedDevice) -> Self {
        let geometry = striped.geometry();
        Self {
            set: striped.set().map_or_else(String::new, |set| show_uuid(&set)),
            members: striped.members().iter().map(|member| member.name.clone()).collect(),
            unit: geometry.unit(),
            member_bytes: geometry.member_len(),
            dmsetup: striped.table(),
        }
    }

    fn text(&self) -> String {
        let (count, unit, each) = (self.members.len(), self.unit, self.member_bytes);
        format!(
            "stripes     {count} members with {} each, in turns of {}; set {}\ndmsetup     {}\n",
            show_size(each),
            show_size(unit),
            self.set,
            self.dmsetup
        )
    }
}

/// Looks, and writes nothing.
pub fn inspect(a: &Check) -> Outcome {
    crate::command::closing::wait_closed(&a.volume)?;
    let opened = open_media_for(&a.volume, &open_options(&a.volume, &a.parts)?, false)
        .map_err(|e| failure(&a.volume, &e))?;
    let seen = siftfs_fsck::inspect(devices(&opened.media));
    let stripes = opened.stripes.as_deref().map(Stripes::of);
    if a.json {
        print_json(&Shown { seen: &seen, stripes })?;
    } else {
        let members = stripes.as_ref().map_or_else(String::new, Stripes::text);
        print(&format!("{}{members}", text(&a.volume, &seen)))?;
    }
    Ok(match (&seen.volume, seen.marker.marked) {
        (Some(_), _) if seen.recovery.stops.is_none() => 0,
        (None, false) => OPERATIONAL,
        _ => DAMAGED,
    })
}

fn text(volume: &Path, i: &Inspection) -> String {
    let mut t = String::new();
    let uuid = i.volume.as_deref().unwrap_or("no header found");
    let apart = if i.external_log { ", log on a device of its own" } else { "" };
    let reserved = if i.reserved { ", blocks reserved" } else { "" };
    let _ = writeln!(t, "{}: {uuid}{apart}{reserved}", volume.display());
    let _ = writeln!(t, "superblock  {}", superblock(i));
    for (name, offset, len) in &i.regions {
        let _ = writeln!(t, "region      {name:<14} at {offset:>12}, {}", show_size(*len));
    }
    for s in &i.slots {
        let what = match (&s.invalid, s.seq) {
            (Some(why), _) => format!("not valid: {why}"),
            (None, Some(seq)) => format!("number {seq}"),
            (None, None) => "valid".into(),
        };
        let _ =
            writeln!(t, "header      copy {} {:<9} at {:>12}, {what}", s.copy, s.name, s.offset);
    }
    if let Some(h) = &i.host {
        let _ = writeln!(
            t,
            "host        {}, record {}, epoch {} (lanes {}, journal {}), numbers above {}",
            h.state, h.seq, h.epoch, h.lane_epoch, h.journal_epoch, h.lsn_floor
        );
    }
    if let Some(r) = i.host.as_ref().and_then(|h| h.registry.as_ref()) {
        let _ = writeln!(t, "registry    private logs in {}, {}", r.dir, r.uuid);
    }
    if let Some(s) = &i.service {
        let _ = writeln!(
            t,
            "service     record {}, epoch {}, transaction {} is due at journal position {}; in the area: \
             name operations to {}, staged to {}",
            s.seq, s.epoch, s.next_transaction, s.journal_tail, s.ops_cut, s.staged_cut
        );
    }
    if let Some(a) = &i.record_area {
        let (len, medium) = (show_size(a.len), &a.medium);
        let _ = writeln!(
            t,
            "record area {medium}, {len}; header {}, epoch {}, of volume {}",
            a.seq, a.epoch, a.volume
        );
    }
    i.lanes.iter().for_each(|l| lane(&mut t, l));
    if let Some(redo) = &i.redo_lane {
        let _ = writeln!(t, "{}", redo_lane(redo));
    }
    journal(&mut t, i);
    for f in i.findings.iter().filter(|f| f.severity > Severity::Info) {
        let _ = writeln!(t, "finding     {} ({})", f.text, f.code);
    }
    let _ = writeln!(t, "recovery    {}", recovery(i));
    t
}

fn superblock(i: &Inspection) -> &'static str {
    match (i.marker.superblock, i.marker.whole, i.marker.marked) {
        (false, _, _) => "none",
        (true, false, _) => "torn: its checksum does not hold",
        (true, true, true) => "carries the marker: nothing but SiftFS may use the volume",
        (true, true, false) => "plain ext4, no marker",
    }
}

fn redo_lane(l: &RedoLaneView) -> String {
    let (of, bytes) = (show_size(l.len), show_size(l.bytes));
    format!(
        "redo lane   positions {} to {} of {of}, slot {}: {} transactions with {bytes}, from number {} on",
        l.tail,
        l.end,
        l.seq,
        count(l.transactions),
        l.next_transaction
    )
}

fn lane(t: &mut String, l: &LaneView) {
    let _ = writeln!(
        t,
        "lane {:<6} {} of {}: positions {} to {}, {} records; {}",
        l.lane,
        show_size(l.end.saturating_sub(l.tail)),
        show_size(l.len),
        l.tail,
        l.end,
        count(l.records.len() as u64),
        l.why
    );
    skipped(t, l.records.len());
    for r in l.records.iter().rev().take(SHOWN).rev() {
        let items: Vec<_> = r.items.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let _ = writeln!(
            t,
            "  record    {} at {}, {} bytes: {}; {} bytes of data{}{}",
            r.lsn,
            r.pos,
            r.len,
            items.join(", "),
            r.data,
            physical(r.physical),
            if r.applies { "" } else { " (not to be applied)" }
        );
    }
}

/// How many of a record's ranges are physical, if any are.
fn physical(ranges: usize) -> String {
    match ranges {
        0 => String::new(),
        n => format!(", {n} physical ranges"),
    }
}

fn skipped(t: &mut String, len: usize) {
    if len > SHOWN {
        let _ = writeln!(t, "  ...       {} before these; --json has all", len - SHOWN);
    }
}

fn journal(t: &mut String, i: &Inspection) {
    let Some(j) = &i.journal else { return };
    let _ = writeln!(
        t,
        "journal     {} of {} ({}): positions {} to {}, {} transactions",
        show_size(j.end.saturating_sub(j.tail)),
        show_size(j.len),
        j.data,
        j.tail,
        j.end,
        count(j.transactions.len() as u64)
    );
    skipped(t, j.transactions.len());
    for x in j.transactions.iter().rev().take(SHOWN).rev() {
        let _ = writeln!(
            t,
            "  txn       {} at {}, {} bytes: cuts {} and {}; {} staged, {} copies, {} zeros, {} images, \
             {} freed, {} direct; {} bytes repeated{}",
            x.seq,
            x.pos,
            x.len,
            x.ops_cut,
            x.staged_cut,
            x.staged,
            x.copies,
            x.zeros,
            x.images,
            x.drops,
            x.direct,
            x.repeated,
            x.digest.map(digest).unwrap_or_default()
        );
    }
}

fn digest(DigestView { lane, from, ranges }: DigestView) -> String {
    format!("; {ranges} physical ranges of lane {lane} from {from}")
}

fn recovery(i: &Inspection) -> String {
    let r = &i.recovery;
    if let Some(why) = &r.stops {
        return format!("would stop: {why}");
    }
    if !r.needed {
        return "nothing to do".into();
    }
    let dropped = match r.drop {
        0 => String::new(),
        n => format!(", drop {n} behind a lost one"),
    };
    format!(
        "would replay {} transactions, apply {} of {} staged ones (those above {}){dropped}, and clear the \
         marker",
        r.replay, r.apply, r.found, r.cut
    )
}
