//! Does a service's answer mean what the model's means?

use crate::content::Content;
use crate::model::{Model, Node, Outcome};
use crate::tree::{Seen, Tree, node_differences};
use siftfs_base::{Error, InodeNr};
use siftfs_proto::{Attr, FileKind, Reply, Seek};
use std::collections::BTreeMap;

/// Why `found` is not what `node` predicts, numbers and unknown times aside.
pub fn attr_difference(node: &Node, found: &Attr) -> Option<String> {
    let want = node.attr(found.ino);
    let brief = |a: &Attr| {
        let size = if a.kind == FileKind::Directory { 0 } else { a.size };
        (a.kind, a.perm, a.nlink, a.uid, a.gid, a.rdev, size)
    };
    if brief(&want) != brief(found) {
        let head = "kind, perm, nlink, uid, gid, rdev, size";
        return Some(format!("{head}: expected {:?}, found {:?}", brief(&want), brief(found)));
    }
    for (what, want, found) in
        [("mtime", node.mtime, found.mtime), ("atime", node.atime, found.atime)]
    {
        if want.is_some_and(|t| t != found) {
            return Some(format!("{what}: expected {want:?}, found {found:?}"));
        }
    }
    None
}

/// SEEK_DATA and SEEK_HOLE may take zeros for data, never data for a hole, and land in the file.
pub fn seek_is_sane(
    content: &Content,
    offset: u64,
    whence: Seek,
    found: &Result<Reply, Error>,
) -> Result<(), String> {
    let size = content.size();
    match (whence, found) {
        (_, Err(Error::Posix(libc::ENXIO))) if offset >= size => Ok(()),
        (Seek::Data, Err(Error::Posix(libc::ENXIO))) if content.is_zero(offset, size) => Ok(()),
        (Seek::Data, Ok(Reply::Offset(at))) if offset < size => {
            if *at < offset || *at >= size || !content.is_zero(offset, *at) {
                return Err(format!("SEEK_DATA from {offset} jumped over data to {at}"));
            }
            Ok(())
        }
        (Seek::Hole, Ok(Reply::Offset(at))) if offset < size => {
            let in_file = *at >= offset && *at <= size;
            let page_end = (at / 4096 + 1) * 4096;
            if !in_file || (*at < size && !content.is_zero(*at, page_end.min(size))) {
                return Err(format!("SEEK_HOLE from {offset} found no hole at {at}"));
            }
            Ok(())
        }
        _ => Err(format!("seek {whence:?} from {offset} in {size} bytes: {found:?}")),
    }
}

/// Where data differ: their lengths, the first byte that is another, and how many are.
fn data_difference(want: &Outcome, found: &Result<Reply, Error>) -> Option<String> {
    let Ok(Reply::Data(want)) = want else { return None };
    let found = match found {
        Ok(Reply::Data(data)) => data.clone(),
        Ok(Reply::Blocks(blocks)) => blocks.to_vec(),
        _ => return None,
    };
    let lengths = match (want.len(), found.len()) {
        (a, b) if a == b => String::new(),
        (a, b) => format!("{a} bytes expected, {b} found; "),
    };
    let places = want.iter().zip(&found).enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i);
    let unlike: Vec<usize> = places.collect();
    let (Some(&first), Some(last)) = (unlike.first(), unlike.last()) else {
        return Some(format!("{lengths}as far as both go, they are the same"));
    };
    let few = |bytes: &[u8]| bytes.iter().skip(first).take(24).copied().collect::<Vec<_>>();
    Some(format!(
        "{lengths}{} bytes differ from byte {first} of the answer to {last}: expected {:?}..., found {:?}...",
        unlike.len(),
        few(want),
        few(&found)
    ))
}

