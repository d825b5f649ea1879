//! Making a volume: mke2fs makes the area with our own configuration, then header, journal and
//! lanes are laid out behind it and written once.

use crate::{MkfsOptions, MkfsReport, Progress};
use siftfs_base::{BLOCK_BYTES, Epoch, Error, LaneId, Lsn, Result, TxnSeq};
use siftfs_device::{Device, FileOptions, open_exclusive, zero_fill};
use siftfs_ext4::{MKE2FS_ARGS, MKE2FS_CONF};
use siftfs_log::{
    EXT4_MARKER, HEADER_LEN, HostRecord, HostState, LaneEntry, LaneMedium, LogKey, OPEN_END,
    ServiceRecord, StaticHeader,
};
use siftfs_volume::AreaSuper;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Smallest journal in bytes: a quarter of it must hold one operation with room to spare.
const MIN_JOURNAL: u64 = 2 << 20;
/// Smallest lane in bytes.
const MIN_LANE: u64 = 1 << 20;
/// Smallest area in bytes.
const MIN_AREA: u64 = 8 << 20;

/// Where everything lies, in bytes.
#[derive(Clone, Debug)]
struct Layout {
    area: u64,
    journal: u64,
    lane: u64,
    lanes: u16,
    total: u64,
}

fn down(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES * BLOCK_BYTES
}

fn lay_out(size: u64, opts: &MkfsOptions) -> Result<Layout> {
    let total = down(size);
    let lanes = opts.lanes.clamp(1, 16);
    let least = MIN_JOURNAL + MIN_LANE * u64::from(lanes);
    let log = down(opts.log_size.unwrap_or((total / 16).clamp(least.max(8 << 20), 1 << 30)));
    if log < least {
        return Err(Error::Refused(format!(
            "a log of {log} bytes is too small: journal and {lanes} lane(s) need {least} bytes"
        )));
    }
    let journal = down((log / 4).max(MIN_JOURNAL));
    let lane = down((log - journal) / u64::from(lanes));
    let behind = 2 * HEADER_LEN + journal + lane * u64::from(lanes);
    if total < behind + MIN_AREA {
        return Err(Error::Refused(format!(
            "{total} bytes are too few: the log takes {behind}, and the file system needs {MIN_AREA}"
        )));
    }
    Ok(Layout { area: down(total - behind), journal, lane, lanes, total })
}

fn io(what: &str, path: &Path, e: &std::io::Error) -> Error {
    Error::Refused(format!("cannot {what} {}: {e}", path.display()))
}

/// Runs mke2fs on the first `bytes` of `path`.
fn mke2fs(path: &Path, bytes: u64, label: Option<&str>) -> Result<()> {
    let mut conf = tempfile::NamedTempFile::new()
        .map_err(|e| io("write a configuration for mke2fs in", &std::env::temp_dir(), &e))?;
    conf.write_all(MKE2FS_CONF.as_bytes()).map_err(|e| io("write", conf.path(), &e))?;
    let mut command = Command::new("mke2fs");
    let path_var = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path_var}:/usr/sbin:/sbin"));
    command.env("MKE2FS_CONFIG", conf.path()).args(MKE2FS_ARGS).args(["-F", "-q"]);
    if let Some(label) = label {
        command.args(["-L", label]);
    }
    command.arg(path).arg((bytes / BLOCK_BYTES).to_string());
    let out = command.output().map_err(|e| {
        Error::Refused(format!("cannot run mke2fs ({e}); is the package e2fsprogs installed?"))
    })?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Refused(format!("mke2fs failed: {}", text.trim())));
    }
    Ok(())
}

/// Makes a volume on a file (created or resized) or block device.
///
/// # Errors
/// `Refused` when it exists and is not empty (unless `force`), is in use, or a size is unfit.
pub fn mkfs(path: &Path, opts: &MkfsOptions, progress: Progress<'_>) -> Result<MkfsReport> {
    let meta = std::fs::metadata(path).ok();
    let is_device = meta.as_ref().is_some_and(|m| !m.is_file());
    let layout = if is_device {
        let dev = open_exclusive(path, true, FileOptions::default())?;
        let size = opts.size.unwrap_or(dev.size()).min(dev.size());
        if opts.size.is_some_and(|s| s > dev.size()) {
            let have = dev.size();
            return Err(Error::Refused(format!(
                "the device has {have} bytes, fewer than asked for"
            )));
        }
        refuse_existing(&dev, opts)?;
        lay_out(size, opts)?
    } else {
        let there = meta.map_or(0, |m| m.len());
        let size = opts.size.unwrap_or(there);
        if size == 0 {
            return Err(Error::Refused("say how large the volume shall be (--size)".into()));
        }
        let layout = lay_out(size, opts)?;
        if there > 0 {
            let dev = open_exclusive(path, true, FileOptions::default())?;
            refuse_existing(&dev, opts)?;
        }
        make_file(path, layout.total)?;
        layout
    };
    progress("making the ext4 area", 0, layout.total);
    mke2fs(path, layout.area, opts.label.as_deref())?;
    let dev = open_exclusive(path, true, FileOptions::default())?;
    write_log(&dev, &layout, progress)
}

