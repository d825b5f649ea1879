//! `siftfs fsck`: the log by our own checker, then the ext4 area by e2fsck. As `fsck.siftfs` it may
//! also repair, where fsck(8) or the boot asks for that.

use crate::command::closing;
use crate::command::e2fsck::{self, End, Progress, Ran, Verdict};
use crate::command::one_file::OneFile;
use crate::command::volume::{devices, failure, open_options};
use crate::options::args::{Fsck, Repair};
use crate::options::target;
use crate::show::failure::{CORRECTED, DAMAGED, Failure, OPERATIONAL, Outcome};
use crate::show::output::{print, print_json, say};
use crate::show::progress::Display;
use serde::Serialize;
use siftfs_device::Device;
use siftfs_fsck::{Finding, Severity};
use siftfs_placement::child::sensible_work;
use siftfs_placement::{OpenedMedia, is_rbd, open_media_for};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

#[derive(Serialize)]
struct Report {
    /// The newest state is in the log.
    dirty: bool,
    /// `siftfs recover`, or the next mount, has something to put right first.
    needs_recovery: bool,
    /// The log lies elsewhere and was not found: only the ext4 area could be checked.
    log_missing: bool,
    /// The volume has a record area, which was not found.
    record_area_missing: bool,
    /// The volume has a spare log, which was not found.
    spare_log_missing: bool,
    findings: Vec<Finding>,
    /// e2fsck's exit status; none if it was not run, or was killed.
    e2fsck_exit: Option<i32>,
    /// Why e2fsck did not come to its end.
    e2fsck_trouble: Option<String>,
    e2fsck_output: String,
    clean: bool,
}

/// What the log and the superblock say.
#[derive(PartialEq, Eq)]
struct Look {
    findings: Vec<Finding>,
    dirty: bool,
}

impl Look {
    fn has(&self, code: &str) -> bool {
        self.findings.iter().any(|f| f.code == code)
    }

    fn worst(&self) -> Severity {
        self.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Info)
    }

    fn needs_recovery(&self) -> bool {
        self.dirty || self.findings.iter().any(restores_superblock)
    }

    /// Is it all of what a mount, or `recover`, puts right by itself?
    fn mends_itself(&self) -> bool {
        (self.dirty || self.worst() == Severity::Warning)
            && self.worst() < Severity::Error
            && !self.findings.iter().any(is_missing)
    }
}

/// A log where the volume should be, or the other way round.
const NOT_SO: &str = "header.kind";

/// `siftfs fsck`, which writes nothing, and `fsck.siftfs`.
pub fn fsck(a: &Fsck) -> Outcome {
    let why = "e2fsck needs a file or a device: check it where its storage is; `siftfs inspect` \
               looks at the log from here";
    target::refuse(&a.check.volume, why)?;
    closing::wait_closed(&a.check.volume)?;
    let mut display = Display::new();
    let (mut opened, mut seen) = look(a, &mut display)?;
    let mut corrected = false;
    if a.repair != Repair::Nothing && seen.mends_itself() {
        drop(opened);
        recover(a, &mut display)?;
        let before = seen;
        (opened, seen) = look(a, &mut display)?;
        corrected = seen != before;
    }
    let size = opened.media.area.size();
    // A check that only reads keeps the lock, so that no mount begins; a repair needs it free.
    let apart = opened.stripes.is_some() || is_rbd(&a.check.volume);
    let held = (a.repair == Repair::Nothing).then_some(opened);
    // e2fsck refuses a volume that carries the marker, and would be right to find it stale. Without
    // a superblock it would search for another one, which is not the newest.
    let pointless = seen.needs_recovery() || seen.has(NOT_SO);
    let area = match (pointless, apart) {
        (true, _) => None,
        (false, false) => Some(check_area(a, &a.check.volume, size, &mut display)?),
        (false, true) => Some(check_apart(a, held.as_ref(), size, &mut display)?),
    };
    drop((display, held));
    let verdict = area.as_ref().map(|ran| ran.verdict(a.repair != Repair::Nothing));
    let sound = matches!(verdict, Some(Verdict::Sound | Verdict::Corrected));
    corrected |= verdict == Some(Verdict::Corrected);
    let report = Report {
        dirty: seen.dirty,
        needs_recovery: seen.needs_recovery(),
        log_missing: seen.has("log.missing"),
        record_area_missing: seen.has("area.missing"),
        spare_log_missing: seen.has("spare.missing"),
        clean: sound && seen.worst() < Severity::Warning,
        findings: seen.findings,
        e2fsck_exit: area.as_ref().and_then(|ran| match ran.end {
            End::Exit(bits) => Some(bits),
            End::Signal(_) | End::GivenUp(_) => None,
        }),
        e2fsck_trouble: area.as_ref().and_then(Ran::trouble),
        e2fsck_output: area.map(|ran| ran.text).unwrap_or_default(),
    };
    if a.check.json {
        print_json(&report)?;
    } else {
        print(&text(&a.check.volume, &report))?;
    }
    Ok(status(&report, verdict, corrected))
}

