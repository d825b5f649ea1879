use super::*;
use crate::model::Model;
use crate::op::{Action, Op};
use siftfs_proto::compound::{
    Access, BytesArg, Compound, Compounded, FileArg, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::{Credentials, Level, ROOT_INO, Reply, Request, Rights};

/// Runs requests on the oracle; keeps the tree after each.
struct Run {
    oracle: Oracle,
    trees: Vec<Tree>,
}

impl Run {
    fn new() -> Self {
        let oracle = Oracle::new(Model::default());
        let trees = vec![oracle.model.tree()];
        Self { oracle, trees }
    }

    fn call(&mut self, req: Request) -> Reply {
        let id = u32::try_from(self.trees.len()).expect("few");
        let op = Op { id, action: Action::Call(Credentials::default(), req) };
        let reply = self.oracle.begin(&op).unwrap_or_else(|e| panic!("{op:?}: errno {e}"));
        self.oracle.returned(&op);
        self.trees.push(self.oracle.model.tree());
        reply
    }

    fn compound(&mut self, steps: Vec<Step>, level: Level) {
        let (base, rights, wanted) = (ROOT_INO, Rights::all(), Wanted::All);
        let compound = Compound { base, steps, level, rights, wanted };
        match self.call(Request::Compound(Box::new(compound))) {
            Reply::Compounded(Compounded::Done { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    /// The clauses that a tree violates.
    fn clauses(&self, tree: &Tree) -> Vec<String> {
        let mut ids = Ids::default();
        for (ino, _) in self.trees.iter().flat_map(|tree| &tree.nodes) {
            let seen = self.trees.iter().find_map(|t| t.nodes.get(ino)).expect("it is there");
            ids.learn(*ino, &seen.attr).expect("one number each");
        }
        let found = self.oracle.violations(tree, &ids);
        found.iter().map(|f| f.chars().take_while(|c| *c != ' ').collect()).collect()
    }
}

fn write(file: u32, data: &[u8]) -> Step {
    let (file, offset) = (FileArg::Step(StepNr(file)), NumberArg::Given(0));
    Step::Write { file, offset, data: BytesArg::Given(data.to_vec()) }
}

fn open(path: &str) -> Step {
    Step::Open { path: path.into(), access: Access::Both, truncate: false }
}

fn create(path: &str) -> Step {
    Step::Create { path: path.into(), perm: 0o644 }
}

/// Two files, durable, with eight bytes each.
fn prepared() -> Run {
    let mut run = Run::new();
    let both = vec![create("a"), create("b"), write(0, b"old of a"), write(1, b"old of b")];
    run.compound(both, Level::Durable);
    run
}

fn both(data: &[u8]) -> Vec<Step> {
    vec![open("a"), open("b"), write(0, data), write(1, data)]
}

/// The tree with the bytes that `other` has of one of its files.
fn mixed(tree: &Tree, other: &Tree, path: &str) -> Tree {
    let (mut out, ino) = (tree.clone(), tree.lookup(path).expect("it is there"));
    out.nodes.insert(ino, other.nodes[&ino].clone());
    out
}

#[test]
fn all_or_nothing_is_found_of_a_compound() {
    for level in [Level::Visible, Level::Atomic] {
        let mut run = prepared();
        run.compound(both(b"new"), level);
        let (old, new) = (&run.trees[1], &run.trees[2]);
        assert_eq!(run.clauses(old), [""; 0]);
        assert_eq!(run.clauses(new), [""; 0]);
        assert_eq!(run.clauses(&mixed(old, new, "a")), ["O12"]);
        assert_eq!(run.clauses(&mixed(new, old, "a")), ["O12"]);
    }
}

#[test]
fn a_durable_compound_is_owed() {
    let mut run = prepared();
    run.compound(both(b"new"), Level::Durable);
    assert_ne!(run.clauses(&run.trees[1]), [""; 0]);
    assert_eq!(run.clauses(&run.trees[2]), [""; 0]);
}

/// Bytes and names of one compound come together, too.
#[test]
fn names_belong_to_it() {
    let mut run = prepared();
    let unlink = Step::Unlink { path: b"b".to_vec() };
    run.compound(vec![open("a"), write(0, b"new"), unlink], Level::Visible);
    let (old, new) = (&run.trees[1], &run.trees[2]);
    assert_eq!(run.clauses(&mixed(new, old, "a")), ["O12"]);
    assert_eq!(run.clauses(&mixed(old, new, "a")), ["O12"]);
}

/// What comes after a compound is not found without it, be it durable or not.
#[test]
fn what_is_later_is_not_found_alone() {
    let mut run = prepared();
    run.compound(both(b"new"), Level::Visible);
    let Reply::Entry(_) =
        run.call(Request::MakeDir { parent: ROOT_INO, name: b"later".to_vec(), perm: 0o755 })
    else {
        panic!("no directory was made")
    };
    let alone = mixed(&mixed(&run.trees[3], &run.trees[1], "a"), &run.trees[1], "b");
    assert_eq!(run.clauses(&alone), ["O12"]);
    let later = run.trees[3].lookup("later").expect("it was made");
    run.call(Request::Fsync { file: later.into(), datasync: false });
    assert_eq!(run.clauses(&run.trees[3]), [""; 0]);
    assert_ne!(run.clauses(&run.trees[1]), [""; 0]);
    assert_eq!(run.clauses(&alone), ["O12"]);
}

/// A single change that is only visible promises what it does alone: bytes may come in part.
#[test]
fn a_single_visible_change_is_no_compound() {
    let mut run = prepared();
    run.compound(vec![open("a"), write(0, b"new of a")], Level::Visible);
    run.compound(vec![open("b"), write(0, b"new of b")], Level::Visible);
    let alone = mixed(&run.trees[3], &run.trees[1], "a");
    assert_eq!(run.clauses(&alone), [""; 0]);
}
