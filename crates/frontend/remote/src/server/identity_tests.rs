use super::*;
use siftfs_proto::Identity;

/// As over a channel without keys.
fn judge(peer: Option<Peer>, claim: Claim) -> Result<Opening> {
    super::judge(peer.map_or(Channel::Nobody, Channel::Process), claim, |_| true)
}

/// As over a connection whose key has this line's options.
fn keyed(options: &str, claim: Claim) -> Result<Opening> {
    let key = siftfs_keys::KeyPair::generate("somebody").unwrap();
    let line: AuthorizedLine = format!("{options} {}", key.line()).parse().unwrap();
    super::judge(Channel::Key(&line), claim, |name| name == "data")
}

fn user(uid: u32, gid: u32) -> Claim {
    Claim::User { uid, gid, rights: Rights::all() }
}

#[test]
fn a_channel_that_is_root_may_speak_for_anybody() {
    let root = Some(Peer { uid: 0, gid: 0, pid: 5 });
    assert_eq!(judge(root, Claim::Kernel).unwrap(), Opening::kernel());
    assert!(judge(root, Claim::Owner).unwrap().administrator);
    let some = judge(root, user(7, 8)).unwrap();
    assert!(!some.administrator);
    assert_eq!(some.identity, Identity::User { uid: 7, gid: 8, rights: Rights::all() });
}

/// Another user's process, and one that nobody vouches for, gets no capability and no other id.
#[test]
fn r31_another_channel_speaks_for_itself() {
    let peer = Some(Peer { uid: 65_533, gid: 65_533, pid: 5 });
    let none = Rights::default();
    for (peer, claim) in [(peer, user(65_533, 65_533)), (None, user(5, 6))] {
        let opening = judge(peer, claim).unwrap();
        let Identity::User { rights, .. } = opening.identity else { panic!("a kernel") };
        assert_eq!((rights, opening.administrator), (none.clone(), false));
        assert!(opening.limits.bytes <= BYTES && opening.limits.handles < u64::MAX);
    }
    for (peer, claim) in [
        (peer, user(65_533, 0)),
        (peer, user(0, 0)),
        (peer, user(65_532, 65_533)),
        (peer, Claim::Kernel),
        (peer, Claim::Owner),
        (None, user(0, 6)),
        (None, user(5, 0)),
        (None, Claim::Kernel),
        (None, Claim::Owner),
    ] {
        assert!(matches!(judge(peer, claim.clone()), Err(Error::Refused(_))), "{claim:?}");
    }
}

/// What a key's line does not say, no claim makes true.
#[test]
fn r52_a_key_speaks_for_those_of_its_line() {
    let claims = || [Claim::Kernel, Claim::Owner, user(0, 0), user(7, 8)];
    let admitted = |options: &str| claims().map(|claim| keyed(options, claim).ok());
    let [kernel, owner, root, some] = admitted("role=admin squash=none");
    assert!(kernel.clone().unwrap().administrator && owner.unwrap().administrator);
    assert_eq!(kernel.unwrap().identity, Identity::Kernel);
    assert!(root.unwrap().administrator && !some.clone().unwrap().administrator);
    let everything = Identity::User { uid: 7, gid: 8, rights: Rights::all() };
    assert_eq!(some.unwrap().identity, everything);

    let [kernel, owner, root, some] = admitted("role=client squash=none volumes=other,data");
    assert!(!kernel.unwrap().administrator && owner.is_none());
    assert!(!root.unwrap().administrator && some.is_some());

    let nobody = |opening: &Option<Opening>| {
        let anonymous = Identity::User { uid: 65_534, gid: 65_534, rights: Rights::default() };
        opening.as_ref().is_some_and(|o| o.identity == anonymous && !o.administrator)
    };
    // A kernel whose callers are checked, and which may not ask for more than files.
    let machine = |opening: &Option<Opening>| {
        let Some(Opening { identity, administrator, limits, .. }) = opening else { return false };
        *identity == Identity::Machine && !administrator && limits.bytes <= BYTES
    };
    for options in ["role=admin", "role=client", "role=client uids=100:1000:8 gids=100:1000:8"] {
        let [kernel, owner, root, _] = admitted(options);
        assert!(machine(&kernel) && owner.is_none() && nobody(&root), "{options}");
    }
    for options in ["subtree=/a", "uids=0:0:9", "gids=0:0:9", "squash=all"] {
        let [kernel, owner, ..] = admitted(
            &format!("role=admin squash=none {options}")
                .replace("squash=none squash=all", "squash=all"),
        );
        assert!(machine(&kernel) && owner.is_none(), "{options}");
    }
    let Identity::User { uid, gid, rights } =
        keyed("role=client uids=100:1000:8", user(103, 8)).unwrap().identity
    else {
        panic!("a kernel")
    };
    assert_eq!((uid, gid, rights), (1003, 8, Rights::default()));
    assert!(admitted("role=host").iter().all(Option::is_none));
    assert!(admitted("role=admin squash=none volumes=other").iter().all(Option::is_none));
}

/// Clients of one owner are nobody else's, whatever number they say.
#[test]
fn nobody_is_another_ones_client() {
    let own = rustix::process::geteuid().as_raw();
    let peer = |uid| Channel::Process(Peer { pid: 1, uid, gid: 1 });
    let lines = ["a", "b"].map(|name| {
        let pair = siftfs_keys::KeyPair::generate(name).unwrap();
        format!("role=client {}", pair.line()).parse::<AuthorizedLine>().unwrap()
    });
    let said = Returning { client: 7, instance: 0 };
    let number = |channel, claim: Claim| own_number(whose(channel, &claim).as_ref(), said).client;
    assert_eq!(number(peer(own), Claim::Owner), 7);
    assert_eq!(number(peer(0), user(5, 5)), 7, "root is believed");
    let mut numbers = vec![7, number(peer(65_533), user(65_533, 1))];
    numbers.push(number(Channel::Nobody, user(65_533, 1)));
    numbers.push(number(Channel::Nobody, user(65_532, 1)));
    for line in &lines {
        numbers.push(number(Channel::Key(line), Claim::Kernel));
        assert_eq!(numbers.last(), Some(&number(Channel::Key(line), user(5, 5))), "of the key");
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), count), (6, 6));
}
