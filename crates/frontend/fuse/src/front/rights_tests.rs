use super::*;
use std::sync::Mutex;

/// Keeps the callers that it is shown.
#[derive(Default)]
struct Told(Mutex<Vec<Credentials>>);

impl FileService for Told {
    fn call(&self, cred: &Credentials, _: Request) -> Result<Reply> {
        self.0.lock().unwrap().push(cred.clone());
        Ok(Reply::Done)
    }
}

fn lookup() -> Request {
    Request::Lookup { parent: 2, name: b"f".to_vec() }
}

/// This thread's own groups and capabilities are sent, by all ways, where something is decided.
#[test]
fn r52_a_call_that_is_decided_carries_its_callers_rights() {
    let told = Arc::new(Told::default());
    let service = vouching(told.clone());
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let uid = rustix::process::geteuid();
    let me = Credentials { uid: uid.as_raw(), pid: thread, ..Credentials::default() };
    service.call(&me, lookup()).unwrap();
    service.call_owing(&me, lookup()).0.unwrap();
    service.submit(&me, lookup(), Box::new(|result| assert!(result.is_ok())));
    let shown = std::mem::take(&mut *told.0.lock().unwrap());
    assert_eq!(shown.len(), 3);
    let groups = rustix::process::getgroups().unwrap();
    let mut groups: Vec<u32> = groups.into_iter().map(|group| group.as_raw()).collect();
    groups.sort_unstable();
    for cred in shown {
        let mut rights = cred.rights.clone().expect("rights");
        rights.groups.sort_unstable();
        assert_eq!(rights.groups, groups);
        assert_eq!((rights.overrides_access, rights.gives_away), (uid.is_root(), uid.is_root()));
        assert_eq!(Credentials { rights: None, ..cred }, me);
    }
}

/// What a descriptor decides carries none, and nobody's calls neither.
#[test]
fn other_calls_are_as_they_were() {
    let told = Arc::new(Told::default());
    let service = vouching(told.clone());
    let me = Credentials { pid: std::process::id(), ..Credentials::default() };
    service.call(&me, Request::GetAttr { file: 2.into() }).unwrap();
    service.call(&Credentials::default(), lookup()).unwrap();
    assert_eq!(*told.0.lock().unwrap(), [me, Credentials::default()]);
}

/// A thread that asks with other credentials than its own has not its own groups and capabilities.
#[test]
fn other_credentials_are_not_the_threads() {
    let told = Arc::new(Told::default());
    let service = vouching(told.clone());
    let own = rustix::process::geteuid().as_raw();
    let (pid, uid) = (std::process::id(), own + 12345);
    service.call(&Credentials { uid, pid, ..Credentials::default() }, lookup()).unwrap();
    let rights = told.0.lock().unwrap()[0].rights.clone().expect("rights");
    assert_eq!(*rights, siftfs_proto::Rights::NONE);
}