/// The exit status. Damage that was seen outweighs an incomplete check.
fn status(report: &Report, area: Option<Verdict>, corrected: bool) -> u8 {
    let damage = |f: &Finding| f.severity >= Severity::Warning && !is_missing(f);
    match area {
        _ if report.clean && corrected => CORRECTED,
        _ if report.clean => 0,
        _ if !report.dirty && report.findings.iter().any(no_header) => OPERATIONAL,
        Some(Verdict::Unseen) if !report.findings.iter().any(damage) => OPERATIONAL,
        // Nothing is damaged, and half of the volume could not be checked.
        Some(Verdict::Sound | Verdict::Corrected)
            if report.log_missing || report.record_area_missing || report.spare_log_missing =>
        {
            OPERATIONAL
        }
        _ => DAMAGED,
    }
}

fn look(a: &Fsck, display: &mut Display) -> Result<(OpenedMedia, Look), Failure> {
    let volume = &a.check.volume;
    let opened = open_media_for(volume, &open_options(volume, &a.check.parts)?, false)
        .map_err(|e| failure(volume, &e))?;
    display.wait("checking header, lanes and journal");
    let findings = siftfs_fsck::check_on(devices(&opened.media));
    let dirty = is_marked(&*opened.media.area).map_err(|e| failure(volume, &e))?;
    Ok((opened, Look { findings, dirty }))
}

/// What the next mount would do first.
fn recover(a: &Fsck, display: &mut Display) -> Result<(), Failure> {
    let volume = &a.check.volume;
    let progress = &mut |what: &str, done, total| display.update(what, done, total);
    siftfs_placement::recover(volume, &open_options(volume, &a.check.parts)?, progress)
        .map_err(|e| failure(volume, &e))?;
    if !a.check.json {
        say(format_args!("{}: recovered", volume.display()))?;
    }
    Ok(())
}

/// The ext4 area of stripes, or of an image, as one file that this process serves. To repair it the
/// devices are opened anew, to be written.
fn check_apart(
    a: &Fsck,
    held: Option<&OpenedMedia>,
    size: u64,
    display: &mut Display,
) -> Result<Ran, Failure> {
    let volume = &a.check.volume;
    let area = match held {
        Some(opened) => opened.media.area.clone(),
        None => {
            let opened = open_media_for(volume, &open_options(volume, &a.check.parts)?, true);
            opened.map_err(|e| failure(volume, &e))?.media.area
        }
    };
    let (writable, cannot) = (held.is_none(), |e: std::io::Error| {
        let what = format!(
            "e2fsck needs one file, and this process cannot serve it: {e}. of stripes, \
             `siftfs inspect` says the table by which dmsetup makes one device; of an image, rbd map \
             does: run e2fsck on that"
        );
        Failure::about(volume, what).with_code(OPERATIONAL)
    });
    let served = OneFile::serve(area, writable).map_err(cannot)?;
    let ran = check_area(a, served.path(), size, display)?;
    served.end().map_err(|e| failure(volume, &e))?;
    Ok(ran)
}

