//! What a client of another machine asks for after its server died: the inodes that it had made,
//! once more, and its kernel's references.

use siftfs_base::Error;
use siftfs_proto::*;
use std::sync::Arc;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

fn ask(session: &dyn FileService, origin: Option<Origin>, req: Request) -> Result<Reply, i32> {
    let cred = Credentials { origin: origin.map(Arc::new), ..Credentials::default() };
    session.call(&cred, req).map_err(|e: Error| e.errno())
}

fn attr(reply: Result<Reply, i32>) -> Attr {
    match reply {
        Ok(Reply::Entry(attr) | Reply::Created { attr, .. }) => attr,
        other => panic!("{other:?}"),
    }
}

/// Every request that makes an inode, under this name.
fn makes(name: &str) -> [Request; 5] {
    let (parent, name) = (ROOT, name.as_bytes().to_vec());
    let kind = FileKind::Fifo;
    [
        Request::Create { parent, name: name.clone(), perm: 0o644 },
        Request::MakeDir { parent, name: name.clone(), perm: 0o755 },
        Request::Symlink { parent, name: name.clone(), target: b"to".to_vec() },
        Request::MakeNode { parent, name, kind, perm: 0o600, rdev: 0 },
        Request::TmpFile { parent, perm: 0o600, exclusive: false },
    ]
}

/// A creation that is made once more gets the number and generation that it had, whatever it makes.
#[test]
fn a_creation_once_more_is_the_same_inode() {
    let world = World::new(1);
    let v = world.open();
    let session = v.endpoint();
    for (nr, req) in makes("x").into_iter().enumerate() {
        let named = !matches!(req, Request::TmpFile { .. });
        let ino = 100 + nr as u32;
        let origin = Origin::new(1, 0, nr as u64).again(ino, 77);
        let made = attr(ask(&*session, Some(origin), req.clone()));
        assert_eq!((made.ino, made.generation), (ino, 77), "{req:?}");
        if named {
            let (parent, name) = (ROOT, b"x".to_vec());
            let remove = match req {
                Request::MakeDir { .. } => Request::RemoveDir { parent, name },
                _ => Request::Unlink { parent, name },
            };
            ask(&*session, None, remove).expect("removed");
        }
    }
    drop(session);
    v.close().expect("closed");
    world.e2fsck();
}

/// A number that another file has, or had until now, is not given; nor one that no file can have.
#[test]
fn a_number_that_was_taken_meanwhile_is_stale() {
    let world = World::new(1);
    let v = world.open();
    let session = v.endpoint();
    let other = attr(ask(&*session, None, makes("other")[0].clone())).ino;
    let gone = attr(ask(&*session, None, makes("gone")[3].clone())).ino;
    v.commit(true).expect("committed");
    ask(&*session, None, Request::Forget { ino: gone, count: 1 }).expect("forgotten");
    let unlink = Request::Unlink { parent: ROOT, name: b"gone".to_vec() };
    ask(&*session, None, unlink).expect("removed");
    for (nr, (ino, generation)) in
        [(other, 5), (gone, 5), (0, 5), (8, 5), (u32::MAX, 5), (200, 0)].into_iter().enumerate()
    {
        for req in makes("new") {
            let origin = Origin::new(1, nr as u32, 1).again(ino, generation);
            let refused = ask(&*session, Some(origin), req);
            assert_eq!(refused, Err(libc::ESTALE), "inode {ino}, generation {generation}");
        }
    }
    assert_eq!(v.commit(true).map_err(|e| e.errno()), Ok(()), "the volume goes on");
    drop(session);
    v.close().expect("closed");
    world.e2fsck();
}

/// The usual checks hold for what is made once more.
#[test]
fn a_creation_once_more_is_checked_as_any() {
    let world = World::new(1);
    let v = world.open();
    let user = v.session(Opening::user(1000, 1000, Rights::default())).expect("a session");
    for req in makes("x") {
        let origin = Origin::new(1, 0, 1).again(100, 7);
        assert_eq!(ask(&*user, Some(origin), req), Err(libc::EACCES));
    }
}

/// References are counted by number and generation, all that are there; the others are told.
#[test]
fn references_are_counted_again() {
    let world = World::new(1);
    let v = world.open();
    let (own, kernel) = (v.endpoint(), v.session(Opening::kernel()).expect("a session"));
    let made = |name: &str| attr(ask(&*own, None, makes(name)[3].clone()));
    let (a, b, c) = (made("a"), made("b"), made("c"));
    let unlink = Request::Unlink { parent: ROOT, name: b"c".to_vec() };
    ask(&*own, None, unlink).expect("removed");
    let held = |attr: &Attr, count| Held { ino: attr.ino, generation: attr.generation, count };
    let other = Held { generation: b.generation ^ 1, ..held(&b, 1) };
    // Free, reserved, and such as no file can have.
    let nothing = [300, 0, 1, 8, 1 << 20, u32::MAX];
    let none = nothing.map(|ino| Held { ino, generation: 0, count: 1 });
    let inodes = [vec![held(&a, 3), other, held(&c, 1)], none.to_vec()].concat();
    let gone = ask(&*kernel, None, Request::HoldMany { inodes });
    assert_eq!(gone, Ok(Reply::Gone([vec![b.ino], nothing.to_vec()].concat())));
    // What has no name is there for as long as any session refers to it.
    for session in [&*own, &*kernel] {
        assert!(session.has_looked_up(c.ino));
        ask(session, None, Request::Forget { ino: c.ino, count: 1 }).expect("forgotten");
    }
    let gone = ask(&*kernel, None, Request::HoldMany { inodes: vec![held(&c, 1)] });
    assert_eq!(gone, Ok(Reply::Gone(vec![c.ino])));
    assert!(kernel.has_looked_up(a.ino) && !kernel.has_looked_up(b.ino));
    ask(&*kernel, None, Request::Forget { ino: a.ino, count: 2 }).expect("forgotten");
    assert!(kernel.has_looked_up(a.ino), "three were counted");
    ask(&*kernel, None, Request::Forget { ino: a.ino, count: 1 }).expect("forgotten");
    assert!(!kernel.has_looked_up(a.ino));
}

