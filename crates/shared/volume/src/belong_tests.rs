use crate::test_util::*;
use crate::{Media, format_headers};
use siftfs_base::{Epoch, Error};
use siftfs_device::{Device, MemDevice};
use siftfs_log::*;
use std::sync::Arc;

const LOG: u64 = SIZE - AREA;

/// The header of [`volume`] with all but the area moved to another device.
fn external() -> StaticHeader {
    let mut header = StaticHeader { incompat: INCOMPAT_EXTERNAL_LOG, ..header() };
    header.journal_offset -= AREA;
    header.header_offsets = header.header_offsets.map(|o| o - AREA);
    header.lanes.iter_mut().for_each(|l| l.offset -= AREA);
    header
}

fn linked(epoch: Option<u64>, marker: bool) -> [u8; 1024] {
    let mut s = superblock(64, marker);
    if let Some(epoch) = epoch {
        let link = AreaLink { volume: header().volume, epoch: Epoch(epoch) };
        s[LINK_OFFSET..LINK_OFFSET + LINK_LEN].copy_from_slice(&link.encode());
    }
    resealed(s)
}

fn resealed(mut s: [u8; 1024]) -> [u8; 1024] {
    let crc = !siftfs_base::crc32c(&s[..1020]);
    s[1020..].copy_from_slice(&crc.to_le_bytes());
    s
}

/// A volume with this superblock, and a log that wants that one.
fn media(area: &[u8; 1024], wanted: &[u8; 1024]) -> Media {
    let (a, l) = (MemDevice::new(AREA), MemDevice::new(LOG));
    a.write(1024, area, false).unwrap();
    let host = HostRecord { superblock: Box::new(*wanted), ..host() };
    format_headers(&l, &external(), &host, &service()).unwrap();
    Media::split(Arc::new(a), Arc::new(l))
}

fn says(media: &Media, text: &str) -> Error {
    let error = media.read().map(drop).unwrap_err();
    assert!(error.to_string().contains(text), "no `{text}`: {error}");
    error
}

#[test]
fn a_log_elsewhere_is_read_and_serves_its_area() {
    let s = linked(Some(3), true);
    let media = media(&s, &s);
    let view = media.read().unwrap();
    assert_eq!(view.header, external());
    let storage = media.storage(&view).unwrap();
    assert_eq!(storage.area_reader().unwrap().len(), AREA);
    assert_eq!(storage.journal_reader().unwrap().len(), RING);
    for at in [0, LOG - HEADER_LEN] {
        let copy = media.log_device();
        copy.write(at, &[0xff; 4096], false).unwrap();
        let view = media.read().unwrap();
        assert!(view.needs_repair());
        media.repair(&view).unwrap();
        assert!(!media.read().unwrap().needs_repair());
    }
}

#[test]
fn r16_the_log_of_another_volume_is_refused() {
    let s = linked(Some(3), false);
    let mut other = s;
    other[LINK_OFFSET + 8] ^= 1;
    says(&media(&resealed(other), &s), "belongs to another volume: this one's is");
    let mut other = linked(None, false);
    other[104] ^= 1;
    says(&media(&resealed(other), &s), "belongs to another volume: its file system has");
    let mut other = s;
    other[104] ^= 1;
    says(&media(&resealed(other), &s), "tune2fs -U");
    // Torn or not: a superblock of another volume is never repaired from this log.
    let mut torn = s;
    torn[104] ^= 1;
    says(&media(&torn, &s), "tune2fs -U");
    says(&media(&[0; 1024], &s), "no ext4 superblock");
}

/// A primary superblock that rotted says nothing; its backup does, of this volume or of another
/// one.
#[test]
fn r16_a_backup_says_whose_a_rotten_volume_is() {
    let mut wanted = linked(Some(3), true);
    wanted[32..36].copy_from_slice(&32u32.to_le_bytes());
    let wanted = resealed(wanted);
    let mut rotten = wanted;
    rotten[LINK_OFFSET + 8] ^= 1;
    for primary in [[0; 1024], rotten] {
        let with_backup = |backup: &[u8; 1024]| {
            let media = media(&primary, &wanted);
            media.area.write(32 * 4096, backup, false).unwrap();
            media.read().map(drop)
        };
        with_backup(&wanted).unwrap();
        let mut other = wanted;
        other[LINK_OFFSET + 8] ^= 1;
        assert!(with_backup(&resealed(other)).is_err());
        assert!(with_backup(&other).is_err(), "a rotten backup says nothing");
        assert!(with_backup(&[0; 1024]).is_err());
    }
    // A whole primary needs no backup to speak for it.
    let media = media(&resealed(rotten), &wanted);
    media.area.write(32 * 4096, &wanted, false).unwrap();
    says(&media, "belongs to another volume");
}

#[test]
fn r16_a_lost_log_is_said_with_what_to_do() {
    let alone = |s| Media { log: None, ..media(&s, &s) };
    let dirty = says(&alone(linked(Some(3), true)), "may hold changes");
    assert!(matches!(dirty, Error::Corrupt { .. }) && dirty.to_string().contains("--discard-log"));
    let clean = says(&alone(linked(Some(3), false)), "nothing is missing in the file system");
    assert!(matches!(clean, Error::Refused(_)) && clean.to_string().contains("--log"));
}

#[test]
fn r16_copies_of_different_times_are_refused() {
    let (old, new) = (linked(Some(3), true), linked(Some(4), true));
    says(&media(&new, &old), "corrupt log: it is an older copy");
    says(&media(&old, &new), "corrupt volume: it is an older copy");
    says(&media(&linked(None, true), &new), "corrupt volume: it is an older copy");
    media(&new, &new).read().unwrap();
    // Without the marker the log may be empty, and then holds nothing that could not fit.
    media(&linked(Some(9), false), &old).read().unwrap();
    media(&linked(None, false), &old).read().unwrap();
}

#[test]
fn what_is_not_a_log_is_said() {
    let s = linked(Some(3), false);
    let good = media(&s, &s);
    let with = |log: MemDevice| Media { log: Some(Arc::new(log)), ..good.clone() };
    says(&with(MemDevice::new(LOG)), "no log is on the device");
    says(&with(MemDevice::new(0)), "no log is on the device");
    says(&with(volume()), "holds its own log");
    let ext4 = MemDevice::new(LOG);
    ext4.write(1024, &s, false).unwrap();
    says(&with(ext4), "holds a file system");
    let log = Media::from(good.log.clone().unwrap());
    says(&log, "and not the volume");
    let short = MemDevice::new(LOG - 4096);
    let mut bytes = vec![0; (LOG - 4096) as usize];
    good.log_device().read(0, &mut bytes).unwrap();
    short.write(0, &bytes, false).unwrap();
    says(&with(short), "corrupt log: truncated: header copy 1");
}

#[test]
fn a_grown_file_system_is_fine_and_a_cut_off_one_is_not() {
    let s = linked(Some(3), false);
    let grown = media(&s, &s);
    let larger = MemDevice::new(2 * AREA);
    let mut bytes = s;
    bytes[4..8].copy_from_slice(&128u32.to_le_bytes());
    larger.write(1024, &resealed(bytes), false).unwrap();
    let grown = Media { area: Arc::new(larger), ..grown };
    let view = grown.read().unwrap();
    assert_eq!(grown.storage(&view).unwrap().area_reader().unwrap().len(), 2 * AREA);
    let short = MemDevice::new(AREA / 2);
    short.write(1024, &s, false).unwrap();
    says(&Media { area: Arc::new(short), ..grown }, "truncated: its file system");
}
