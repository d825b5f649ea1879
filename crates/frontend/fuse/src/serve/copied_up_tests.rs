use super::*;
use siftfs_base::Timestamp;

fn by(pid: u32) -> Credentials {
    Credentials { pid, ..Credentials::default() }
}

fn owner() -> SetAttr {
    SetAttr { uid: Some(1), gid: Some(2), kill_priv: true, ..SetAttr::default() }
}

#[test]
fn a_mode_and_then_the_owner() {
    let all = CopiedUp::default();
    assert!(!all.gets_owner(&by(7), 20, &owner()), "no mode before");
    all.note_mode(&by(7), 20);
    assert!(!all.gets_owner(&by(8), 20, &owner()), "another thread");
    assert!(!all.gets_owner(&by(7), 21, &owner()), "another file");
    assert!(all.gets_owner(&by(7), 20, &owner()));
    assert!(!all.gets_owner(&by(7), 20, &owner()), "once");
}

#[test]
fn what_chown_sends() {
    let all = CopiedUp::default();
    all.note_mode(&by(7), 20);
    all.note_question(&by(7), CAPABILITY);
    assert!(!all.gets_owner(&by(7), 20, &owner()), "it has asked for capabilities");
    let none = SetAttr::default();
    for other in [
        SetAttr { gid: None, ..owner() },
        SetAttr { uid: None, ..owner() },
        SetAttr { ctime: Some(Timestamp::default()), ..owner() },
        SetAttr { perm: Some(0o755), ..owner() },
    ] {
        all.note_mode(&by(7), 20);
        assert!(!all.gets_owner(&by(7), 20, &other), "{other:?}");
        assert!(!all.gets_owner(&by(7), 20, &owner()), "after {other:?}");
    }
    all.note_mode(&by(7), 20);
    assert!(!all.gets_owner(&by(7), 20, &none));
    assert!(all.gets_owner(&by(7), 20, &owner()), "times may come in between");
}

/// A thread without a number, and one whose place another took, have done a chown(2).
#[test]
fn what_is_not_known_is_a_chown() {
    let all = CopiedUp::default();
    all.note_mode(&by(0), 20);
    assert!(!all.gets_owner(&by(0), 20, &owner()));
    let same_place = 7 + u32::try_from(PLACES).unwrap();
    all.note_mode(&by(7), 20);
    all.note_question(&by(same_place), CAPABILITY);
    assert!(all.gets_owner(&by(7), 20, &owner()), "another's question");
    all.note_mode(&by(7), 20);
    all.note_mode(&by(same_place), 20);
    assert!(!all.gets_owner(&by(7), 20, &owner()));
    assert!(all.gets_owner(&by(same_place), 20, &owner()));
}
