//! The thin slice, end to end: make, open, write, fsync, crash, recover, e2fsck.

use siftfs_placement::LocalVolume;
use siftfs_proto::*;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

fn call(v: &LocalVolume, req: Request) -> Result<Reply, siftfs_base::Error> {
    v.endpoint().call(&Credentials::default(), req)
}

fn create(v: &LocalVolume, parent: u32, name: &str) -> u32 {
    match call(v, Request::Create { parent, name: name.into(), perm: 0o644 }).expect("create") {
        Reply::Created { attr, handle } => {
            call(v, Request::Release { handle }).expect("release");
            call(v, Request::Forget { ino: attr.ino, count: 1 }).expect("forget");
            attr.ino
        }
        other => panic!("{other:?}"),
    }
}

fn write(v: &LocalVolume, ino: u32, offset: u64, data: &[u8]) {
    let len = data.len() as u32;
    let data = siftfs_proto::WriteData::copy_of(offset, data);
    let req = Request::write(ino, offset, data);
    assert_eq!(call(v, req).expect("write"), Reply::Written { len });
}

fn read(v: &LocalVolume, ino: u32, offset: u64, len: u32) -> Vec<u8> {
    match call(v, Request::Read { file: ino.into(), offset, len }).expect("read") {
        Reply::Data(data) => data,
        Reply::Blocks(blocks) => blocks.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn lookup(v: &LocalVolume, parent: u32, name: &str) -> Option<Attr> {
    match call(v, Request::Lookup { parent, name: name.into() }) {
        Ok(Reply::Entry(attr)) => Some(attr),
        Err(siftfs_base::Error::Posix(libc::ENOENT)) => None,
        other => panic!("{other:?}"),
    }
}

fn fsync(v: &LocalVolume, ino: u32) {
    call(v, Request::Fsync { file: ino.into(), datasync: false }).expect("fsync");
}

#[test]
fn a_fresh_volume_opens_and_closes() {
    let world = World::new(1);
    world.e2fsck();
    world.open().close().expect("close");
    world.e2fsck();
}

#[test]
fn fsynced_data_survives_a_crash() {
    for lanes in [1, 2] {
        let world = World::new(lanes);
        let v = world.open();
        let a = create(&v, ROOT, "a");
        write(&v, a, 0, &[7; 5000]);
        fsync(&v, a);
        let b = create(&v, ROOT, "b");
        write(&v, b, 100, b"unsynced");
        v.abandon();
        let v = world.open();
        let a = lookup(&v, ROOT, "a").expect("a was fsynced").ino;
        assert_eq!(read(&v, a, 0, 10_000), vec![7; 5000]);
        v.close().expect("close");
        world.e2fsck();
    }
}

#[test]
fn everything_is_there_after_unmount() {
    let world = World::new(1);
    let v = world.open();
    let Reply::Entry(d) =
        call(&v, Request::MakeDir { parent: ROOT, name: "d".into(), perm: 0o755 }).expect("mkdir")
    else {
        panic!()
    };
    for i in 0..500u32 {
        let f = create(&v, d.ino, &format!("file{i}"));
        write(&v, f, u64::from(i % 7) * 1000, format!("content {i}").as_bytes());
        if i % 10 == 0 {
            fsync(&v, f);
        }
        if i % 100 == 50 {
            v.commit(false).expect("commit");
        }
    }
    v.close().expect("close");
    world.e2fsck();
    let v = world.open();
    for i in 0..500u32 {
        let f = lookup(&v, d.ino, &format!("file{i}")).expect("there").ino;
        let want = format!("content {i}");
        assert_eq!(read(&v, f, u64::from(i % 7) * 1000, 100), want.as_bytes());
    }
    v.close().expect("close");
    world.e2fsck();
}
