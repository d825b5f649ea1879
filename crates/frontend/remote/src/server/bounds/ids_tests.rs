use super::super::tests::{Told, attr, session};
use super::*;
use siftfs_proto::compound::{Compound, Compounded, FileArg, NewAttributes, StepNr, Wanted};
use siftfs_proto::{
    Credentials, DirEntry, FileKind, FileService, Handle, Level, Request, Rights, SetAttr,
    XattrMode,
};

/// The client's users 1000 to 1009 are the server's from 5000 on, its groups 100 to 109 those from
/// 6000 on.
fn mapped() -> (Arc<Told>, Arc<dyn FileService>) {
    session("uids=1000:5000:10 gids=100:6000:10")
}

fn ask(service: &Arc<dyn FileService>, req: Request) -> Result<Reply> {
    service.call(&Credentials::default(), req)
}

const LIST: &[u8] = b"system.posix_acl_access";

fn chown(uid: Option<u32>, gid: Option<u32>) -> Request {
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    Request::SetAttr { file: Handle(1).into(), set, times: true }
}

fn steps(uid: Option<u32>, gid: Option<u32>) -> Request {
    let set = NewAttributes { uid, gid, ..NewAttributes::default() };
    let file = FileArg::Open(Handle(1));
    let steps = vec![Step::Close { file: file.clone() }, Step::SetAttributes { file, set }];
    let (base, level, rights, wanted) = (7, Level::Visible, Rights::default(), Wanted::All);
    Request::Compound(Box::new(Compound { base, steps, level, rights, wanted }))
}

/// An access control list with an entry of a user, and one of a group.
fn list(uid: u32, gid: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(0x01, none), (0x02, uid), (0x04, none), (0x08, gid), (0x10, none)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, id) in entries.into_iter().chain([(0x20, none)]) {
        list.extend([tag, 0, 7, 0]);
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// Capabilities of the form that ends with a user id.
fn capabilities(root: u32) -> Vec<u8> {
    [&[0, 0, 0, 3][..], &[9; 16], &root.to_le_bytes()].concat()
}

fn set(name: &[u8], value: Vec<u8>) -> Request {
    let (file, name) = (Handle(1).into(), name.to_vec());
    Request::SetXattr { file, name, value, mode: XattrMode::Set, kill_setgid: false }
}

#[test]
fn ids_of_the_client_become_the_servers() {
    let of = |uid, gid, nobody: Option<u32>| {
        [
            chown(Some(uid), Some(gid)),
            chown(nobody, Some(gid)),
            chown(Some(uid), nobody),
            steps(Some(uid), Some(gid)),
            set(LIST, list(uid, gid)),
            set(b"system.posix_acl_default", list(uid, gid)),
            set(CAPABILITY, capabilities(uid)),
            // These have no ids, whatever their bytes look like.
            set(LIST, Vec::new()),
            set(b"user.posix_acl_access", list(1000, 100)),
            set(CAPABILITY, vec![0, 0, 0, 2, 1]),
        ]
    };
    let (told, service) = mapped();
    for req in of(1003, 107, None) {
        ask(&service, req).unwrap();
    }
    assert_eq!(*told.asked.lock().unwrap(), of(5003, 6007, None));
}

/// Ids of the server, those that are shown as nobody's, and none at all, cannot be given.
#[test]
fn unmapped_ids_are_not_given() {
    let (told, service) = mapped();
    let (uid, gid) = (1000, 100);
    for other in [0, 999, 1010, 5000, 6000, siftfs_keys::NOBODY, u32::MAX] {
        let all = [
            chown(Some(other), None),
            chown(None, Some(other)),
            chown(Some(uid), Some(other)),
            set(LIST, list(other, gid)),
            set(LIST, list(uid, other)),
            set(CAPABILITY, capabilities(other)),
        ];
        for req in all {
            assert_eq!(ask(&service, req.clone()), Err(errno(libc::EINVAL)), "{req:?}");
        }
        for req in [steps(Some(other), None), steps(Some(uid), Some(other))] {
            let refused = Compounded::Refused { step: StepNr(1), errno: libc::EINVAL };
            assert_eq!(ask(&service, req), Ok(Reply::Compounded(refused)));
        }
    }
    assert_eq!(ask(&service, set(LIST, vec![2, 0, 0, 0, 1])), Err(errno(libc::EINVAL)));
    assert_eq!(*told.asked.lock().unwrap(), []);
}

#[test]
fn ids_of_the_server_become_the_clients() {
    let nobody = siftfs_keys::NOBODY;
    for (server, client) in [((5003, 6007), (1003, 107)), ((0, 1000), (nobody, nobody))] {
        let of = |(uid, gid): (u32, u32)| {
            let attr = Attr { uid, gid, ..attr(7) };
            let kind = FileKind::Directory;
            let entry = |attr| DirEntry { ino: 7, cookie: 1, kind, name: b"x".to_vec(), attr };
            [
                Reply::Entry(attr.clone()),
                Reply::Attr(attr.clone()),
                Reply::Created { attr: attr.clone(), handle: Handle(5003) },
                Reply::Dir(vec![entry(None), entry(Some(attr))]),
                Reply::Offset(5003),
            ]
        };
        for (told, shown) in of(server).into_iter().zip(of(client)) {
            let (inner, service) = mapped();
            inner.answer(told.clone());
            assert_eq!(ask(&service, Request::Barrier), Ok(shown.clone()));
            let (sent, received) = std::sync::mpsc::channel();
            inner.answer(told);
            let done = Box::new(move |result| sent.send(result).unwrap());
            service.submit(&Credentials::default(), Request::Barrier, done);
            assert_eq!(received.recv().unwrap(), Ok(shown));
        }
        let get = |name: &[u8], value: Vec<u8>| {
            let (inner, service) = mapped();
            inner.answer(Reply::Data(value));
            let req = Request::GetXattr { file: Handle(1).into(), name: name.to_vec() };
            ask(&service, req)
        };
        let there = list(server.0, server.1);
        assert_eq!(get(LIST, there.clone()), Ok(Reply::Data(list(client.0, client.1))));
        assert_eq!(get(b"user.x", there.clone()), Ok(Reply::Data(there)));
        let shown = Ok(Reply::Data(capabilities(client.0)));
        assert_eq!(get(CAPABILITY, capabilities(server.0)), shown);
        assert_eq!(get(LIST, vec![1]), Err(errno(libc::EIO)));
        // Bytes of a file are no ids.
        let (inner, service) = mapped();
        inner.answer(Reply::Data(list(server.0, server.1)));
        let read = Request::Read { file: Handle(1).into(), offset: 0, len: 99 };
        assert_eq!(ask(&service, read), Ok(Reply::Data(list(server.0, server.1))));
    }
}

/// Where only one kind of ids has a list of maps, the other kind stays as it is.
#[test]
fn users_and_groups_have_maps_of_their_own() {
    for (options, uid, gid) in [("uids=0:5000:10", 0, 6000), ("gids=0:6000:10", 5000, 0)] {
        let (told, service) = session(options);
        told.answer(Reply::Attr(attr(7)));
        let shown = ask(&service, Request::Barrier).unwrap().attr().unwrap();
        assert_eq!((shown.uid, shown.gid), (uid, gid));
        ask(&service, chown(Some(uid), Some(gid))).unwrap();
        assert_eq!(told.asked.lock().unwrap().last(), Some(&chown(Some(5000), Some(6000))));
    }
}
