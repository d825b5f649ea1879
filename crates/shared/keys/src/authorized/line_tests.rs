use super::*;
use crate::ids::IdRange;
use crate::pair::KeyPair;
use proptest::prelude::*;

fn key() -> PublicKey {
    KeyPair::generate("").unwrap().public()
}

fn parse(text: &str) -> Result<AuthorizedLine, String> {
    text.parse()
}

#[test]
fn a_whole_line() {
    let key = key();
    let text = format!(
        "role=client  volumes=data,mail subtree=\"/a b\" uids=1000:5000:10 gids=*\tsquash=all \
         anon=99:98 {}",
        key.line("root@mail, \"the\" server")
    );
    let uids = IdMap::new(vec![IdRange { client: 1000, server: 5000, count: 10 }]).unwrap();
    let expected = AuthorizedLine {
        key,
        comment: "root@mail, \"the\" server".into(),
        role: Role::Client,
        volumes: Volumes::Named(vec!["data".into(), "mail".into()]),
        subtree: "/a b".into(),
        ids: Ids { uids, gids: IdMap::identity(), squash: Squash::All, anon: (99, 98) },
    };
    assert_eq!(parse(&text), Ok(expected));
}

/// What is not said is the careful thing.
#[test]
fn defaults() {
    let line = parse(&format!("role=admin {}", key().line(""))).unwrap();
    assert_eq!((line.volumes, &*line.subtree), (Volumes::All, "/"));
    assert_eq!((line.ids.squash, line.ids.anon), (Squash::Root, (NOBODY, NOBODY)));
    assert!(line.ids.uids.is_identity() && line.ids.gids.is_identity());
    let host = parse(&format!("volumes=a role=host {}", key().line(""))).unwrap();
    assert_eq!(host.ids, Ids::as_they_are());
}

#[test]
fn roles_are_apart() {
    use Use::{Administration as A, BlockProtocol as B, FileProtocol as F};
    let may = |role: Role| [B, F, A].map(|what| role.may(what));
    assert_eq!(may(Role::Host), [true, false, false]);
    assert_eq!(may(Role::Client), [false, true, false]);
    assert_eq!(may(Role::Admin), [false, true, true]);
}

#[test]
fn bad_lines_say_why() {
    let good = key().line("me");
    for (text, what) in [
        (format!("role=client rol=x {good}"), "unknown option `rol=x`; options are role="),
        (format!("role=client role=client {good}"), "role= stands twice"),
        (format!("role=client uids=* uids=* {good}"), "uids= stands twice"),
        (format!("role {good}"), "role= has no value"),
        (format!("role= {good}"), "role= has no value"),
        (good.clone(), "role= is missing"),
        (format!("volumes=a {good}"), "role= is missing"),
        (format!("role=root {good}"), "role=`root` is not"),
        ("role=client".into(), "it has no key"),
        ("role=client siftfs-ed25519".into(), "no key follows"),
        (format!("role=client {}", good.replace('=', "")), "not the Base64"),
        (format!("role=client ssh-ed25519 {}", key()), "unknown option `ssh-ed25519`"),
        (format!("role=client {good}\r"), "control character"),
        (format!("role=client\0 {good}"), "control character"),
        (format!("role=client subtree=\"/a {good}"), "a quote has no end"),
        (format!("role=client uids=0:1:2,1:9:1 {good}"), "uids=: id 1 of the client"),
        (format!("role=client gids=0:1:2,5:2:1 {good}"), "gids=: id 2 of the server"),
        (format!("role=host squash=none {good}"), "squash= means nothing for role=host"),
        (format!("role=host subtree=/ {good}"), "subtree= means nothing for role=host"),
        (format!("role=client anon=0:0 {good}"), "anon=0:0 has an id"),
        (format!("Role=client {good}"), "unknown option `Role=client`"),
        (format!("role=client \"siftfs-ed25519\" {}", key()), "is not siftfs-ed25519"),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.contains(what), "{text}: {said}");
    }
}

fn piece() -> impl Strategy<Value = String> {
    let words = OPTIONS.iter().map(|o| format!("{o}=")).chain(
        ["client", "host", "*", "0:0:1", ",", "\"", " ", "/a", "siftfs-ed25519", "root", "\\"]
            .map(String::from),
    );
    let key = Just(PublicKey::new([9; 32]).to_string());
    prop_oneof![prop::sample::select(words.collect::<Vec<_>>()), key, ".{0,3}"]
}

proptest! {
    /// Neither any text nor any row of what lines are made of causes a panic, and what is taken
    /// keeps the line's promises.
    #[test]
    fn any_text_is_taken_or_refused(any in ".{0,200}", pieces in prop::collection::vec(piece(), 0..14)) {
        for text in [any, pieces.concat(), pieces.join(" "), format!("role=client {}", pieces.join(" "))] {
            if let Ok(line) = parse(&text) {
                prop_assert!(line.subtree.starts_with('/'));
                prop_assert!(line.ids.anon.0 != 0 && line.ids.anon.1 != 0);
                prop_assert!(!line.comment.chars().any(char::is_control));
            }
        }
    }
}
