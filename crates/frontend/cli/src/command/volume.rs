//! Commands on a volume that is not mounted.

use crate::command::closing;
use crate::daemon::limits;
use crate::daemon::private::warn_of_open_file;
use crate::options::args::{Adopt, Mkfs, NewRecordArea, Parts, Recover, Release};
use crate::options::size::show_size;
use crate::options::target;
use crate::show::failure::{DAMAGED, Failure, OPERATIONAL, Outcome, USAGE};
use crate::show::output::{complain, print_json, say};
use crate::show::progress::Display;
use siftfs_base::Error;
use siftfs_placement::{
    BytePlace, Discarded, LogsReport, LostLog, Media, MkfsOptions, MkfsReport, OpenOptions,
    Shortage, Whom, is_rbd, parts_of, principal,
};
use siftfs_transport::Trust;
use std::path::Path;

/// Why a volume is not made over a wire.
const MADE_THERE: &str = "a target serves a volume that is there: make it where its storage is, \
                          then start `siftfs device` on it";

/// Why a volume is not grown over a wire.
pub const GROWN_THERE: &str = "a target serves a volume as it is: grow it where its storage is, while nobody \
                               serves it";

/// `siftfs mkfs`.
pub fn mkfs(a: &Mkfs) -> Outcome {
    target::refuse(&a.volume, MADE_THERE)?;
    if a.member {
        return member(a);
    }
    let options = MkfsOptions {
        size: a.size,
        log_size: a.log_size,
        label: a.label.clone(),
        lanes: a.lanes,
        journal_data: a.journal_data,
        log: a.log.clone(),
        log_spare: a.log_spare.clone(),
        stripe_unit: a.stripe_unit,
        members: target::members(&a.volume, &Trust::default())?,
        record_area_at: a.area.record_area.clone(),
        record_area: a.area.record_area_size,
        redo_lane: a.redo_lane,
        reserve: a.reserve,
        log_may_die: a.log_may_die,
        force: a.force,
    };
    let mut display = Display::new();
    let progress = &mut |w: &str, d, t| display.update(w, d, t);
    let result = siftfs_placement::mkfs(&a.volume, &options, progress);
    drop(display);
    let report = result.map_err(|e| Failure::about(&a.volume, e))?;
    warn_of_files(&a.volume, [a.log.as_deref(), a.log_spare.as_deref()], &a.area);
    show_made(&a.volume, a.log.as_deref(), "volume", &report, a.json)
}

/// `siftfs mkfs --member`.
fn member(a: &Mkfs) -> Outcome {
    let mut display = Display::new();
    let progress = &mut |w: &str, d, t| display.update(w, d, t);
    let result = siftfs_placement::mkfs_member(&a.volume, a.size, a.force, progress);
    drop(display);
    let bytes = result.map_err(|e| Failure::about(&a.volume, e))?;
    warn_of_open_file(&a.volume);
    if a.json {
        print_json(&serde_json::json!({ "member_bytes": bytes }))?;
        return Ok(0);
    }
    let (volume, size) = (a.volume.display(), show_size(bytes));
    say(format_args!(
        "{volume}: a member of a striped volume, of no set yet, with room for {size} of data: serve it with \
         `siftfs device`, or name it in stripe:MEMBER,MEMBER,..."
    ))?;
    Ok(0)
}

/// `siftfs adopt`.
pub fn adopt(a: &Adopt) -> Outcome {
    target::refuse(&a.volume, MADE_THERE)?;
    let options = MkfsOptions {
        log_size: a.log_size,
        log_spare: a.log_spare.clone(),
        lanes: a.lanes,
        journal_data: a.journal_data,
        record_area_at: a.area.record_area.clone(),
        record_area: a.area.record_area_size,
        redo_lane: a.redo_lane,
        log_may_die: a.log_may_die,
        force: a.force,
        ..MkfsOptions::default()
    };
    let mut display = Display::new();
    let result = siftfs_placement::adopt(&a.volume, &a.log, &options, &mut |w, d, t| {
        display.update(w, d, t);
    });
    drop(display);
    let report = result.map_err(|e| Failure::about(&a.volume, e))?;
    warn_of_files(&a.volume, [Some(&a.log), a.log_spare.as_deref()], &a.area);
    show_made(&a.volume, Some(&a.log), "adopted as volume", &report, a.json)
}

