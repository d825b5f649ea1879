use super::*;
use crate::lockstep::Ids;
use crate::tree::Tree;
use siftfs_proto::{
    Credentials, Level, PublishEntry, PublishSource, ROOT_INO, RenameMode, Rights, SetAttr,
};

/// Runs requests on the oracle; keeps the tree after each.
struct Run {
    oracle: Oracle,
    next: u32,
    trees: Vec<Tree>,
}

impl Run {
    fn new() -> Self {
        let oracle = Oracle::new(Model::default());
        let trees = vec![oracle.model.tree()];
        Self { oracle, next: 0, trees }
    }

    /// Begins and, if `returns`, ends `req`; the number that it would create.
    fn step(&mut self, req: Request, returns: bool) -> InodeNr {
        let op = Op { id: self.next, action: Action::Call(Credentials::default(), req) };
        self.next += 1;
        self.oracle.begin(&op).unwrap_or_else(|e| panic!("{op:?}: errno {e}"));
        if returns {
            self.oracle.returned(&op);
        }
        self.trees.push(self.oracle.model.tree());
        op.fresh().ino
    }

    fn call(&mut self, req: Request) -> InodeNr {
        self.step(req, true)
    }

    fn create(&mut self, parent: InodeNr, name: &str) -> InodeNr {
        self.call(Request::Create { parent, name: name.into(), perm: 0o644 })
    }

    fn mkdir(&mut self, parent: InodeNr, name: &str) -> InodeNr {
        self.call(Request::MakeDir { parent, name: name.into(), perm: 0o755 })
    }

    fn write(&mut self, ino: InodeNr, offset: u64, data: &[u8]) {
        let data = siftfs_proto::WriteData::copy_of(offset, data);
        self.call(Request::write(ino, offset, data));
    }

    fn truncate(&mut self, ino: InodeNr, size: u64) {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.call(Request::SetAttr { file: ino.into(), set, times: true });
    }

    fn fsync(&mut self, ino: InodeNr) {
        self.call(Request::Fsync { file: ino.into(), datasync: false });
    }

    fn stage(&mut self, ino: InodeNr) {
        self.call(Request::Stage { file: ino.into(), datasync: false });
    }

    /// Waits for the ticket of the operation before.
    fn wait(&mut self) {
        let ticket = siftfs_proto::Ticket(u64::from(self.next));
        self.call(Request::Wait { ticket, timeout: None });
    }

    fn rename(&mut self, from: (InodeNr, &str), to: (InodeNr, &str)) {
        self.call(Request::Rename {
            parent: from.0,
            name: from.1.into(),
            new_parent: to.0,
            new_name: to.1.into(),
            mode: RenameMode::Replace,
        });
    }

    /// What the oracle says of `tree`.
    fn judge(&self, tree: &Tree) -> Vec<String> {
        let mut ids = Ids::default();
        for (ino, past) in &self.oracle.inodes {
            let attr = Node::new(past.kind, 0, 0, 0).attr(*ino);
            ids.learn(*ino, &attr).expect("numbers are unique");
        }
        self.oracle.violations(tree, &ids)
    }

    fn allowed(&self) -> Vec<bool> {
        self.trees.iter().map(|t| self.judge(t).is_empty()).collect()
    }
}

/// `dir` has another name in the root.
fn move_in_root(tree: &mut Tree, dir: InodeNr, from: &str, to: &str) {
    let root = &mut tree.nodes.get_mut(&ROOT_INO).expect("root").entries;
    let entry = root.remove(from.as_bytes()).expect("it is there");
    root.insert(to.into(), entry);
    let seen = tree.nodes.get_mut(&dir).expect("there");
    seen.names = [(ROOT_INO, to.into())].into();
}

/// Without any fsync every state is allowed; after one only those from its call on.
#[test]
fn o1_fsync_forbids_what_was_before() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.write(f, 0, b"one");
    assert_eq!(run.allowed(), [true, true, true]);
    run.fsync(f);
    assert_eq!(run.allowed(), [false, false, true, true]);
    run.write(f, 0, b"two");
    assert_eq!(run.allowed(), [false, false, true, true, true]);
    // An fsync under way promises nothing yet.
    run.step(Request::Fsync { file: f.into(), datasync: false }, false);
    assert_eq!(run.allowed(), [false, false, true, true, true, true]);
}

