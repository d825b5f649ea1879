use crate::lockstep::Ids;
use crate::model::{Model, Node};
use crate::op::{Action, Op};
use crate::oracle::Oracle;
use crate::tree::Tree;
use siftfs_base::InodeNr;
use siftfs_proto::{Credentials, ROOT_INO, Request, SectionId, WriteData};

/// Runs requests on the oracle; keeps the tree after each.
struct Run {
    oracle: Oracle,
    next: u32,
    trees: Vec<Tree>,
}

impl Run {
    fn new() -> Self {
        Self { oracle: Oracle::new(Model::default()), next: 0, trees: Vec::new() }
    }

    fn step(&mut self, req: Request, returns: bool) -> Op {
        let op = Op { id: self.next, action: Action::Call(Credentials::default(), req) };
        self.next += 1;
        self.oracle.begin(&op).unwrap_or_else(|e| panic!("{op:?}: errno {e}"));
        if returns {
            self.oracle.returned(&op);
        }
        self.trees.push(self.oracle.model().tree());
        op
    }

    /// A durable file of these bytes.
    fn file(&mut self, name: &str, data: &[u8]) -> InodeNr {
        let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
        let ino = self.step(create, true).fresh().ino;
        self.write(ino, data);
        self.step(Request::Fsync { file: ino.into(), datasync: false }, true);
        ino
    }

    fn write(&mut self, ino: InodeNr, data: &[u8]) {
        let data = WriteData::copy_of(0, data);
        let write = Request::write(ino, 0, data);
        self.step(write, true);
    }

    /// A section on `ino` with `data` at each of these places.
    fn section(&mut self, ino: InodeNr, places: &[u64], data: &[u8]) -> SectionId {
        let section =
            SectionId(self.step(Request::SectionStart { file: ino.into() }, true).fresh().handle);
        for offset in places {
            let data = WriteData::copy_of(*offset, data);
            self.step(Request::SectionWrite { section, offset: *offset, data }, true);
        }
        section
    }

    fn judge(&self, tree: &Tree) -> Vec<String> {
        let mut ids = Ids::default();
        for (ino, past) in &self.oracle.inodes {
            let attr = Node::new(past.kind, 0, 0, 0).attr(*ino);
            ids.learn(*ino, &attr).expect("numbers are unique");
        }
        self.oracle.violations(tree, &ids)
    }
}

/// `tree`, with one file as it is in `other`.
fn mixed(tree: &Tree, other: &Tree, ino: InodeNr) -> Tree {
    let mut tree = tree.clone();
    tree.nodes.insert(ino, other.nodes[&ino].clone());
    tree
}

/// Two files with old bytes, and sections of both: the tree before the commit and after it.
fn two_files(durable: bool, returns: bool) -> (Run, InodeNr, Tree, Tree) {
    let mut run = Run::new();
    let f = run.file("f", &[1; 9000]);
    let g = run.file("g", &[1; 9000]);
    let sections = vec![run.section(f, &[10, 5000], &[2; 30]), run.section(g, &[7], &[3; 30])];
    run.step(Request::SectionCommit { sections, durable, times: true }, returns);
    let [before, after] = [2, 1].map(|back| run.trees[run.trees.len() - back].clone());
    (run, g, before, after)
}

/// Before a commit has returned, both files or none; a durable one is owed.
#[test]
fn o11_all_or_nothing() {
    for (returns, durable) in [(false, true), (true, false), (true, true)] {
        let (run, g, before, after) = two_files(durable, returns);
        assert_eq!(run.judge(&before).is_empty(), !returns || !durable);
        assert_eq!(run.judge(&after), Vec::<String>::new());
        for half in [mixed(&before, &after, g), mixed(&after, &before, g)] {
            assert!(!run.judge(&half).is_empty(), "one of two files");
        }
    }
}

/// Of one file, all ranges.
#[test]
fn o11_every_range() {
    let mut run = Run::new();
    let f = run.file("f", &[1; 9000]);
    let section = run.section(f, &[10, 5000], &[2; 30]);
    run.step(Request::SectionCommit { sections: vec![section], durable: true, times: true }, false);
    let mut torn = run.trees[run.trees.len() - 2].clone();
    torn.nodes.get_mut(&f).expect("there").content.write(10, &[2; 30]);
    assert_eq!(run.judge(&torn).len(), 1, "{:?}", run.judge(&torn));
    torn.nodes.get_mut(&f).expect("there").content.write(5000, &[2; 30]);
    assert_eq!(run.judge(&torn), Vec::<String>::new());
}

/// What was changed later says nothing of the commit, and a later change that is durable owes it.
#[test]
fn o11_in_order() {
    let (mut run, g, before, after) = two_files(false, true);
    run.write(g, &[9; 100]);
    let mut overwritten = before.clone();
    overwritten.nodes.get_mut(&g).expect("there").content.write(0, &[9; 100]);
    assert!(run.judge(&overwritten).is_empty(), "nothing is owed");
    let before_sync = run.oracle.clone();
    run.step(Request::Fsync { file: g.into(), datasync: true }, true);
    assert!(!run.judge(&mixed(&overwritten, &before, g)).is_empty(), "g is owed");
    assert!(!run.judge(&overwritten).is_empty(), "f comes before it");
    run.oracle = before_sync;
    let op = Op { id: 99, action: Action::Commit { push: false } };
    run.oracle.begin(&op).expect("commits");
    run.oracle.returned(&op);
    assert!(!run.judge(&before).is_empty(), "it is below the transaction's cut");
    assert!(run.judge(&after).is_empty());
}

/// What was never committed is nowhere.
#[test]
fn o11_uncommitted_bytes_are_nowhere() {
    for abort in [false, true] {
        let mut run = Run::new();
        let f = run.file("f", &[1; 9000]);
        let section = run.section(f, &[10], &[2; 30]);
        if abort {
            run.step(Request::SectionAbort { section }, true);
        }
        let mut leaked = run.trees.last().expect("some").clone();
        assert!(run.judge(&leaked).is_empty());
        leaked.nodes.get_mut(&f).expect("there").content.write(20, &[2]);
        assert_eq!(run.judge(&leaked).len(), 1);
    }
}
