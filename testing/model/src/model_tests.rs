use super::*;
use siftfs_proto::{RenameMode, SetAttr};

struct Bench {
    model: Model,
    next: u32,
}

impl Bench {
    fn new() -> Self {
        Self { model: Model::default(), next: 100 }
    }

    fn call(&mut self, req: Request) -> Outcome {
        self.next += 1;
        let fresh = Fresh { ino: self.next, handle: u64::from(self.next) };
        self.model.exec(&Credentials::default(), &req, fresh).0
    }

    fn dir(&mut self, parent: InodeNr, name: &str) -> InodeNr {
        let req = Request::MakeDir { parent, name: name.into(), perm: 0o755 };
        match self.call(req) {
            Ok(Reply::Entry(attr)) => attr.ino,
            other => panic!("mkdir: {other:?}"),
        }
    }

    fn file(&mut self, parent: InodeNr, name: &str) -> InodeNr {
        match self.call(Request::Create { parent, name: name.into(), perm: 0o644 }) {
            Ok(Reply::Created { attr, handle }) => {
                self.call(Request::Release { handle }).expect("release");
                attr.ino
            }
            other => panic!("create: {other:?}"),
        }
    }

    fn rename(&mut self, a: (InodeNr, &str), b: (InodeNr, &str), mode: RenameMode) -> Outcome {
        self.call(Request::Rename {
            parent: a.0,
            name: a.1.into(),
            new_parent: b.0,
            new_name: b.1.into(),
            mode,
        })
    }
}

#[test]
fn links_are_counted() {
    let mut b = Bench::new();
    let d = b.dir(ROOT_INO, "d");
    let f = b.file(d, "f");
    assert_eq!(b.model.node(ROOT_INO).map(|n| n.nlink), Some(3));
    b.call(Request::Link { ino: f, parent: ROOT_INO, name: "g".into() }).expect("link");
    assert_eq!(b.model.node(f).map(|n| n.nlink), Some(2));
    let gone = b.call(Request::RemoveDir { parent: ROOT_INO, name: "d".into() });
    assert_eq!(gone, Err(libc::ENOTEMPTY));
    b.call(Request::Unlink { parent: d, name: "f".into() }).expect("unlink");
    b.call(Request::RemoveDir { parent: ROOT_INO, name: "d".into() }).expect("rmdir");
    assert_eq!(b.model.node(ROOT_INO).map(|n| n.nlink), Some(2));
    assert_eq!(b.model.node(f).map(|n| n.nlink), Some(1));
    b.call(Request::Unlink { parent: ROOT_INO, name: "g".into() }).expect("unlink");
    assert!(b.model.node(f).is_some(), "referenced by the caller");
    b.call(Request::Forget { ino: f, count: 2 }).expect("forget");
    assert!(b.model.node(f).is_none());
}

#[test]
fn renames_refuse_what_posix_refuses() {
    let mut b = Bench::new();
    let d = b.dir(ROOT_INO, "d");
    let e = b.dir(d, "e");
    b.file(ROOT_INO, "f");
    b.file(e, "x");
    let replace = RenameMode::Replace;
    assert_eq!(b.rename((ROOT_INO, "d"), (e, "y"), replace), Err(libc::EINVAL));
    assert_eq!(b.rename((ROOT_INO, "d"), (ROOT_INO, "f"), replace), Err(libc::ENOTDIR));
    assert_eq!(b.rename((ROOT_INO, "f"), (d, "e"), replace), Err(libc::EISDIR));
    assert_eq!(b.rename((ROOT_INO, "q"), (d, "e"), replace), Err(libc::ENOENT));
    assert_eq!(b.rename((ROOT_INO, "f"), (e, "x"), RenameMode::NoReplace), Err(libc::EEXIST));
    assert_eq!(b.rename((ROOT_INO, "f"), (e, "y"), RenameMode::Exchange), Err(libc::ENOENT));
    b.rename((ROOT_INO, "f"), (d, "e"), RenameMode::Exchange).expect("exchange");
    assert_eq!(b.model.child(ROOT_INO, b"f"), Some(e));
    assert_eq!(b.model.node(e).map(|n| n.parent), Some(ROOT_INO));
    assert_eq!(b.model.node(d).map(|n| n.nlink), Some(2));
    assert_eq!(b.model.node(ROOT_INO).map(|n| n.nlink), Some(4));
}

#[test]
fn writes_and_sizes() {
    let mut b = Bench::new();
    let f = b.file(ROOT_INO, "f");
    let data = vec![7; 100];
    let write = Request::write(f, 50, data);
    assert_eq!(b.call(write), Ok(Reply::Written { len: 100 }));
    let cut = SetAttr { size: Some(60), ..SetAttr::default() };
    b.call(Request::SetAttr { file: f.into(), set: cut, times: true }).expect("truncate");
    let grow = SetAttr { size: Some(70), ..SetAttr::default() };
    b.call(Request::SetAttr { file: f.into(), set: grow, times: true }).expect("truncate");
    let mut want = vec![0; 50];
    want.extend([7; 10]);
    want.extend([0; 10]);
    assert_eq!(
        b.call(Request::Read { file: f.into(), offset: 0, len: 999 }),
        Ok(Reply::Data(want))
    );
}
