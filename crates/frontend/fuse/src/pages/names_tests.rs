use super::*;

const PID: u32 = 1;

fn thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

fn make(name: &[u8]) -> Operation<'_> {
    Operation::MakeNode { name, mode: 0o100_400, umask: 0, rdev: 0 }
}

/// Nothing but the making of this very name by this very thread is refused, and that while it is
/// called.
#[test]
fn the_thread_s_own_call_is_refused_and_no_other() {
    let asked = Asked::default();
    assert_eq!(asked.refusal(thread(), 5, &make(b"a")), None, "no call is under way");
    let (refusal, seen) = asked.during(5, Some(b"a"), || asked.refusal(thread(), 5, &make(b"a")));
    assert_eq!((refusal, seen), (Some(libc::EPERM), true));
    let ((), seen) = asked.during(5, Some(b"a"), || {
        assert_eq!(asked.refusal(PID, 5, &make(b"a")), None, "another thread");
        assert_eq!(asked.refusal(thread(), 6, &make(b"a")), None, "another directory");
        assert_eq!(asked.refusal(thread(), 5, &make(b"b")), None, "another name");
        assert_eq!(asked.refusal(thread(), 5, &Operation::Unlink { name: b"a" }), None);
    });
    assert!(!seen);
    let lookup = Operation::Lookup { name: b"a" };
    let (refusal, seen) = asked.during(5, Some(b"a"), || asked.refusal(thread(), 5, &lookup));
    assert_eq!((refusal, seen), (None, true), "it is carried out, and seen");
    let attributes = Operation::GetAttr { by_handle: false };
    let (refusal, seen) = asked.during(5, None, || asked.refusal(thread(), 5, &attributes));
    assert_eq!((refusal, seen), (None, true));
    assert_eq!(asked.refusal(thread(), 5, &make(b"a")), None, "the call is over");
}

#[test]
fn what_follows_is_called_once_all_is_over() {
    let (tell, told) = channel();
    let last = Arc::new(Last::new(Box::new(move || tell.send(()).unwrap())));
    let other = last.clone();
    drop(last);
    assert!(told.try_recv().is_err());
    drop(other);
    assert!(told.try_recv().is_ok());
}
