use super::*;
use crate::Whom;

fn place() -> RbdPlace {
    RbdPlace::parse(Path::new("rbd:p/i")).unwrap().unwrap()
}

#[test]
fn a_dead_owner_of_this_machine_is_named_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = LocalLock::at(dir.path(), "f.p.1", &place(), &Access::Alone).unwrap().unwrap();
    assert_eq!(first.last, None);
    first.write("10.0.0.1:0/123");
    let said =
        LocalLock::at(dir.path(), "f.p.1", &place(), &Access::Alone).err().unwrap().to_string();
    assert!(said.contains("another process of this machine"), "{said}");
    // A takeover does not ask it.
    assert!(
        LocalLock::at(dir.path(), "f.p.1", &place(), &Access::TakeOver(Whom::Anybody))
            .unwrap()
            .is_none()
    );
    drop(first);
    let mut second = LocalLock::at(dir.path(), "f.p.1", &place(), &Access::Alone).unwrap().unwrap();
    assert_eq!(second.last.as_deref(), Some("10.0.0.1:0/123"));
    // One that ends in order leaves nobody to fence.
    second.write("");
    drop(second);
    assert_eq!(
        LocalLock::at(dir.path(), "f.p.1", &place(), &Access::Alone).unwrap().unwrap().last,
        None
    );
    // Another image is another file.
    assert!(LocalLock::at(dir.path(), "f.p.2", &place(), &Access::Alone).unwrap().is_some());
}

#[test]
fn a_name_leads_to_no_other_folder() {
    let dir = tempfile::tempdir().unwrap();
    let lock =
        LocalLock::at(&dir.path().join("rbd"), "../../x.1", &place(), &Access::Alone).unwrap();
    assert!(lock.is_some());
    let made = fs::read_dir(dir.path().join("rbd")).unwrap().next().unwrap().unwrap();
    assert_eq!(made.file_name().to_string_lossy(), ".._.._x.1");
}
