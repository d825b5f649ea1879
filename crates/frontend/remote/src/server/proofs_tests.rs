use super::*;
use siftfs_keys::AuthorizedLine;
use siftfs_proto::compound::{Compounded, Value};
use std::sync::Mutex;

/// A volume of which each inode has the generation 3, and that notes what is asked of it.
#[derive(Default)]
struct Volume(Mutex<Vec<Request>>);

impl FileService for Volume {
    fn call(&self, _: &Credentials, request: Request) -> Result<Reply> {
        self.0.lock().unwrap().push(request.clone());
        Ok(match request {
            Request::GetAttr { file: siftfs_proto::Target::Inode(ino) } => {
                Reply::Attr(attr(ino, 3))
            }
            Request::HoldMany { inodes } => {
                let gone = inodes.iter().filter(|held| held.generation != 3);
                Reply::Gone(gone.map(|held| held.ino).collect())
            }
            Request::Open { .. } | Request::OpenDir { .. } | Request::Hold { .. } => {
                Reply::Opened { handle: Handle(9) }
            }
            _ => Reply::Done,
        })
    }
}

fn attr(ino: InodeNr, generation: u32) -> Attr {
    let (kind, time) = (siftfs_proto::FileKind::Regular, siftfs_base::Timestamp::default());
    let (perm, nlink, uid, gid, rdev, size, blocks, held) = (0, 1, 0, 0, 0, 0, 0, false);
    let [atime, mtime, ctime, crtime] = [time; 4];
    Attr {
        ino,
        generation,
        kind,
        perm,
        nlink,
        uid,
        gid,
        rdev,
        size,
        blocks,
        atime,
        mtime,
        ctime,
        crtime,
        held,
    }
}

fn line(options: &str) -> AuthorizedLine {
    let pair = siftfs_keys::KeyPair::generate("client").unwrap();
    format!("{options} {}", pair.line()).parse().unwrap()
}

fn of_line(
    seals: &Arc<Seals>,
    served: [u8; 16],
    line: &AuthorizedLine,
    volume: &Arc<Volume>,
) -> Arc<Prover> {
    let whose = (*line.key.fingerprint().bytes(), &*line.subtree);
    Prover::new(seals.clone(), served, whose, Power::of(volume.clone()))
}

fn prover(volume: &Arc<Volume>, seals: &Arc<Seals>, line: &AuthorizedLine) -> Arc<Prover> {
    of_line(seals, [1; 16], line, volume)
}

fn shown(ino: InodeNr, generation: u32, grant: Grant, proof: Proof) -> Proven {
    Proven { ino, generation, grant, proof }
}

fn seals() -> Arc<Seals> {
    Arc::new(Seals::new().unwrap())
}

/// Each answer that grants something says so: by a code for each reference, and one for what is
/// open.
#[test]
fn what_an_answer_grants_is_proven() {
    let prover = prover(&Arc::default(), &seals(), &line("role=client"));
    let created = Reply::Created { attr: attr(12, 3), handle: Handle(1) };
    let [reference, open] = prover.of(&Request::StatFs, &created)[..] else { panic!("two") };
    assert!(prover.holds(&shown(12, 3, Grant::Reference, reference)));
    assert!(prover.holds(&shown(12, 3, Grant::Open(Access::Both), open)));
    let opens = [
        (Request::open(12, Access::Read), Grant::Open(Access::Read)),
        (Request::OpenDir { ino: 12 }, Grant::Directory),
        (Request::Hold { ino: 12 }, Grant::Held),
    ];
    for (request, grant) in opens {
        let proofs = prover.of(&request, &Reply::Opened { handle: Handle(1) });
        assert!(prover.holds(&shown(12, 3, grant, proofs[0])), "{grant:?}");
        assert!(!prover.holds(&shown(12, 3, Grant::Open(Access::Both), proofs[0])));
    }
    let entry = |name: &[u8], ino| siftfs_proto::DirEntry {
        ino,
        name: name.to_vec(),
        kind: siftfs_proto::FileKind::Regular,
        cookie: 0,
        attr: Some(attr(ino, ino)),
    };
    let entries = vec![entry(b".", 2), entry(b"a", 12), entry(b"..", 2), entry(b"b", 13)];
    let proofs = prover.of(&Request::StatFs, &Reply::Dir(entries));
    let referred = [12, 13].map(|ino| shown(ino, ino, Grant::Reference, proofs[ino as usize - 12]));
    assert!(proofs.len() == 2 && referred.iter().all(|shown| prover.holds(shown)));
    assert_eq!(prover.of(&Request::StatFs, &Reply::Done), [] as [Proof; 0]);
}

/// What a compound opens has a code as anything else that is open, in the order of the steps.
#[test]
fn what_a_compound_opens_is_proven() {
    let prover = prover(&Arc::default(), &seals(), &line("role=client"));
    let file = |ino, open: Option<(u64, Access)>| {
        let open = open.map(|(handle, access)| (Handle(handle), access));
        Value::File { ino, generation: 3, open }
    };
    let values =
        vec![file(12, Some((7, Access::Both))), file(13, None), file(14, Some((8, Access::Read)))];
    let (names, files, written) = Default::default();
    let reply = Reply::Compounded(Compounded::Done { values, names, files, written });
    let proofs = prover.of(&Request::StatFs, &reply);
    let [created, opened] = proofs[..] else { panic!("two") };
    assert!(prover.holds(&shown(12, 3, Grant::Open(Access::Both), created)));
    assert!(prover.holds(&shown(14, 3, Grant::Open(Access::Read), opened)));
}