/// Warns of files that everybody may open.
fn warn_of_files(volume: &Path, logs: [Option<&Path>; 2], area: &NewRecordArea) {
    let area = area.record_area.as_ref().and_then(BytePlace::path);
    parts_of(volume).iter().for_each(|part| warn_of_open_file(part));
    logs.into_iter().chain([area]).flatten().for_each(warn_of_open_file);
}

/// What is said of a record area that promises nothing.
pub fn warn_of_volatile(place: &str) {
    complain(format_args!(
        "{place}: the record area is in memory that a power cut empties: it loses what was fsynced \
         there, and then the volume is opened only by `siftfs recover --discard-log`. For tests and \
         measurements"
    ));
}

/// The devices, for a check.
pub fn devices(media: &Media) -> siftfs_fsck::Devices<'_> {
    let (log, bytes) = (media.log.as_deref(), media.bytes.as_deref());
    siftfs_fsck::Devices { area: &*media.area, log, bytes, spare: media.pair.is_some() }
}

/// Warns of a sparse file that may come to need more room than there is.
pub fn warn_of_shortage(volume: &Path, short: Shortage) {
    complain(format_args!(
        "{}: the file may come to need {} more, and the file system that it lies on has {} free: when that \
         is full, what needs more of it fails until there is room (ENOSPC), an unmount too. --reserve takes all \
         of it at once",
        volume.display(),
        show_size(short.missing_bytes),
        show_size(short.free_bytes)
    ));
}

/// Says what was made, or prints the report.
///
/// # Errors
/// Standard output cannot be written.
pub fn show_made(
    volume: &Path,
    log: Option<&Path>,
    what: &str,
    report: &MkfsReport,
    json: bool,
) -> Outcome {
    if let Some(area) = report.record_area.as_ref().filter(|area| !area.persistent) {
        warn_of_volatile(&area.place);
    }
    if let Some(short) = report.shortage {
        warn_of_shortage(volume, short);
    }
    if json {
        print_json(report)?;
        return Ok(0);
    }
    let mut place = log.map_or(String::new(), |l| format!("; the log is {}", l.display()));
    if let Some(area) = &report.record_area {
        let (at, bytes) = (&area.place, show_size(area.bytes));
        place.push_str(&format!("; the record area is {at} ({bytes}, {})", area.promise));
    }
    if report.spare_log_bytes > 0 {
        place.push_str(&format!("; a spare log of {}", show_size(report.spare_log_bytes)));
        if !report.spare_log_may_stand_alone {
            place.push_str(", too small to be the log alone");
        }
    }
    if report.redo_lane_bytes > 0 {
        place.push_str(&format!("; a redo lane of {}", show_size(report.redo_lane_bytes)));
    }
    if report.reserved {
        place.push_str("; its blocks are reserved");
    }
    say(format_args!(
        "{}: {what} {}: ext4 area {}, journal {} ({}), staging {} in {} lane(s){place}",
        volume.display(),
        report.uuid,
        show_size(report.area_bytes),
        show_size(report.journal_bytes),
        report.journal_data,
        show_size(report.staging_bytes),
        report.lanes
    ))?;
    Ok(0)
}

/// `siftfs release`.
pub fn release(a: &Release) -> Outcome {
    limits::check_files([&*a.volume].into_iter().chain(a.parts.log.as_deref()))?;
    closing::wait_closed(&a.volume)?;
    let mut display = Display::new();
    let options = open_options(&a.volume, &a.parts)?;
    let result = siftfs_placement::release(&a.volume, &options, &mut |w, d, t| {
        display.update(w, d, t);
    });
    drop(display);
    let report = result.map_err(|e| Failure::about(&a.volume, e))?;
    if a.json {
        print_json(&report)?;
    } else {
        let first = if report.recovered { "recovered and " } else { "" };
        let what = if report.external_log {
            "its log's file or device is free"
        } else {
            "the space behind the file system is free (resize2fs can give it that)"
        };
        let volume = a.volume.display();
        let area = if report.record_area { "; so is its record area's place" } else { "" };
        say(format_args!("{volume}: {first}released: it is plain ext4, and {what}{area}"))?;
    }
    Ok(0)
}

/// What a volume is called where its path is nobody's affair; one on stripes as its first member.
pub fn name_of(volume: &Path) -> String {
    let volume = principal(volume);
    volume.file_name().unwrap_or(volume.as_os_str()).to_string_lossy().into_owned()
}

/// How a volume is opened whose parts, or whose storage, are perhaps elsewhere.
///
/// # Errors
/// It names a target and no volume there, or keys are missing.
pub fn open_options(volume: &Path, parts: &Parts) -> Result<OpenOptions, Failure> {
    open_options_by(volume, parts, &Trust::default())
}

