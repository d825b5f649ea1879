use super::*;

#[test]
fn a_process_is_known_again() {
    let own = Process::of(std::process::id()).unwrap();
    assert!(own.may_run());
    let later = Process { started: own.started + 1, ..own };
    assert!(!later.may_run(), "its number is another's");
    let before = Process { boot: [0; 16], ..own };
    assert!(!before.may_run(), "the machine was started anew");
    let elsewhere = Process { id: u32::MAX, namespace: own.namespace + 1, ..own };
    assert!(elsewhere.may_run(), "nothing can be told of another namespace");
}

#[test]
fn a_process_that_ended_is_gone() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    assert!(process.may_run());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!process.may_run());
    assert_eq!(Process::of(u32::MAX), Err(errno(libc::ESRCH)));
}

/// A name may hold brackets and spaces.
#[test]
fn the_start_is_found_behind_any_name() {
    let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 815 20";
    for name in ["sleep", "a b", ") S 1 2", "((("] {
        assert_eq!(started_of(&format!("42 ({name}) {rest}")), Some(815), "{name}");
    }
    for bad in
        ["", "42 (x", "42 (x) S 1", "42 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"]
    {
        assert_eq!(started_of(bad), None, "{bad}");
    }
}