fn make_file(path: &Path, size: u64) -> Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(|e| io("create", path, &e))?;
    file.set_len(size).map_err(|e| io("size", path, &e))?;
    drop(file);
    Ok(())
}

fn refuse_existing(dev: &dyn Device, opts: &MkfsOptions) -> Result<()> {
    if opts.force {
        return Ok(());
    }
    let len = HEADER_LEN.min(dev.size());
    for offset in [0, dev.size() - len] {
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        dev.read(offset, &mut bytes)?;
        if bytes.iter().any(|b| *b != 0) {
            return Err(Error::Refused(
                "it holds data already; use --force to overwrite it".to_string(),
            ));
        }
    }
    Ok(())
}

/// Makes a volume on any device: the area is made in a temporary file and copied.
pub fn mkfs_on(dev: &Arc<dyn Device>, opts: &MkfsOptions) -> Result<MkfsReport> {
    let layout = lay_out(opts.size.unwrap_or(dev.size()).min(dev.size()), opts)?;
    let file = tempfile::NamedTempFile::new()
        .map_err(|e| io("create a file in", &std::env::temp_dir(), &e))?;
    make_file(file.path(), layout.area)?;
    mke2fs(file.path(), layout.area, opts.label.as_deref())?;
    let source = open_exclusive(file.path(), false, FileOptions::default())?;
    let mut piece = vec![0u8; 1 << 20];
    let mut there = vec![0u8; 1 << 20];
    let mut at = 0;
    while at < layout.area {
        let len = usize::try_from(layout.area - at).unwrap_or(piece.len()).min(piece.len());
        source.read(at, &mut piece[..len])?;
        dev.read(at, &mut there[..len])?;
        if piece[..len] != there[..len] {
            dev.write(at, &piece[..len], false)?;
        }
        at += len as u64;
    }
    write_log(&**dev, &layout, &mut |_, _, _| {})
}

fn write_log(dev: &dyn Device, layout: &Layout, progress: Progress<'_>) -> Result<MkfsReport> {
    // Log regions are written once, so that a ring in a file costs no metadata of the file system
    // below when it is filled for the first time.
    let (start, end) = (layout.area, layout.total);
    // What an older volume left at the end of a larger device must not pass for a header.
    if dev.size() > layout.total {
        let len = HEADER_LEN.min(dev.size() - layout.total);
        zero_fill(dev, dev.size() - len, len)?;
    }
    let mut at = start;
    while at < end {
        let len = (end - at).min(16 << 20);
        progress("writing the log regions", at - start, end - start);
        zero_fill(dev, at, len)?;
        at += len;
    }
    let mut block = [0u8; 1024];
    dev.read(1024, &mut block)?;
    let area = AreaSuper::parse(&block)
        .ok_or_else(|| siftfs_base::corrupt("new area", "mke2fs left no superblock"))?;
    let volume = uuid::Uuid::new_v4();
    let header = static_header(layout, *volume.as_bytes(), area.uuid);
    let key = LogKey { epoch: Epoch(0), nonce: nonce()? };
    let lanes = usize::from(layout.lanes);
    let host = HostRecord {
        seq: 0,
        state: HostState::Clean,
        key,
        lane_key: key,
        journal_key: key,
        lsn_floor: Lsn(0),
        area_crc: area.crc,
        lane_ends: vec![OPEN_END; lanes],
        lane_heads: vec![0; lanes],
        superblock: Box::new(block),
    };
    let service = ServiceRecord {
        next_seq: TxnSeq(1),
        lane_tails: vec![0; lanes],
        ..ServiceRecord::default()
    };
    siftfs_volume::format_headers(dev, &header, &host, &service)?;
    progress("writing the log regions", end - start, end - start);
    assert!(!area.marker, "a fresh area carries no marker {EXT4_MARKER:#x}");
    Ok(MkfsReport {
        uuid: volume.to_string(),
        area_bytes: layout.area,
        journal_bytes: layout.journal,
        staging_bytes: layout.lane * u64::from(layout.lanes),
        lanes: layout.lanes,
    })
}

fn static_header(layout: &Layout, volume: [u8; 16], area: [u8; 16]) -> StaticHeader {
    let journal_offset = layout.area + HEADER_LEN;
    let first_lane = journal_offset + layout.journal;
    let lane = |i: u16| LaneEntry {
        id: LaneId(i),
        medium: LaneMedium::Block,
        offset: first_lane + layout.lane * u64::from(i),
        len: layout.lane,
        owner: 0,
    };
    StaticHeader {
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        volume,
        area_uuid: area,
        area_offset: 0,
        area_len: layout.area,
        journal_offset,
        journal_len: layout.journal,
        header_offsets: [layout.area, layout.total - HEADER_LEN],
        lanes: (0..layout.lanes).map(lane).collect(),
    }
}

/// A secret number (rule R8).
pub fn nonce() -> Result<u64> {
    getrandom::u64().map_err(|e| Error::Refused(format!("no random numbers: {e}")))
}