/// The ext4 area by e2fsck, which works on this file or device by itself.
fn check_area(a: &Fsck, at: &Path, size: u64, display: &mut Display) -> Result<Ran, Failure> {
    display.wait("checking the ext4 area");
    let flags = match (a.repair, a.quick) {
        (Repair::Nothing, false) => "-fn",
        (Repair::Nothing, true) => "-n",
        (Repair::Safe, false) => "-fp",
        (Repair::Safe, true) => "-p",
        (Repair::All, false) => "-fy",
        (Repair::All, true) => "-y",
    };
    let progress = match a.progress_fd {
        Some(fd) if fd > 0 => Progress::Passed(fd),
        _ => Progress::Shown(display),
    };
    let idle_work = match a.timeout {
        None => Some(sensible_work(size)),
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    };
    e2fsck::run(at, flags, idle_work, progress)
}

/// A part of the volume that lies elsewhere was not found.
fn is_missing(f: &Finding) -> bool {
    ["log.missing", "area.missing", "spare.missing"].contains(&f.code)
}

/// Is there no header, or the header of something else? Without the marker this is then no volume,
/// as far as the header tells.
fn no_header(f: &Finding) -> bool {
    f.code == "header.none" || f.code == NOT_SO
}

/// Is it a superblock that recovery puts back from the header's copy?
fn restores_superblock(f: &Finding) -> bool {
    f.severity == Severity::Warning && ["super.torn", "super.missing"].contains(&f.code)
}

/// Does the superblock carry the marker of a volume in use (rule R15)?
fn is_marked(device: &dyn Device) -> siftfs_base::Result<bool> {
    let mut sb = [0; 1024];
    if device.size() < 2048 {
        return Ok(false);
    }
    device.read(1024, &mut sb)?;
    Ok(siftfs_ext4::has_marker(&sb))
}

fn severity(s: Severity) -> &'static str {
    match s {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn text(volume: &Path, report: &Report) -> String {
    let mut t = String::new();
    let v = volume.display();
    for f in &report.findings {
        let _ = writeln!(t, "{v}: {}: {} ({})", severity(f.severity), f.text, f.code);
    }
    t.push_str(&report.e2fsck_output);
    let _ = writeln!(t, "{v}: {}", conclusion(volume, report));
    t
}

fn conclusion(volume: &Path, report: &Report) -> String {
    let v = volume.display();
    if report.dirty && report.log_missing {
        format!(
            "not unmounted: its newest state is in the log, which was not found; say where it is with \
             --log PATH. If it is lost, `siftfs recover --discard-log {v}` gives up what was in it"
        )
    } else if report.dirty && report.spare_log_missing {
        format!(
            "not unmounted: what was made durable last may be in its spare log, which was not found; say where \
             it is with --log-spare PATH. If it is lost, `siftfs recover --discard-log {v}` gives up what was in \
             the log"
        )
    } else if report.dirty && report.record_area_missing {
        format!(
            "not unmounted: what was made durable last is in its record area, which was not found; say where \
             it is with --record-area PLACE. If it is lost, `siftfs recover --discard-log {v}` gives up what was \
             in the log"
        )
    } else if report.dirty {
        format!(
            "not unmounted: its newest state is still in the log; run `siftfs recover {v}` or mount it, \
             then check again"
        )
    } else if report.findings.iter().any(|f| f.code == NOT_SO) {
        "not checked: name the volume, and its log as --log PATH if that lies elsewhere".into()
    } else if report.findings.iter().any(no_header) {
        "not a SiftFS volume, or both copies of its header are lost".into()
    } else if report.needs_recovery {
        format!("run `siftfs recover {v}` or mount it, then check again")
    } else if report.clean {
        "clean".into()
    } else if let Some(trouble) = &report.e2fsck_trouble {
        format!("not checked to its end: {trouble}")
    } else if report.log_missing && report.e2fsck_exit == Some(0) {
        format!(
            "its ext4 area is clean and holds everything; its log was not looked at. Say where that is with \
             --log PATH. If it is lost, `siftfs recover --discard-log {v}` makes the volume plain ext4"
        )
    } else if report.record_area_missing && report.e2fsck_exit == Some(0) {
        format!(
            "its ext4 area is clean and holds everything; its record area was not looked at. Say where that is \
             with --record-area PLACE. If it is lost, `siftfs recover --discard-log {v}` makes the volume plain \
             ext4"
        )
    } else {
        "damaged (see above)".into()
    }
}