/// A code is worth nothing for another inode, generation, grant, key, directory or volume.
#[test]
fn a_code_says_what_it_says() {
    let (volume, seals, own) = (Arc::default(), seals(), line("role=client subtree=/home"));
    let prover = prover(&volume, &seals, &own);
    let proof = prover.proof(12, 3, Grant::Reference);
    let good = shown(12, 3, Grant::Reference, proof);
    assert!(prover.holds(&good) && prover.knows(&[good], (12, 3)));
    assert!(!prover.knows(&[good], (13, 3)) && !prover.knows(&[good], (12, 4)));
    for other in [
        Proven { ino: 13, ..good },
        Proven { generation: 4, ..good },
        Proven { grant: Grant::Open(Access::Read), ..good },
        Proven { proof: [0; 16], ..good },
    ] {
        assert!(!prover.holds(&other) && !prover.knows(&[other], (other.ino, other.generation)));
    }
    let elsewhere = AuthorizedLine { subtree: "/".into(), ..own.clone() };
    for other in [
        of_line(&seals, [1; 16], &line("role=client subtree=/home"), &volume),
        of_line(&seals, [1; 16], &elsewhere, &volume),
        of_line(&seals, [2; 16], &own, &volume),
        of_line(&Arc::new(Seals::new().unwrap()), [1; 16], &own, &volume),
    ] {
        assert!(!other.holds(&good));
    }
    assert!(of_line(&seals, [1; 16], &own, &volume).holds(&good), "a later server");
}

/// What a client shows it gets; everything else is gone, or stale.
#[test]
fn only_what_is_shown_comes_back() {
    let volume: Arc<Volume> = Arc::default();
    let prover = prover(&volume, &seals(), &line("role=client"));
    let held = |ino, generation| Held { ino, generation, count: 2 };
    let of = |ino, generation| {
        let proof = prover.proof(ino, generation, Grant::Reference);
        shown(ino, generation, Grant::Reference, proof)
    };
    let forged = Proven { proof: [7; 16], ..of(14, 3) };
    let inodes = vec![held(12, 3), held(13, 3), held(14, 3), held(15, 4), held(16, 3)];
    let proofs = [of(12, 3), forged, of(15, 4), of(16, 3)];
    let refer = prover.reclaim(&Request::HoldMany { inodes }, &proofs);
    assert_eq!(refer, Some(Ok(Reply::Gone(vec![15, 13, 14]))));
    let asked = volume.0.lock().unwrap().clone();
    let inodes = vec![held(12, 3), held(15, 4), held(16, 3)];
    assert_eq!(asked, [Request::HoldMany { inodes }], "nothing else is looked at");
    let grant = Grant::Open(Access::Both);
    let opened = shown(12, 3, grant, prover.proof(12, 3, grant));
    let stale = Some(Err(errno(libc::ESTALE)));
    let open = Request::Open {
        ino: 12,
        access: Access::Both,
        truncate: true,
        kill_priv: false,
        beside_lease: false,
        times: true,
    };
    let said = prover.reclaim(&open, &[opened]);
    assert_eq!(said, Some(Ok(Reply::Opened { handle: Handle(9) })));
    let asked = volume.0.lock().unwrap().split_off(1);
    let held = Request::HoldMany { inodes: vec![Held { count: 1, ..held(12, 3) }] };
    let forget = Request::Forget { ino: 12, count: 1 };
    let expected = [held, Request::open(12, Access::Both), forget];
    assert_eq!(asked, expected, "nothing is cut off, and no reference stays");
    assert_eq!(prover.reclaim(&open, &[]), stale);
    assert_eq!(prover.reclaim(&open, &[of(12, 3)]), stale);
    assert_eq!(prover.reclaim(&Request::open(12, Access::Read), &[opened]), stale);
    let other = shown(12, 4, grant, prover.proof(12, 4, grant));
    assert_eq!(prover.reclaim(&open, &[other]), stale, "the number is another file's");
    assert_eq!(prover.reclaim(&Request::StatFs, &[]), None, "that needs no code");
}

/// For one repeated change a client may name what it shows, and no longer.
#[test]
fn what_is_lent_is_given_back() {
    let volume: Arc<Volume> = Arc::default();
    let prover = prover(&volume, &seals(), &line("role=client"));
    let grant = Grant::Open(Access::Write);
    let good = shown(12, 3, grant, prover.proof(12, 3, grant));
    let gone = shown(13, 4, grant, prover.proof(13, 4, grant));
    let forged = Proven { ino: 14, ..good };
    drop(prover.lend(&[good, gone, forged]));
    let held =
        |ino, generation| Request::HoldMany { inodes: vec![Held { ino, generation, count: 1 }] };
    let asked = volume.0.lock().unwrap().clone();
    let (release, open) =
        (Request::Release { handle: Handle(9) }, Request::open(12, Access::Write));
    // What is gone counts, too.
    let [one, other] = [12, 13].map(|ino| Request::Forget { ino, count: 1 });
    assert_eq!(asked, [held(12, 3), open, held(13, 4), release, one, other]);
}