/// The number of an inode that is gone is nobody's while a session says that its kernel refers to
/// it: neither one that is free, nor one that another file has and gives up. It is given again when
/// the kernel has forgotten it, or its session has ended.
#[test]
fn a_number_that_a_kernel_refers_to_is_not_given_again() {
    let world = World::new(1);
    let v = world.open();
    let own = v.endpoint();
    let session = || v.session(Opening::kernel()).expect("a session");
    let (kernel, other) = (session(), session());
    let makes = |name: &str| attr(ask(&*own, None, makes(name)[3].clone())).ino;
    let gone = |session: &dyn FileService, ino, count| {
        let inodes = vec![Held { ino, generation: 77, count }];
        assert_eq!(ask(session, None, Request::HoldMany { inodes }), Ok(Reply::Gone(vec![ino])));
    };
    let forget = |session: &dyn FileService, ino, count| {
        ask(session, None, Request::Forget { ino, count }).expect("forgotten");
    };
    let taken = makes("taken");
    let next = taken + 1;
    gone(&*kernel, next, 2);
    gone(&*kernel, taken, 1);
    gone(&*other, next, 1);
    assert!(!kernel.has_looked_up(taken) && !kernel.has_looked_up(next), "they name nothing");
    assert_eq!(makes("a"), next + 1);
    // The other file of the number is removed, and forgotten.
    forget(&*own, taken, 1);
    let unlink = Request::Unlink { parent: ROOT, name: b"taken".to_vec() };
    ask(&*own, None, unlink).expect("removed");
    v.commit(true).expect("committed");
    v.checkpoint().expect("checkpointed");
    assert_eq!(makes("b"), next + 2);
    forget(&*kernel, next, 1);
    forget(&*kernel, next, 1);
    assert_eq!(makes("c"), next + 3, "the other kernel refers to it");
    drop(other);
    assert_eq!(makes("d"), next);
    forget(&*kernel, taken, 1);
    assert_eq!(makes("e"), taken);
    // One that it has looked up as well is given back together with the former one.
    gone(&*kernel, taken, 1);
    let lookup = || Request::Lookup { parent: ROOT, name: b"e".to_vec() };
    (0..2).for_each(|_| drop(ask(&*kernel, None, lookup()).expect("it is there")));
    forget(&*kernel, taken, 2);
    assert!(kernel.has_looked_up(taken), "nobody can say of which of both they were");
    forget(&*kernel, taken, 1);
    assert!(!kernel.has_looked_up(taken));
    drop((own, kernel));
    v.close().expect("closed");
    world.e2fsck();
}

/// Only a kernel's session and the owner's count what they have not looked up, and not more at a
/// time than the bound.
#[test]
fn references_are_not_counted_for_everybody() {
    let world = World::new(1);
    let v = world.open();
    let made = attr(ask(&*v.endpoint(), None, makes("a")[3].clone()));
    let held = Held { ino: made.ino, generation: made.generation, count: 1 };
    let hold = |opening: Opening, inodes: Vec<Held>| {
        let session = v.session(opening).expect("a session");
        ask(&*session, None, Request::HoldMany { inodes })
    };
    let here = Ok(Reply::Gone(vec![]));
    assert_eq!(hold(Opening::kernel(), vec![held; 3]), here);
    assert_eq!(hold(Opening::owner(), vec![held]), here);
    let user = |uid| Opening::user(uid, 0, Rights::all());
    assert_eq!(hold(user(0), vec![held]), Err(libc::EPERM), "root of another machine");
    assert_eq!(hold(user(1), vec![held]), Err(libc::EPERM));
    assert_eq!(hold(Opening::kernel(), vec![held; HOLD_MOST + 1]), Err(libc::E2BIG));
    assert_eq!(hold(Opening::kernel(), vec![Held { count: 0, ..held }]), Err(libc::EINVAL));
}

/// LSNs that were drawn and lost in a crash are not drawn again, and so no generation of an inode
/// that was lost is: who remembers it finds no other file under it.
#[test]
fn a_lost_generation_does_not_come_again() {
    let world = World::new(1);
    let make = |v: &siftfs_placement::LocalVolume| {
        let origin = Origin::new(1, 0, 1);
        let cred = Credentials { origin: Some(Arc::new(origin)), ..Credentials::default() };
        let made = v.endpoint().call(&cred, makes("x")[0].clone()).map_err(|e| e.errno());
        (attr(made), cred.origin.expect("just given").lsn())
    };
    let v = world.open();
    let (epoch, (lost, lsn)) = (v.epoch(), make(&v));
    v.abandon();
    let v = world.open();
    let recovered = v.recovered().expect("recovered");
    assert_eq!(recovered.epoch, epoch);
    assert!(!recovered.holds(lsn) && recovered.reply(1, 0, 1).is_none(), "nothing was durable");
    let (made, later) = make(&v);
    assert_eq!(made.ino, lost.ino, "the first free number");
    assert!(made.generation != lost.generation && later > lsn);
    v.abandon();
}
