use super::*;
use crate::options::MkfsOptions;
use crate::volume::mkfs::mkfs_on;
use siftfs_base::Epoch;
use siftfs_device::{FileOptions, open_exclusive};
use siftfs_volume::Media;
use std::sync::Arc;

fn link(uuid: &str) -> AreaLink {
    let uuid = uuid::Uuid::parse_str(uuid).unwrap();
    AreaLink { volume: *uuid.as_bytes(), epoch: Epoch(0) }
}

#[test]
fn a_log_beside_its_volume_is_found_by_its_uuid() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, log) = (dir.path().join("v"), dir.path().join("v.log"));
    let device = |path: &Path, size: u64| -> Arc<dyn Device> {
        File::create(path).unwrap().set_len(size).unwrap();
        Arc::new(open_exclusive(path, true, FileOptions::default()).unwrap())
    };
    let (area, log_dev) = (device(&volume, 16 << 20), device(&log, 4 << 20));
    let made =
        mkfs_on(Media::split(area.clone(), log_dev.clone()), &MkfsOptions::default()).unwrap();
    let link = link(&made.uuid);
    assert_eq!(find_log(&volume, &link).unwrap(), Some(log.clone()));
    let other = AreaLink { volume: [7; 16], ..link };
    assert_eq!(find_log(&volume, &other).unwrap(), None);
    // The header at the log's end tells as well as the one at its start.
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    assert_eq!(find_log(&volume, &link).unwrap(), Some(log.clone()));
    file.set_len(1 << 20).unwrap();
    assert_eq!(find_log(&volume, &link).unwrap(), None);
}
