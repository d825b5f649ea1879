use super::*;
use siftfs_device::{MemDevice, ReadOp};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Things in memory.
#[derive(Debug, Default)]
struct Things(Mutex<BTreeMap<String, Vec<u8>>>);

impl Beside for Things {
    fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        Ok(found.map(|bytes| bytes.into_iter().take(usize::try_from(limit).unwrap()).collect()))
    }
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().insert(name.into(), bytes.to_vec());
        Ok(())
    }
    fn append(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().entry(name.into()).or_default().extend(bytes);
        Ok(())
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }
}

/// A device with things beside it.
struct Engine(MemDevice, Arc<Things>);

impl Device for Engine {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_batch(&mut [ReadOp { offset, buf }])
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.0.write(offset, data, fua)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn beside(&self) -> Option<Arc<dyn Beside>> {
        Some(self.1.clone())
    }
}

fn engine() -> (Engine, Arc<Things>) {
    let things = Arc::new(Things::default());
    (Engine(MemDevice::new(4096), things.clone()), things)
}

/// The secret of a volume's servers is the same wherever the volume is opened, and a damaged one is
/// made anew.
#[test]
fn servers_of_every_machine_have_one_secret() {
    let (engine, things) = engine();
    let bytes = || things.read(SECRET, 100).unwrap().unwrap();
    let said = |secret: Secret| match secret {
        Secret::Known(seals) => seals.seal(&[b"said"]),
        Secret::File(path) => panic!("{path:?} is this machine's"),
    };
    let first = said(secret_of(&engine).unwrap());
    assert_eq!(bytes().len(), SECRET_BYTES);
    assert_eq!(said(secret_of(&engine).unwrap()), first);
    things.append(SECRET, b"x").unwrap();
    assert_ne!(said(secret_of(&engine).unwrap()), first);
    assert_eq!(bytes().len(), SECRET_BYTES);
    things.replace(SECRET, b"short").unwrap();
    secret_of(&engine).unwrap();
    assert_eq!(bytes().len(), SECRET_BYTES);
}

/// The book lies beside a volume on a cluster, and in the folder of this machine for others.
#[test]
fn a_book_lies_where_the_volume_does() {
    let (engine, things) = engine();
    let dir = tempfile::tempdir().unwrap();
    let store = book_store_of(&engine, dir.path(), &[7; 16]);
    assert_eq!(store.read(10).unwrap(), None);
    store.replace(b"all").unwrap();
    store.append(b" of it").unwrap();
    assert_eq!(things.read(BOOK, 100).unwrap().unwrap(), b"all of it");
    assert_eq!(store.read(5).unwrap().unwrap(), b"all o");
    store.remove().unwrap();
    assert_eq!(things.read(BOOK, 100).unwrap(), None);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    let store = book_store_of(&MemDevice::new(4096), dir.path(), &[7; 16]);
    store.replace(b"all").unwrap();
    assert_eq!(std::fs::read(dir.path().join(show_uuid(&[7; 16]))).unwrap(), b"all");
}