/// Compares results that are not entries or seeks: errnos, data, lengths, names.
pub fn plain_difference(want: &Outcome, found: &Result<Reply, Error>) -> Option<String> {
    let same = match (want, found) {
        (Err(a), Err(b)) => *a == b.errno() && matches!(b, Error::Posix(_)),
        (Ok(Reply::Names(a)), Ok(Reply::Names(b))) => {
            let sorted = |v: &[Vec<u8>]| {
                let mut v = v.to_vec();
                v.sort();
                v
            };
            sorted(a) == sorted(b)
        }
        (Ok(Reply::Statfs(_)), Ok(Reply::Statfs(s))) => {
            s.free <= s.blocks && s.available <= s.free && s.files_free <= s.files
        }
        (Ok(Reply::Data(a)), Ok(Reply::Blocks(b))) => *a == b.to_vec(),
        (Ok(Reply::Checkpoint(_)), Ok(Reply::Checkpoint(_))) => true,
        // How much is free, and whether the storage can give it back, the model does not know.
        (Ok(Reply::Trimmed(_)), Ok(Reply::Trimmed(_)) | Err(Error::Posix(libc::EOPNOTSUPP))) => {
            true
        }
        (Ok(Reply::Status(_)), Ok(Reply::Status(_))) => true,
        (Ok(Reply::Opened { .. }), Ok(Reply::Opened { .. })) => true,
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    if same {
        return None;
    }
    if let Some(where_) = data_difference(want, found) {
        return Some(where_);
    }
    let brief = |r: &dyn std::fmt::Debug| format!("{r:?}").chars().take(160).collect::<String>();
    let want = want.as_ref().map_err(|e| std::io::Error::from_raw_os_error(*e));
    Some(format!("expected {}, found {}", brief(&want), brief(found)))
}

impl Model {
    /// The model's tree, with its own numbers.
    pub fn tree(&self) -> Tree {
        let mut nodes = BTreeMap::new();
        for (ino, node) in self.nodes() {
            if node.nlink == 0 {
                continue;
            }
            nodes.insert(
                ino,
                Seen {
                    attr: node.attr(ino),
                    content: node.content.clone(),
                    target: node.target.clone(),
                    xattrs: node.xattrs.clone(),
                    entries: node.entries.clone(),
                    names: self.names_of(ino),
                },
            );
        }
        Tree { nodes }
    }

    /// Starts from a tree that is already there (what mkfs made).
    pub fn adopt(tree: &Tree) -> Self {
        let mut model = Model::default();
        for (ino, seen) in &tree.nodes {
            let a = &seen.attr;
            let mut node = Node::new(a.kind, a.perm, a.uid, a.gid);
            node.rdev = a.rdev;
            node.nlink = a.nlink;
            node.content = seen.content.clone();
            node.target = seen.target.clone();
            node.xattrs = seen.xattrs.clone();
            node.entries = seen.entries.clone();
            if node.is_dir() {
                node.parent = seen.names.first().map_or(*ino, |(dir, _)| *dir);
            }
            model.nodes.insert(*ino, node);
        }
        model
    }

    /// Access times are unknown from here on (something read files behind the model's back).
    pub fn forget_access_times(&mut self) {
        self.nodes.values_mut().for_each(|n| n.atime = None);
    }

    /// All differences to `found`, whose numbers `number` translates into the model's; times
    /// that the model knows included.
    pub fn tree_differences(
        &self,
        found: &Tree,
        number: &dyn Fn(&Seen) -> Option<InodeNr>,
    ) -> Vec<String> {
        let own = self.tree();
        let mut out = crate::tree::differences(&own, found, false);
        for (ino, seen) in &found.nodes {
            let path = found.path(*ino);
            match number(seen).and_then(|n| self.node(n).map(|node| (n, node))) {
                Some((n, node)) => {
                    if let Some(own) = own.nodes.get(&n) {
                        out.extend(
                            node_differences(own, seen).iter().map(|d| format!("{path}: {d}")),
                        );
                    }
                    if node.mtime.is_some_and(|t| t != seen.attr.mtime) {
                        out.push(format!(
                            "{path}: mtime {:?}, not {:?}",
                            seen.attr.mtime, node.mtime
                        ));
                    }
                }
                None => out.push(format!("{path}: inode {ino} is not known")),
            }
        }
        out
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
