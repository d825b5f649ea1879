//! Commands on a volume that is not mounted.

use crate::args::{Mkfs, Recover};
use crate::failure::{DAMAGED, Failure, OPERATIONAL, Outcome};
use crate::progress::Display;
use crate::size::show_size;
use siftfs_base::Error;
use siftfs_placement::{MkfsOptions, OpenOptions};
use std::path::Path;

/// `siftfs mkfs`.
pub fn mkfs(a: &Mkfs) -> Outcome {
    let options = MkfsOptions {
        size: a.size,
        log_size: a.log_size,
        label: a.label.clone(),
        lanes: a.lanes,
        force: a.force,
    };
    let mut display = Display::new();
    let result =
        siftfs_placement::mkfs(&a.volume, &options, &mut |w, d, t| display.update(w, d, t));
    drop(display);
    let report = result.map_err(|e| Failure::about(&a.volume, e))?;
    if a.json {
        print_json(&report)?;
    } else {
        println!(
            "{}: volume {}: ext4 area {}, journal {}, staging {} in {} lane(s)",
            a.volume.display(),
            report.uuid,
            show_size(report.area_bytes),
            show_size(report.journal_bytes),
            show_size(report.staging_bytes),
            report.lanes
        );
    }
    Ok(0)
}

/// `siftfs recover`.
pub fn recover(a: &Recover) -> Outcome {
    if a.discard_log {
        return discard_log(a);
    }
    let mut display = Display::new();
    let result = siftfs_placement::recover(&a.volume, &OpenOptions::default(), &mut |w, d, t| {
        display.update(w, d, t);
    });
    drop(display);
    let report = result.map_err(|e| failure(&a.volume, &e))?;
    if a.json {
        print_json(&report)?;
    } else if report.clean {
        println!("{}: clean, nothing to recover; it is plain ext4", a.volume.display());
    } else {
        println!(
            "{}: recovered: {} journal transactions replayed, {} of {} staged transactions \
             applied, {} orphans removed; it is plain ext4 now",
            a.volume.display(),
            report.replayed_transactions,
            report.staged_applied,
            report.staged_found,
            report.orphans
        );
    }
    Ok(0)
}

/// `siftfs recover --discard-log`.
fn discard_log(a: &Recover) -> Outcome {
    siftfs_placement::discard_log(&a.volume, &OpenOptions::default())
        .map_err(|e| failure(&a.volume, &e))?;
    if a.json {
        print_json(&serde_json::json!({ "discarded_log": true }))?;
    } else {
        println!(
            "{0}: the log was given up. What was fsynced since the last checkpoint may be lost, and \
             the file system may be inconsistent: run `e2fsck -f {0}`",
            a.volume.display()
        );
    }
    Ok(0)
}

/// A failure with fsck(8)'s exit status: damage is not the same as not being able to look.
pub fn failure(volume: &Path, e: &Error) -> Failure {
    let code = match e {
        Error::Corrupt { .. } | Error::Incompatible(_) => DAMAGED,
        _ => OPERATIONAL,
    };
    Failure::about(volume, e).with_code(code)
}

/// Prints a report as one JSON document.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::plain)?;
    crate::output::print(&format!("{text}\n"))?;
    Ok(())
}
