//! Calls of tests that write and sync one file.

use serde_json::Value;
use siftfs_placement::LocalVolume;
use siftfs_proto::*;

pub fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("the request")
}

pub fn create(v: &LocalVolume, name: &str) -> u32 {
    match call(v, Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 }) {
        Reply::Created { attr, .. } => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Overwrites the file's first bytes, and syncs.
pub fn write_synced(v: &LocalVolume, ino: u32, len: usize) {
    let data = WriteData::copy_of(0, &vec![7; len]);
    call(v, Request::write(ino, 0, data));
    call(v, Request::Fsync { file: ino.into(), datasync: false });
}

pub fn status(v: &LocalVolume) -> Value {
    match call(v, Request::Status) {
        Reply::Status(status) => serde_json::to_value(status).expect("JSON"),
        other => panic!("{other:?}"),
    }
}
