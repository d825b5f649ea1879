//! Directories of volumes, in temporary ones.

use super::*;
use crate::mount::local::LocalVolume;
use crate::options::OpenOptions;
use crate::volume::grow::grow;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn create(path: &Path) -> Result<MkfsReport> {
    let opts = MkfsOptions { size: Some(16 * MIB), log_size: Some(3 * MIB), ..Default::default() };
    create_volume(path, &opts, &mut |_, _, _| {})
}

fn volume_in(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(name);
    create(&path).unwrap();
    path
}

fn open(path: &Path) -> LocalVolume {
    LocalVolume::open(path, &OpenOptions::default(), &mut |_, _, _| {}).unwrap()
}

fn names(dir: &tempfile::TempDir) -> Vec<(String, VolumeState)> {
    list_volumes(dir.path()).unwrap().into_iter().map(|v| (v.name, v.state)).collect()
}

#[test]
fn a_directory_lists_its_volumes_by_name_and_what_they_are_like() {
    let dir = directory();
    assert!(names(&dir).is_empty());
    let (b, a) = (volume_in(&dir, "b"), volume_in(&dir, "a"));
    std::fs::write(dir.path().join("notes"), b"no volume").unwrap();
    std::fs::write(dir.path().join(".hidden"), std::fs::read(&a).unwrap()).unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let both = |x, y| vec![("a".to_string(), x), ("b".to_string(), y)];
    assert_eq!(names(&dir), both(VolumeState::Clean, VolumeState::Clean));
    let open_b = open(&b);
    assert_eq!(names(&dir), both(VolumeState::Clean, VolumeState::Used));
    open_b.abandon();
    assert_eq!(names(&dir), both(VolumeState::Clean, VolumeState::Dirty));
    let listed = &list_volumes(dir.path()).unwrap()[0];
    assert_eq!((listed.bytes, listed.log_elsewhere), (16 * MIB, false));
    assert!(listed.uuid.is_some() && listed.area_bytes.is_some_and(|bytes| bytes < 13 * MIB));
    // Both copies of the header are lost under a marked file system.
    let whole = std::fs::read(&b).unwrap();
    let end = listed.area_bytes.unwrap() as usize;
    let mut broken = whole;
    broken[end..end + 4096].fill(1);
    let last = broken.len() - 65_536;
    broken[last..last + 4096].fill(1);
    std::fs::write(&b, broken).unwrap();
    assert_eq!(names(&dir), both(VolumeState::Clean, VolumeState::Damaged));
    assert!(list_volumes(dir.path()).unwrap()[1].problem.is_some());
    assert!(list_volumes(&dir.path().join("nowhere")).is_err());
}

#[test]
fn a_new_volume_takes_no_name_that_is_taken_and_leaves_nothing_when_it_fails() {
    let dir = directory();
    let a = volume_in(&dir, "a");
    let before = std::fs::read(&a).unwrap();
    assert!(matches!(create(&a), Err(Error::Refused(_))));
    assert_eq!(std::fs::read(&a).unwrap(), before);
    let opts = MkfsOptions { size: Some(1 << 16), ..Default::default() };
    let small = create_volume(&dir.path().join("small"), &opts, &mut |_, _, _| {});
    assert!(matches!(small, Err(Error::Refused(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of it");
    for name in
        ["", ".", "..", ".a", "a.log", "a.area", "a.making", "a\nb", "tcp:a", &"n".repeat(201)]
    {
        assert!(create(&dir.path().join(name)).is_err(), "{name:?}");
    }
    open(&a).close().unwrap();
}

#[test]
fn only_a_volume_that_nobody_uses_is_removed() {
    let dir = directory();
    let (a, b) = (volume_in(&dir, "a"), volume_in(&dir, "b"));
    let refused = |path: &Path, why: &str| {
        let said = remove_volume(path).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    let used = open(&a);
    refused(&a, "in use");
    used.close().unwrap();
    let other = dir.path().join("notes");
    std::fs::write(&other, b"no volume").unwrap();
    refused(&other, "no volume");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&a, &link).unwrap();
    refused(&link, "only a volume that is a file");
    refused(&dir.path().join("nowhere"), "cannot look at");
    assert_eq!(remove_volume(&b).unwrap().name, "b");
    assert!(a.exists() && !b.exists() && other.exists());
}

#[test]
fn a_volume_of_a_directory_grows_and_is_listed_as_long_as_it_is() {
    let dir = directory();
    let a = volume_in(&dir, "a");
    let report = grow(&a, Some(40 * MIB), &OpenOptions::default(), &mut |_, _, _| {}).unwrap();
    assert!(
        report.log_moved && report.area_bytes > 36 * MIB && report.area_bytes_before < 13 * MIB
    );
    let listed = &list_volumes(dir.path()).unwrap()[0];
    assert_eq!((listed.bytes, listed.area_bytes), (40 * MIB, Some(report.area_bytes)));
    assert_eq!((listed.state, listed.uuid.clone()), (VolumeState::Clean, Some(report.uuid)));
    // Neither shorter nor while it is open, and nothing has changed then.
    let refused = |size| grow(&a, Some(size), &OpenOptions::default(), &mut |_, _, _| {}).is_err();
    assert!(refused(30 * MIB) && refused(41 * MIB) && refused(20_000 * MIB));
    let used = open(&a);
    assert!(refused(100 * MIB));
    used.close().unwrap();
    assert_eq!(std::fs::metadata(&a).unwrap().len(), 40 * MIB);
    assert!(!refused(100 * MIB));
    open(&a).close().unwrap();
}