/// As [`open_options`], with what is known of the targets over TCP.
///
/// # Errors
/// As [`open_options`].
pub fn open_options_by(
    volume: &Path,
    parts: &Parts,
    trust: &Trust,
) -> Result<OpenOptions, Failure> {
    let Parts { log, log_spare, record_area } = parts.clone();
    let (target, members) = (target::target(volume, trust)?, target::members(volume, trust)?);
    Ok(OpenOptions {
        log,
        log_spare,
        record_area_at: record_area,
        target,
        members,
        ..OpenOptions::default()
    })
}

fn recover_options(a: &Recover) -> Result<OpenOptions, Failure> {
    let take_over = a.take_over.then_some(Whom::Anybody);
    Ok(OpenOptions { take_over, ..open_options(&a.volume, &a.parts)? })
}

/// `siftfs recover`.
pub fn recover(a: &Recover) -> Outcome {
    limits::check_files([&*a.volume].into_iter().chain(a.parts.log.as_deref()))?;
    if a.take_over && !is_rbd(&a.volume) {
        let what = "--take-over is for a volume on a cluster (rbd:POOL/IMAGE), which keeps a fenced process \
                    from writing; elsewhere, end the process that has the volume";
        return Err(Failure::about(&a.volume, what).with_code(USAGE));
    }
    if !a.take_over {
        closing::wait_closed(&a.volume)?;
    }
    closing::end_abandoned(&a.volume);
    if a.discard_log {
        return discard_log(a);
    }
    let mut display = Display::new();
    let options = recover_options(a)?;
    let result = siftfs_placement::recover(&a.volume, &options, &mut |w, d, t| {
        display.update(w, d, t);
    });
    drop(display);
    let report = result.map_err(|e| failure(&a.volume, &e))?;
    if a.json {
        print_json(&report)?;
    } else if report.clean {
        let volume = a.volume.display();
        say(format_args!("{volume}: clean, nothing to recover; it is plain ext4"))?;
    } else {
        say(format_args!(
            "{}: recovered: {} journal transactions replayed, {} of {} staged transactions \
             applied, {} orphans removed; it is plain ext4 now",
            a.volume.display(),
            report.replayed_transactions,
            report.staged_applied,
            report.staged_found,
            report.orphans
        ))?;
    }
    if report.redo_transactions > 0 && !a.json {
        let (volume, n) = (a.volume.display(), report.redo_transactions);
        say(format_args!("{volume}: {n} atomic writes of the redo lane replayed"))?;
    }
    show_logs(a, &report.private_logs)?;
    Ok(0)
}

/// What was in logs of programs, and what of it is lost.
fn show_logs(a: &Recover, report: &LogsReport) -> Result<(), Failure> {
    let volume = a.volume.display();
    if report.logs > 0 && !a.json {
        say(format_args!(
            "{volume}: {} logs of programs taken in: {} records of {} batches, {}; {} records of leases \
             that had ended passed over",
            report.logs,
            report.records,
            report.batches,
            show_size(report.bytes),
            report.passed_over
        ))?;
    }
    for LostLog { log, why } in &report.lost {
        complain(format_args!(
            "{volume}: log {log} of a program ends before what was written to it ({why}): what is \
             behind is lost"
        ));
    }
    Ok(())
}

/// `siftfs recover --discard-log`.
fn discard_log(a: &Recover) -> Outcome {
    let options = recover_options(a)?;
    let what =
        siftfs_placement::discard_log(&a.volume, &options).map_err(|e| failure(&a.volume, &e))?;
    if a.json {
        print_json(&serde_json::json!({ "discarded_log": true, "log": what }))?;
        return Ok(0);
    }
    let left = match what {
        Discarded::Emptied => "",
        Discarded::Forgotten => {
            " It has no log any more; after that, `siftfs adopt` can give it a new one."
        }
    };
    say(format_args!(
        "{0}: THE LOG WAS GIVEN UP. What was fsynced since the last checkpoint may be lost, and the \
         file system may be inconsistent: run `e2fsck -f {0}` before anything else.{left}",
        a.volume.display()
    ))?;
    Ok(0)
}

/// A failure with fsck(8)'s exit status: damage is not the same as a check that could not be made.
pub fn failure(volume: &Path, e: &Error) -> Failure {
    let code = match e {
        Error::Corrupt { .. } | Error::Incompatible(_) => DAMAGED,
        _ => OPERATIONAL,
    };
    Failure::about(volume, e).with_code(code)
}