/// A ticket alone owes nothing. A wait owes its inode, one for a barrier all that were staged.
#[test]
fn o9_a_wait_forbids_what_was_before() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    let g = run.create(ROOT_INO, "g");
    run.write(f, 0, b"one");
    run.write(g, 0, b"one");
    run.stage(f);
    run.stage(g);
    assert_eq!(run.allowed(), [true; 7]);
    let before = run.oracle.clone();
    run.wait();
    assert_eq!(run.judge(&run.trees[3]).len(), 1, "g had no bytes yet");
    let mut mixed = run.trees[4].clone();
    mixed.nodes.insert(f, run.trees[2].nodes[&f].clone());
    assert_eq!(run.judge(&mixed), Vec::<String>::new(), "f was not waited for");
    run.oracle = before;
    run.trees.pop();
    run.call(Request::Barrier);
    run.wait();
    assert!(run.judge(&mixed).len() == 1, "f was staged before the barrier");
    assert_eq!(run.allowed(), [false, false, false, false, true, true, true, true, true]);
    run.write(f, 0, b"two");
    run.stage(f);
    run.write(g, 0, b"two");
    run.stage(g);
    run.wait();
    let g_is_old = |tree: &Tree| tree.nodes[&g].content.read(0, 9) == b"one";
    for (tree, allowed) in run.trees.iter().zip(run.allowed()) {
        assert!(!allowed || tree.nodes.contains_key(&g) && !g_is_old(tree), "the second is owed");
    }
    assert!(run.judge(run.trees.last().expect("many")).is_empty());
}

#[test]
fn o1_another_files_bytes_are_not_allowed() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.write(f, 0, &[1; 5000]);
    run.fsync(f);
    run.write(f, 4000, &[2; 1000]);
    let mut tree = run.trees[2].clone();
    let seen = tree.nodes.get_mut(&f).expect("there");
    seen.content.write(4500, &[2; 3]);
    assert!(run.judge(&tree).is_empty(), "part of an unsynced write");
    tree.nodes.get_mut(&f).expect("there").content.write(100, &[2]);
    assert_eq!(run.judge(&tree).len(), 1);
}

#[test]
fn o2_a_replaced_name_is_never_free() {
    let mut run = Run::new();
    let old = run.create(ROOT_INO, "g");
    run.fsync(old);
    let new = run.create(ROOT_INO, "t");
    run.fsync(new);
    run.rename((ROOT_INO, "t"), (ROOT_INO, "g"));
    assert_eq!(run.allowed(), [false, false, false, true, true, true]);
    let mut torn = run.trees[5].clone();
    torn.nodes.remove(&new);
    torn.nodes.get_mut(&ROOT_INO).expect("root").entries.clear();
    assert!(!run.judge(&torn).is_empty());
    // The old durable file keeps a name until the rename is known to have happened.
    let mut both = run.trees[4].clone();
    both.nodes.get_mut(&ROOT_INO).expect("root").entries.remove(b"t".as_slice());
    both.nodes.remove(&new);
    assert!(!run.judge(&both).is_empty());
}

/// `mv f g` unsynced, create f, fsync f: the old inode must be at g (rule R2).
#[test]
fn o2_a_displaced_file_is_not_lost() {
    let mut run = Run::new();
    let old = run.create(ROOT_INO, "f");
    run.fsync(old);
    run.rename((ROOT_INO, "f"), (ROOT_INO, "g"));
    let new = run.create(ROOT_INO, "f");
    run.fsync(new);
    assert_eq!(run.allowed().last(), Some(&true));
    let mut lost = run.trees[5].clone();
    lost.nodes.remove(&old);
    lost.nodes.get_mut(&ROOT_INO).expect("root").entries.remove(b"g".as_slice());
    assert!(!run.judge(&lost).is_empty());
}

