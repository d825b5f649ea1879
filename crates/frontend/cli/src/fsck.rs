//! `siftfs fsck`: the log by our own checker, then the ext4 area by e2fsck.

use crate::args::Fsck;
use crate::failure::{DAMAGED, Failure, OPERATIONAL, Outcome};
use crate::progress::Display;
use crate::volume::{failure, open_options, print_json};
use serde::Serialize;
use siftfs_base::Result;
use siftfs_device::Device;
use siftfs_fsck::{Finding, Severity};
use siftfs_placement::open_media_for;
use std::path::Path;
use std::process::Command;

#[derive(Serialize)]
struct Report {
    /// The newest state is in the log.
    dirty: bool,
    /// `siftfs recover`, or the next mount, has something to put right first.
    needs_recovery: bool,
    findings: Vec<Finding>,
    e2fsck_exit: Option<i32>,
    e2fsck_output: String,
    clean: bool,
}

/// `siftfs fsck`. Writes nothing.
pub fn fsck(a: &Fsck) -> Outcome {
    let opened = open_media_for(&a.volume, &open_options(&a.log), false)
        .map_err(|e| failure(&a.volume, &e))?;
    let (area, log) = (&*opened.media.area, opened.media.log.as_deref());
    let mut display = Display::new();
    display.wait("checking header, lanes and journal");
    let findings = siftfs_fsck::check_on(area, log);
    let dirty = is_marked(area).map_err(|e| failure(&a.volume, &e))?;
    let bad = findings.iter().any(|f| f.severity >= Severity::Warning);
    let needs_recovery = dirty || findings.iter().any(restores_superblock);
    // e2fsck refuses a volume that carries the marker, and would be right to find it stale. Without
    // a superblock it would look for another one that is not the newest.
    display.wait("checking the ext4 area");
    let (exit, e2fsck_output) =
        if needs_recovery { (None, String::new()) } else { e2fsck(&a.volume)? };
    drop((opened, display));
    let clean = !bad && !needs_recovery && exit == Some(0);
    let report =
        Report { dirty, needs_recovery, findings, e2fsck_exit: exit, e2fsck_output, clean };
    if a.json {
        print_json(&report)?;
    } else {
        show(&a.volume, &report);
    }
    Ok(match (clean, exit) {
        (true, _) => 0,
        (false, Some(code)) if code & 8 != 0 => OPERATIONAL,
        _ if !report.dirty && report.findings.iter().any(no_header) => OPERATIONAL,
        _ => DAMAGED,
    })
}

/// Is it that there is no header? Without the marker this is then no volume, as far as anyone can see.
fn no_header(f: &Finding) -> bool {
    f.code == "header.none"
}

/// Is it a superblock that recovery puts back from the header's copy?
fn restores_superblock(f: &Finding) -> bool {
    f.severity == Severity::Warning && ["super.torn", "super.missing"].contains(&f.code)
}

/// Does the superblock carry the marker of a volume in use (rule R15)?
fn is_marked(device: &dyn Device) -> Result<bool> {
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

fn show(volume: &Path, report: &Report) {
    for f in &report.findings {
        println!("{}: {}: {} ({})", volume.display(), severity(f.severity), f.text, f.code);
    }
    print!("{}", report.e2fsck_output);
    if report.dirty {
        println!(
            "{0}: not unmounted: its newest state is still in the log; \
             run `siftfs recover {0}` or mount it, then check again",
            volume.display()
        );
    } else if report.findings.iter().any(no_header) {
        println!(
            "{}: not a SiftFS volume, or both copies of its header are lost",
            volume.display()
        );
    } else if report.needs_recovery {
        println!("{0}: run `siftfs recover {0}` or mount it, then check again", volume.display());
    } else if report.clean {
        println!("{}: clean", volume.display());
    } else {
        println!("{}: damaged (see above)", volume.display());
    }
}

/// `e2fsck -fn` on the area, which starts at the volume's first byte.
fn e2fsck(volume: &Path) -> std::result::Result<(Option<i32>, String), Failure> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let run = Command::new("e2fsck").arg("-fn").arg(volume).env("PATH", path).output();
    let out = run.map_err(|e| {
        Failure::about(volume, format!("cannot run e2fsck ({e}); install e2fsprogs"))
            .with_code(OPERATIONAL)
    })?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    let code = out
        .status
        .code()
        .ok_or_else(|| Failure::about(volume, "e2fsck was killed").with_code(OPERATIONAL))?;
    Ok((Some(code), text))
}
