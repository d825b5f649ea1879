//! A whole tree as a file service shows it, and how two of them differ.

use crate::content::Content;
use siftfs_base::{Error, InodeNr};
use siftfs_proto::{
    Attr, Credentials, DirEntry, FileKind, FileService, ROOT_INO, Reply, Request, Seek,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Files up to this size are read whole; of larger ones what SEEK_DATA finds.
const READ_WHOLE: u64 = 4 << 20;
/// Bytes per read.
const CHUNK: u32 = 1 << 20;
/// More entries than any test makes: a directory that goes on longer is a loop.
const MAX_ENTRIES: usize = 1_000_000;

/// One inode as programs see it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Attributes.
    pub attr: Attr,
    /// Bytes of a regular file.
    pub content: Content,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of a directory, without `.` and `..`.
    pub entries: BTreeMap<Vec<u8>, InodeNr>,
    /// Names that lead here.
    pub names: Vec<(InodeNr, Vec<u8>)>,
}

/// Every inode that can be reached from the root.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// By number.
    pub nodes: BTreeMap<InodeNr, Seen>,
}

impl Tree {
    /// Number behind an absolute path.
    pub fn lookup(&self, path: &str) -> Option<InodeNr> {
        path.split('/').filter(|p| !p.is_empty()).try_fold(ROOT_INO, |at, name| {
            self.nodes.get(&at)?.entries.get(name.as_bytes()).copied()
        })
    }

    /// The inode behind an absolute path.
    pub fn get(&self, path: &str) -> Option<&Seen> {
        self.nodes.get(&self.lookup(path)?)
    }

    /// A path of `ino`, for messages.
    pub fn path(&self, ino: InodeNr) -> String {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT_INO && parts.len() < 64 {
            let Some((dir, name)) = self.nodes.get(&at).and_then(|n| n.names.first()) else {
                break;
            };
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *dir;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }
}

/// Sends requests of one session and unpacks replies.
pub struct Caller<'a> {
    /// The endpoint.
    pub service: &'a dyn FileService,
    /// On whose behalf.
    pub cred: Credentials,
}

fn odd(what: &str, reply: &Reply) -> Error {
    siftfs_base::corrupt(what, format!("unexpected reply {reply:?}"))
}

impl<'a> Caller<'a> {
    /// Requests as root.
    pub fn root(service: &'a dyn FileService) -> Self {
        Self { service, cred: Credentials::default() }
    }

    /// One request.
    pub fn call(&self, req: Request) -> Result<Reply, Error> {
        self.service.call(&self.cred, req)
    }