#[test]
fn o3_ancestors_come_along() {
    let mut run = Run::new();
    let d = run.mkdir(ROOT_INO, "d");
    run.call(Request::Fsync { file: d.into(), datasync: false });
    run.rename((ROOT_INO, "d"), (ROOT_INO, "e"));
    let f = run.create(d, "f");
    run.fsync(f);
    assert_eq!(run.allowed(), [false, false, false, false, true, true]);
    // chmod of a directory above, then fsync of a file without a pending name (rule R17).
    let set = SetAttr { perm: Some(0o700), ..SetAttr::default() };
    run.call(Request::SetAttr { file: d.into(), set, times: true });
    run.write(f, 0, b"secret");
    run.fsync(f);
    assert_eq!(run.allowed()[4..], [false, false, false, true, true]);
}

/// Where commits are not reported, a name may be durable since it was made: with the moves before
/// that, without those after it.
#[test]
fn o3_a_name_may_be_durable_by_a_commit_that_nobody_reports() {
    let mut run = Run::new();
    run.oracle = run.oracle.with_unreported_commits();
    let d = run.mkdir(ROOT_INO, "d");
    run.call(Request::Fsync { file: d.into(), datasync: false });
    run.rename((ROOT_INO, "d"), (ROOT_INO, "e"));
    let f = run.create(d, "f");
    run.rename((ROOT_INO, "e"), (ROOT_INO, "g"));
    run.fsync(f);
    let under = |name: &str| {
        let mut tree = run.trees.last().expect("a tree").clone();
        move_in_root(&mut tree, d, "g", name);
        run.judge(&tree).is_empty()
    };
    assert_eq!(["d", "e", "g"].map(under), [false, true, true]);
}

/// S1: an fsync of a file whose own name is durable owes no move of a directory above it; an fsync
/// of that directory does.
#[test]
fn o3_a_move_above_a_durable_name_is_its_directorys() {
    let mut run = Run::new();
    let d = run.mkdir(ROOT_INO, "d");
    let f = run.create(d, "f");
    run.fsync(f);
    run.rename((ROOT_INO, "d"), (ROOT_INO, "e"));
    run.write(f, 0, b"new");
    run.fsync(f);
    let mut unmoved = run.trees.last().expect("a tree").clone();
    move_in_root(&mut unmoved, d, "e", "d");
    assert_eq!(run.judge(&unmoved), Vec::<String>::new());
    let mut old_bytes = unmoved.clone();
    old_bytes.nodes.get_mut(&f).expect("there").content.resize(0);
    assert!(!run.judge(&old_bytes).is_empty(), "the data is owed, under either path");
    run.call(Request::Fsync { file: d.into(), datasync: false });
    assert!(!run.judge(&unmoved).is_empty(), "owed now");
}

#[test]
fn o4_fsync_of_a_directory_fixes_its_entries_not_their_bytes() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.write(f, 0, b"bytes");
    run.fsync(ROOT_INO);
    assert_eq!(run.allowed(), [false, true, true, true]);
}

#[test]
fn o5_a_size_does_not_run_ahead_of_its_data() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.fsync(f);
    run.write(f, 0, &[9; 100]);
    let mut ahead = run.trees[2].clone();
    let seen = ahead.nodes.get_mut(&f).expect("there");
    seen.attr.size = 100;
    seen.content.resize(100);
    assert!(!run.judge(&ahead).is_empty());
    run.truncate(f, 300);
    let seen = ahead.nodes.get_mut(&f).expect("there");
    seen.attr.size = 300;
    seen.content.resize(300);
    assert!(run.judge(&ahead).is_empty(), "an explicit extension may come first");
}

#[test]
fn o5_truncation_does_not_bring_old_bytes_back() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.write(f, 0, &[9; 10_000]);
    run.fsync(f);
    run.truncate(f, 0);
    run.write(f, 5000, &[8; 100]);
    run.fsync(f);
    let mut old = run.trees.last().expect("some").clone();
    let seen = old.nodes.get_mut(&f).expect("there");
    seen.content.write(10, &[9]);
    assert!(!run.judge(&old).is_empty());
}

