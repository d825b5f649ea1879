use super::*;
use crate::server::bounds::bounded_machine;
use crate::server::bounds::tests::{Told, line};
use siftfs_base::Result;
use siftfs_proto::compound::{Compound, Step, Wanted};
use siftfs_proto::{FileService, Level, Reply, Request};
use std::sync::Mutex;

/// Everything that a client can claim.
fn claimed(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    let rights = Rights { groups: groups.to_vec(), file_size: Some(9), ..Rights::all() };
    let rights = Some(Box::new(rights));
    Credentials { uid, gid, pid: 7, umask: 0o27, rights, ..Credentials::default() }
}

fn judged(options: &str, cred: &Credentials) -> (u32, u32, Rights) {
    let judged = Callers::of(&line(options)).judge(cred);
    assert_eq!((judged.pid, judged.umask), (0, cred.umask), "another machine's process");
    (judged.uid, judged.gid, *judged.rights.unwrap())
}

fn nobodys(groups: &[u32]) -> Rights {
    Rights { groups: groups.to_vec(), file_size: Some(9), ..Rights::NONE }
}

#[test]
fn r52_a_caller_is_what_the_line_leaves_of_it() {
    let (root, user) = (claimed(0, 0, &[0, 5]), claimed(1000, 0, &[5, 0, 6]));
    assert_eq!(judged("", &root), (65534, 65534, nobodys(&[])));
    assert_eq!(judged("", &user), (1000, 65534, nobodys(&[5, 6])));
    assert_eq!(judged("squash=all anon=7:8", &user), (7, 8, nobodys(&[])));
    let maps = "uids=1000:5000:1 gids=5:50:1";
    assert_eq!(judged(maps, &user), (5000, 65534, nobodys(&[50])));
    assert_eq!(judged(&format!("squash=none {maps}"), &user), (5000, 65534, nobodys(&[50])));
    // The whole claim counts where the line leaves users as they are.
    let all = Rights { groups: vec![0, 5], file_size: Some(9), ..Rights::all() };
    assert_eq!(judged("squash=none subtree=/a", &root), (0, 0, all));
    // What the kernel sends without a caller, and a caller without rights.
    let nobody = Credentials { uid: u32::MAX, gid: u32::MAX, ..Credentials::default() };
    assert_eq!(judged("squash=none subtree=/a", &nobody), (65534, 65534, Rights::NONE));
    let alone = Credentials { rights: None, ..user };
    assert_eq!(judged("squash=none subtree=/a", &alone), (1000, 0, Rights::NONE));
    let most = vec![5; MOST_GROUPS];
    assert_eq!(judged("", &claimed(1000, 5, &most)).2.groups.len(), MOST_GROUPS);
    let more = vec![5; MOST_GROUPS + 1];
    assert_eq!(judged("", &claimed(1000, 5, &more)).2, nobodys(&[]));
}

/// Keeps the callers that it is shown, and the rights in requests.
#[derive(Default)]
struct Shown(Told, Mutex<Vec<Credentials>>);

impl FileService for Shown {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.1.lock().unwrap().push(cred.clone());
        self.0.call(cred, req)
    }
}

/// By whichever way a call comes, and wherever it carries rights.
#[test]
fn r52_every_way_of_a_call_is_judged() {
    let told = std::sync::Arc::new(Shown::default());
    let inner = told.clone();
    let open = |_| Ok(inner as Arc<dyn FileService>);
    let service = bounded_machine(&line(""), None, open).unwrap();
    let cred = claimed(0, 0, &[0]);
    let rights = Rights { groups: vec![0], ..Rights::all() };
    let steps = vec![Step::Lookup { path: b"f".to_vec() }];
    let (base, level, wanted) = (2, Level::Visible, Wanted::All);
    let compound = Compound { base, steps, level, rights: rights.clone(), wanted };
    let publish = Request::Publish { base: 2, entries: Vec::new(), level: Level::Visible, rights };
    service.call(&cred, Request::Compound(Box::new(compound))).unwrap();
    service.call_owing(&cred, publish).0.unwrap();
    service.submit(&cred, Request::StatFs, Box::new(|result| assert!(result.is_ok())));
    let entries =
        Request::ReadDir { handle: siftfs_proto::Handle(1), cookie: 0, max_bytes: 1, plus: false };
    service.submit(&cred, entries, Box::new(|result| assert!(result.is_ok())));
    let shown = told.1.lock().unwrap();
    assert_eq!(shown.len(), 4);
    for cred in shown.iter() {
        assert_eq!((cred.uid, cred.gid, cred.pid), (65534, 65534, 0));
        assert_eq!(**cred.rights.as_ref().unwrap(), nobodys(&[]));
    }
    for req in told.0.asked.lock().unwrap().iter() {
        match req {
            Request::Compound(compound) => assert_eq!(compound.rights, Rights::NONE),
            Request::Publish { rights, .. } => assert_eq!(*rights, Rights::NONE),
            _ => {}
        }
    }
}