    /// Attributes of `ino`.
    pub fn attr(&self, ino: InodeNr) -> Result<Attr, Error> {
        match self.call(Request::GetAttr { file: ino.into() })? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(odd("getattr", &other)),
        }
    }

    /// `len` bytes at `offset`.
    pub fn read(&self, ino: InodeNr, offset: u64, len: u32) -> Result<Vec<u8>, Error> {
        match self.call(Request::Read { file: ino.into(), offset, len })? {
            Reply::Data(data) => Ok(data),
            Reply::Blocks(blocks) => Ok(blocks.to_vec()),
            other => Err(odd("read", &other)),
        }
    }

    /// Offset that `whence` finds from `offset`; `None` behind the last.
    pub fn seek(&self, ino: InodeNr, offset: u64, whence: Seek) -> Result<Option<u64>, Error> {
        match self.call(Request::Seek { file: ino.into(), offset, whence }) {
            Ok(Reply::Offset(at)) => Ok(Some(at)),
            Ok(other) => Err(odd("seek", &other)),
            Err(Error::Posix(libc::ENXIO)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Entries of a directory, `.` and `..` included.
    pub fn read_dir(&self, ino: InodeNr) -> Result<Vec<DirEntry>, Error> {
        let Reply::Opened { handle } = self.call(Request::OpenDir { ino })? else {
            return Err(siftfs_base::corrupt("opendir", "no handle"));
        };
        let mut out: Vec<DirEntry> = Vec::new();
        loop {
            let cookie = out.last().map_or(0, |e| e.cookie);
            let req = Request::ReadDir { handle, cookie, max_bytes: 4096, plus: false };
            match self.call(req)? {
                Reply::Dir(list) if list.is_empty() => break,
                Reply::Dir(list) => out.extend(list),
                other => return Err(odd("readdir", &other)),
            }
            if out.len() > MAX_ENTRIES {
                return Err(siftfs_base::corrupt("readdir", "the directory never ends"));
            }
        }
        self.call(Request::Release { handle })?;
        Ok(out)
    }

    fn xattrs(&self, ino: InodeNr) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let names = match self.call(Request::ListXattr { file: ino.into() })? {
            Reply::Names(names) => names,
            other => return Err(odd("listxattr", &other)),
        };
        let mut out = BTreeMap::new();
        for name in names {
            match self.call(Request::GetXattr { file: ino.into(), name: name.clone() })? {
                Reply::Data(value) => out.insert(name, value),
                other => return Err(odd("getxattr", &other)),
            };
        }
        Ok(out)
    }

    /// All bytes of a regular file of `size` bytes.
    pub fn content(&self, ino: InodeNr, size: u64) -> Result<Content, Error> {
        let mut content = Content::default();
        let mut at = 0;
        while at < size {
            let mut end = size;
            if size > READ_WHOLE {
                let Some(data) = self.seek(ino, at, Seek::Data)? else { break };
                at = data;
                end = self.seek(ino, at, Seek::Hole)?.unwrap_or(size);
            }
            while at < end {
                let len = u32::try_from((end - at).min(u64::from(CHUNK))).unwrap_or(CHUNK);
                let data = self.read(ino, at, len)?;
                if data.len() != len as usize {
                    let detail = format!("{} of {len} bytes at {at}, size {size}", data.len());
                    return Err(siftfs_base::corrupt(format!("short read of inode {ino}"), detail));
                }
                content.write(at, &data);
                at += u64::from(len);
            }
        }
        content.resize(size);
        Ok(content)
    }

    /// One inode with everything in it.
    fn look(&self, ino: InodeNr) -> Result<Seen, Error> {
        let attr = self.attr(ino)?;
        let (mut content, mut target) = (Content::default(), Vec::new());
        match attr.kind {
            FileKind::Regular => content = self.content(ino, attr.size)?,
            FileKind::Symlink => match self.call(Request::ReadLink { ino })? {
                Reply::Data(data) => target = data,
                other => return Err(odd("readlink", &other)),
            },
            _ => {}
        }
        let xattrs = self.xattrs(ino)?;
        Ok(Seen { attr, content, target, xattrs, entries: BTreeMap::new(), names: Vec::new() })
    }

    /// Walks everything under the root. Directories are read by entry and every entry is found by a
    /// lookup, too, so that both ways to find a name have to agree.
    pub fn walk(&self) -> Result<Tree, Error> {
        let mut tree = Tree::default();
        tree.nodes.insert(ROOT_INO, self.look(ROOT_INO)?);
        let mut queue = vec![(ROOT_INO, ROOT_INO)];
        while let Some((dir, parent)) = queue.pop() {
            for entry in self.read_dir(dir)? {
                match entry.name.as_slice() {
                    b"." => check_dot(dir, ".", entry.ino, dir)?,
                    b".." => check_dot(dir, "..", entry.ino, parent)?,
                    _ => {
                        if self.visit(&mut tree, dir, &entry)? {
                            queue.push((entry.ino, dir));
                        }
                    }
                }
            }
        }
        check_links(&tree)?;
        Ok(tree)
    }

    /// Enters one name; true if it leads to a directory.
    fn visit(&self, tree: &mut Tree, dir: InodeNr, entry: &DirEntry) -> Result<bool, Error> {
        let name = entry.name.clone();
        let shown = String::from_utf8_lossy(&name).into_owned();
        let attr = match self.call(Request::Lookup { parent: dir, name: name.clone() })? {
            Reply::Entry(attr) => attr,
            other => return Err(odd("lookup", &other)),
        };
        if attr.ino != entry.ino || attr.kind != entry.kind {
            let detail = format!("readdir {} {:?}, lookup {attr:?}", entry.ino, entry.kind);
            return Err(siftfs_base::corrupt(format!("entry {shown} of {dir}"), detail));
        }
        if let Entry::Vacant(slot) = tree.nodes.entry(entry.ino) {
            slot.insert(self.look(entry.ino)?);
        } else if attr.kind == FileKind::Directory {
            return Err(siftfs_base::corrupt(format!("directory {}", entry.ino), "has two names"));
        }
        self.call(Request::Forget { ino: entry.ino, count: 1 })?;
        if let Some(node) = tree.nodes.get_mut(&entry.ino) {
            node.names.push((dir, name.clone()));
        }
        let entries = tree.nodes.get_mut(&dir).map(|n| &mut n.entries);
        if entries.is_none_or(|e| e.insert(name, entry.ino).is_some()) {
            return Err(siftfs_base::corrupt(format!("directory {dir}"), format!("{shown} twice")));
        }
        Ok(attr.kind == FileKind::Directory)
    }
}

fn check_dot(dir: InodeNr, name: &str, found: InodeNr, want: InodeNr) -> Result<(), Error> {
    if found == want {
        return Ok(());
    }
    Err(siftfs_base::corrupt(format!("{name} of {dir}"), format!("is {found}, not {want}")))
}

/// Link counts are the number of names.
fn check_links(tree: &Tree) -> Result<(), Error> {
    for (ino, node) in &tree.nodes {
        let subdirs = node
            .entries
            .values()
            .filter(|i| tree.nodes.get(i).is_some_and(|n| n.attr.kind == FileKind::Directory))
            .count();
        let want = match node.attr.kind {
            FileKind::Directory => subdirs + 2,
            _ => node.names.len(),
        };
        if node.attr.nlink as usize != want {
            let detail = format!("nlink {} with {want} links", node.attr.nlink);
            let what = format!("inode {ino} ({})", tree.path(*ino));
            return Err(siftfs_base::corrupt(what, detail));
        }
    }
    Ok(())
}

/// All differences between two trees that claim to be the same, by path; `exact` compares inode
/// numbers and modification times, too.
pub fn differences(a: &Tree, b: &Tree, exact: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut queue = vec![(ROOT_INO, ROOT_INO, String::new())];
    while let Some((ia, ib, path)) = queue.pop() {
        let (Some(na), Some(nb)) = (a.nodes.get(&ia), b.nodes.get(&ib)) else { continue };
        for detail in node_differences(na, nb) {
            out.push(format!("{path}/: {detail}"));
        }
        if exact && (ia, na.attr.mtime) != (ib, nb.attr.mtime) {
            out.push(format!("{path}/: inode {ia} and {ib}, or mtime"));
        }
        let mut names: Vec<_> = na.entries.keys().chain(nb.entries.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let below = format!("{path}/{}", String::from_utf8_lossy(name));
            match (na.entries.get(name), nb.entries.get(name)) {
                (Some(x), Some(y)) => queue.push((*x, *y, below)),
                (Some(_), None) => out.push(format!("{below}: only in the first")),
                _ => out.push(format!("{below}: only in the second")),
            }
        }
    }
    out
}

/// Differences of one inode but for numbers and times.
pub fn node_differences(a: &Seen, b: &Seen) -> Vec<String> {
    let mut out = Vec::new();
    let brief = |s: &Seen| {
        let t = &s.attr;
        let size = if t.kind == FileKind::Directory { 0 } else { t.size };
        (t.kind, t.perm, t.nlink, t.uid, t.gid, t.rdev, size)
    };
    if brief(a) != brief(b) {
        let head = "kind, perm, nlink, uid, gid, rdev, size";
        out.push(format!("{head}: {:?} and {:?}", brief(a), brief(b)));
    }
    if let Some(at) = a.content.first_difference(&b.content) {
        let (x, y) = (a.content.byte(at), b.content.byte(at));
        out.push(format!("bytes differ from {at}: {x:#x} and {y:#x}"));
    }
    if a.target != b.target {
        out.push("link target".into());
    }
    if a.xattrs != b.xattrs {
        let names =
            |s: &Seen| s.xattrs.iter().map(|(n, v)| (lossy(n), v.len())).collect::<Vec<_>>();
        out.push(format!("xattrs: {:?} and {:?}", names(a), names(b)));
    }
    out
}

/// A name for a message.
pub fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