#[test]
fn o6_a_replacing_rename_comes_with_its_data() {
    let mut run = Run::new();
    let old = run.create(ROOT_INO, "g");
    run.fsync(old);
    let new = run.create(ROOT_INO, "t");
    run.write(new, 0, b"data");
    run.rename((ROOT_INO, "t"), (ROOT_INO, "g"));
    let mut empty = run.trees[5].clone();
    let seen = empty.nodes.get_mut(&new).expect("there");
    seen.attr.size = 0;
    seen.content = Content::default();
    assert_eq!(run.judge(&run.trees[5]), Vec::<String>::new());
    assert_eq!(run.judge(&empty).len(), 1);
}

#[test]
fn o7_a_commit_fixes_names() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.write(f, 0, b"data");
    for (push, allowed) in [(false, [false, true, true]), (true, [false, false, true])] {
        let op = Op { id: 100, action: Action::Commit { push } };
        run.oracle.begin(&op).expect("commits");
        run.oracle.returned(&op);
        assert_eq!(run.allowed()[..3], allowed);
    }
}

#[test]
fn o8_removed_files_stay_removed() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f");
    run.fsync(f);
    run.call(Request::Unlink { parent: ROOT_INO, name: "f".into() });
    // The first tree has no file either.
    assert_eq!(run.allowed(), [true; 4]);
    run.fsync(ROOT_INO);
    assert_eq!(run.allowed(), [true, false, false, true, true]);
}

/// Renames done one by one may come back in part, a publish of the same names not.
#[test]
fn o9_names_of_a_publish_come_back_together() {
    let named = |from: &str, to: &str| PublishEntry {
        source: PublishSource::Path(from.into()),
        to: to.into(),
        replace: true,
    };
    let prepared = || {
        let mut run = Run::new();
        let (a, b) = (run.create(ROOT_INO, "a.tmp"), run.create(ROOT_INO, "b.tmp"));
        run.fsync(a);
        run.fsync(b);
        (run, a, b)
    };
    let (mut run, a, _) = prepared();
    let mut half = run.oracle.model().tree();
    move_in_root(&mut half, a, "a.tmp", "a");
    run.rename((ROOT_INO, "a.tmp"), (ROOT_INO, "a"));
    run.rename((ROOT_INO, "b.tmp"), (ROOT_INO, "b"));
    assert_eq!(run.judge(&half), Vec::<String>::new());

    let (mut run, a, b) = prepared();
    let before = run.oracle.model().tree();
    let mut halves = [before.clone(), before.clone()];
    move_in_root(&mut halves[0], a, "a.tmp", "a");
    move_in_root(&mut halves[1], b, "b.tmp", "b");
    let entries = vec![named("a.tmp", "a"), named("b.tmp", "b")];
    let (base, level, rights) = (ROOT_INO, Level::Visible, Rights::all());
    run.call(Request::Publish { base, entries, level, rights });
    for half in &halves {
        let found = run.judge(half);
        assert!(found.iter().any(|v| v.starts_with("O9")), "{found:?}");
    }
    let after = run.oracle.model().tree();
    assert_eq!((run.judge(&before), run.judge(&after)), (vec![], vec![]));
    run.rename((ROOT_INO, "b"), (ROOT_INO, "c"));
    assert!(!run.judge(&halves[0]).is_empty(), "b.tmp is still there, and a is new");
    assert_eq!(run.judge(&run.oracle.model().tree()), Vec::<String>::new());
}

/// After a durable publish there is nothing else any more, and each file has the bytes it had then.
#[test]
fn o1_a_durable_publish_is_an_fsync_of_its_files() {
    let mut run = Run::new();
    let f = run.create(ROOT_INO, "f.tmp");
    run.write(f, 0, b"one");
    let source = PublishSource::Path(b"f.tmp".to_vec());
    let entries = vec![PublishEntry { source, to: b"f".to_vec(), replace: false }];
    let (base, level, rights) = (ROOT_INO, Level::Durable, Rights::all());
    run.call(Request::Publish { base, entries, level, rights });
    assert_eq!(run.allowed(), [false, false, false, true]);
}
