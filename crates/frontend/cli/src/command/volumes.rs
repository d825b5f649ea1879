//! `siftfs volumes`: the volumes of a directory, and growing one.

use crate::command::closing;
use crate::command::volume::{GROWN_THERE, open_options, show_made, warn_of_shortage};
use crate::daemon::limits;
use crate::options::size::show_size;
use crate::options::target;
use crate::options::volumes::{
    CreateVolume, GrowVolume, ListVolumes, RemoveVolume, Volumes, VolumesCommand,
};
use crate::show::failure::{Failure, Outcome};
use crate::show::output::{print_json, say};
use crate::show::progress::Display;
use siftfs_placement::{ListedVolume, MkfsOptions, OpenOptions, VolumeState};

/// `siftfs volumes`.
pub fn volumes(a: &Volumes) -> Outcome {
    match &a.what {
        VolumesCommand::List(a) => list(a),
        VolumesCommand::Create(a) => create(a),
        VolumesCommand::Remove(a) => remove(a),
        VolumesCommand::Grow(a) => grow(a),
    }
}

fn list(a: &ListVolumes) -> Outcome {
    let found = siftfs_placement::list_volumes(&a.dir).map_err(|e| Failure::about(&a.dir, e))?;
    if a.json {
        print_json(&found)?;
        return Ok(0);
    }
    if found.is_empty() {
        say(format_args!("{}: no volume is here", a.dir.display()))?;
    }
    let widest = found.iter().map(|volume| volume.name.chars().count()).max().unwrap_or(0);
    found.iter().try_for_each(|volume| say(line(volume, widest)))?;
    Ok(0)
}

/// A volume's line in a list whose names have up to `widest` characters.
fn line(volume: &ListedVolume, widest: usize) -> String {
    let ListedVolume { name, bytes, area_bytes, uuid, state, log_elsewhere, problem } = volume;
    let area = area_bytes.map_or("unknown".into(), show_size);
    let state = match state {
        VolumeState::Clean => "clean",
        VolumeState::Dirty => "not unmounted",
        VolumeState::Used => "in use",
        VolumeState::Damaged => "damaged",
    };
    let uuid = uuid.as_deref().unwrap_or("no UUID");
    let log = if *log_elsewhere { ", its log elsewhere" } else { "" };
    let problem = problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
    format!(
        "{name:widest$}  {}, ext4 area {area}, {uuid}, {state}{log}{problem}",
        show_size(*bytes)
    )
}

fn create(a: &CreateVolume) -> Outcome {
    target::refuse(&a.volume, "a volume is made on the machine that has its storage")?;
    let options = MkfsOptions {
        size: Some(a.size),
        log_size: a.log_size,
        label: a.label.clone(),
        lanes: a.lanes,
        reserve: a.reserve,
        ..MkfsOptions::default()
    };
    let mut display = Display::new();
    let progress = &mut |w: &str, d, t| display.update(w, d, t);
    let made = siftfs_placement::create_volume(&a.volume, &options, progress);
    drop(display);
    let report = made.map_err(|e| Failure::about(&a.volume, e))?;
    show_made(&a.volume, None, "volume", &report, a.json)
}

fn remove(a: &RemoveVolume) -> Outcome {
    closing::wait_closed(&a.volume)?;
    let removed = siftfs_placement::remove_volume(&a.volume);
    let removed = removed.map_err(|e| Failure::about(&a.volume, e))?;
    if a.json {
        print_json(&removed)?;
        return Ok(0);
    }
    let log = if removed.log_elsewhere { "; its log's file or device is left" } else { "" };
    say(format_args!("{}: removed{log}", a.volume.display()))?;
    Ok(0)
}

fn grow(a: &GrowVolume) -> Outcome {
    target::refuse(&a.volume, GROWN_THERE)?;
    limits::check_files([&*a.volume].into_iter().chain(a.parts.log.as_deref()))?;
    closing::wait_closed(&a.volume)?;
    closing::end_abandoned(&a.volume);
    let books = Some(siftfs_placement::books_of_clients());
    let options = OpenOptions { books, ..open_options(&a.volume, &a.parts)? };
    let mut display = Display::new();
    let progress = &mut |w: &str, d, t| display.update(w, d, t);
    let grown = siftfs_placement::grow(&a.volume, a.size, &options, progress);
    drop(display);
    let report = grown.map_err(|e| Failure::about(&a.volume, e))?;
    if a.json {
        print_json(&report)?;
        return Ok(0);
    }
    say(format_args!(
        "{}: {}grown: the ext4 area of {} has {} now; {} is the most it can have",
        a.volume.display(),
        if report.recovered { "recovered and " } else { "" },
        show_size(report.area_bytes_before),
        show_size(report.area_bytes),
        show_size(report.most_area_bytes)
    ))?;
    if let Some(short) = report.shortage {
        warn_of_shortage(&a.volume, short);
    }
    Ok(0)
}
