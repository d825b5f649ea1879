//! The tree that both start from, and how it looks on each.

use crate::draw::{DIRS, Guarded, acl_bytes, guarded};
use crate::kernel::{flags_of, open_for_flags, set_flags};
use siftfs_base::{InodeNr, Rng};
use siftfs_proto::{
    Attr, Credentials, FileKind, FileService, ROOT_INO, Reply, Request, SetAttr, XattrMode, flags,
};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

const ACL: &str = "system.posix_acl_access";

/// A file as it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `d`, `f`, `l`, `p`, `c`.
    pub kind: char,
    /// Permission bits.
    pub perm: u16,
    /// Owner and group.
    pub ids: (u32, u32),
    /// Names.
    pub nlink: u32,
    /// Bytes of a regular file.
    pub size: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Inode flags that can be set.
    pub flags: u32,
}

/// All files by their paths.
pub type Tree = BTreeMap<String, Node>;

/// What is made, each with what guards it.
pub struct Plan {
    files: Vec<(String, char, Guarded)>,
}

impl Plan {
    /// A plan for one round.
    pub fn draw(rng: &mut Rng) -> Self {
        let mut files: Vec<(String, char, Guarded)> =
            DIRS.iter().map(|dir| ((*dir).to_owned(), 'd', guarded(rng, true))).collect();
        for dir in ["", "a/", "b/", "a/b/", "a/b/c/"] {
            for (name, kind) in [("f", 'f'), ("g", 'f'), ("link", 'l'), ("pipe", 'p'), ("sub", 'd')]
            {
                if rng.chance(80) {
                    files.push((format!("{dir}{name}"), kind, guarded(rng, kind == 'd')));
                }
            }
        }
        Self { files }
    }

    /// Makes it on the kernel's ext4, in place of what is there.
    ///
    /// # Errors
    /// What the kernel answers root.
    pub fn make_there(&self, root: &Path) -> io::Result<()> {
        clear(root)?;
        fs::create_dir(root)?;
        fs::set_permissions(root, fs::Permissions::from_mode(0o777))?;
        for (path, kind, _) in &self.files {
            let path = root.join(path);
            match kind {
                'd' => fs::create_dir(&path)?,
                'f' => fs::write(&path, b"old")?,
                'l' => std::os::unix::fs::symlink("f", &path)?,
                _ => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::from_raw_mode(0o644),
                    0,
                )?,
            }
        }
        // Flags last, and from below: an immutable directory takes nothing in.
        for (path, kind, guarded) in self.files.iter().rev() {
            let path = root.join(path);
            std::os::unix::fs::lchown(&path, Some(guarded.uid), Some(guarded.gid))?;
            if *kind == 'l' {
                continue;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(guarded.perm.into()))?;
            if !guarded.acl.is_empty() {
                let list = acl_bytes(&guarded.acl);
                rustix::fs::lsetxattr(&path, ACL, &list, rustix::fs::XattrFlags::empty())?;
            }
            if guarded.flags != 0 && *kind != 'p' {
                flag(&path, guarded.flags)?;
            }
        }
        Ok(())
    }

    /// Makes it in the volume, in place of what is there, by the kernel's session.
    pub fn make_here(&self, service: &dyn FileService) {
        let root = Root { service };
        root.clear(ROOT_INO);
        root.set(ROOT_INO, SetAttr { perm: Some(0o777), ..SetAttr::default() });
        let mut numbers: BTreeMap<&str, InodeNr> = BTreeMap::from([("", ROOT_INO)]);
        for (path, kind, _) in &self.files {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            let ino = root.make(numbers[dir], name, *kind);
            numbers.insert(path, ino);
        }
        for (path, kind, guarded) in self.files.iter().rev() {
            let ino = numbers[path.as_str()];
            let (uid, gid) = (Some(guarded.uid), Some(guarded.gid));
            root.set(ino, SetAttr { uid, gid, ..SetAttr::default() });
            if *kind == 'l' {
                continue;
            }
            root.set(ino, SetAttr { perm: Some(guarded.perm), ..SetAttr::default() });
            if !guarded.acl.is_empty() {
                let (name, value) = (ACL.as_bytes().to_vec(), acl_bytes(&guarded.acl));
                let (mode, kill_setgid) = (XattrMode::Set, false);
                root.ask(Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid });
            }
            if guarded.flags != 0 && *kind != 'p' {
                root.flag(ino, guarded.flags);
            }
        }
    }
}

fn flag(path: &Path, wanted: u32) -> io::Result<()> {
    let file = open_for_flags(path).map_err(io::Error::from_raw_os_error)?;
    let keep = flags_of(&file).map_err(io::Error::from_raw_os_error)? & !flags::SETTABLE;
    set_flags(&file, keep | wanted).map_err(io::Error::from_raw_os_error)
}

/// Removes what is there, whatever its flags are.
///
/// # Errors
/// What the kernel answers root.
pub fn clear(root: &Path) -> io::Result<()> {
    if !root.exists() {
        return Ok(());
    }
    fn unflag(dir: &Path) -> io::Result<()> {
        flag(dir, 0)?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                unflag(&entry.path())?;
            } else if kind.is_file() {
                flag(&entry.path(), 0)?;
            }
        }
        Ok(())
    }
    unflag(root)?;
    fs::remove_dir_all(root)
}

/// How it looks on the kernel's ext4.
///
/// # Errors
/// What the kernel answers root.
pub fn there(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    look(root, "", &mut tree)?;
    Ok(tree)
}

fn look(root: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(root.join(prefix))? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let meta = fs::symlink_metadata(entry.path())?;
        let kind = match meta.file_type() {
            t if t.is_dir() => 'd',
            t if t.is_file() => 'f',
            t if t.is_symlink() => 'l',
            t if t.is_fifo() => 'p',
            _ => 'c',
        };
        let flags = match kind {
            'd' | 'f' => open_for_flags(&entry.path())
                .and_then(|file| flags_of(&file))
                .map_err(io::Error::from_raw_os_error)?,
            _ => 0,
        };
        let node = Node {
            kind,
            perm: (meta.mode() & 0o7777) as u16,
            ids: (meta.uid(), meta.gid()),
            nlink: meta.nlink() as u32,
            size: if kind == 'f' { meta.size() } else { 0 },
            xattrs: xattrs_of(&entry.path())?,
            flags: flags & flags::SETTABLE,
        };
        tree.insert(path.clone(), node);
        if kind == 'd' {
            look(root, &format!("{path}/"), tree)?;
        }
    }
    Ok(())
}

fn xattrs_of(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let (mut names, mut value) = ([0u8; 1000], [0u8; 1000]);
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let len = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..])?;
        found.insert(name, value[..len].to_vec());
    }
    Ok(found)
}

/// How it looks in the volume.
pub fn here(service: &dyn FileService) -> Tree {
    let mut tree = Tree::new();
    Root { service }.look(ROOT_INO, "", &mut tree);
    tree
}

/// Root, by the local kernel's session.
struct Root<'a> {
    service: &'a dyn FileService,
}

impl Root<'_> {
    fn ask(&self, req: Request) -> Reply {
        let said = format!("{req:?}");
        let answer = self.service.call(&Credentials::default(), req);
        answer.unwrap_or_else(|e| panic!("{said}: {e}"))
    }

    fn attr(&self, req: Request) -> Attr {
        match self.ask(req) {
            Reply::Entry(attr) | Reply::Attr(attr) => attr,
            Reply::Created { attr, handle } => {
                self.ask(Request::write(handle, 0, b"old".to_vec()));
                self.ask(Request::Release { handle });
                attr
            }
            other => panic!("no attributes: {other:?}"),
        }
    }

    fn set(&self, ino: InodeNr, set: SetAttr) {
        self.ask(Request::SetAttr { file: ino.into(), set, times: true });
    }

    fn flags(&self, ino: InodeNr) -> u32 {
        match self.ask(Request::GetFlags { file: ino.into() }) {
            Reply::Flags(flags) => flags,
            other => panic!("no flags: {other:?}"),
        }
    }

    fn flag(&self, ino: InodeNr, wanted: u32) {
        let flags = self.flags(ino) & !flags::SETTABLE | wanted;
        self.ask(Request::SetFlags { file: ino.into(), flags });
    }

    /// A name, whose reference is given back.
    fn make(&self, parent: InodeNr, name: &str, kind: char) -> InodeNr {
        let name = name.as_bytes().to_vec();
        let ino = self
            .attr(match kind {
                'd' => Request::MakeDir { parent, name, perm: 0o755 },
                'f' => Request::Create { parent, name, perm: 0o644 },
                'l' => Request::Symlink { parent, name, target: b"f".to_vec() },
                _ => {
                    let (kind, perm, rdev) = (FileKind::Fifo, 0o644, 0);
                    Request::MakeNode { parent, name, kind, perm, rdev }
                }
            })
            .ino;
        self.ask(Request::Forget { ino, count: 1 });
        ino
    }

    fn entries(&self, dir: InodeNr) -> Vec<(Vec<u8>, InodeNr, FileKind)> {
        let handle = match self.ask(Request::OpenDir { ino: dir }) {
            Reply::Opened { handle } => handle,
            other => panic!("no handle: {other:?}"),
        };
        let list = Request::ReadDir { handle, cookie: 0, max_bytes: 1 << 20, plus: false };
        let entries = match self.ask(list) {
            Reply::Dir(entries) => entries,
            other => panic!("no entries: {other:?}"),
        };
        self.ask(Request::Release { handle });
        let named = entries.into_iter().filter(|e| e.name != b"." && e.name != b"..");
        named.map(|e| (e.name, e.ino, e.kind)).collect()
    }

    fn clear(&self, dir: InodeNr) {
        for (name, ino, kind) in self.entries(dir) {
            if matches!(kind, FileKind::Directory | FileKind::Regular) {
                self.flag(ino, 0);
            }
            let parent = dir;
            if kind == FileKind::Directory {
                self.clear(ino);
                self.ask(Request::RemoveDir { parent, name });
            } else {
                self.ask(Request::Unlink { parent, name });
            }
        }
    }

    fn look(&self, dir: InodeNr, prefix: &str, tree: &mut Tree) {
        for (name, ino, kind) in self.entries(dir) {
            let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
            let attr = self.attr(Request::GetAttr { file: ino.into() });
            let kind = match kind {
                FileKind::Directory => 'd',
                FileKind::Regular => 'f',
                FileKind::Symlink => 'l',
                FileKind::Fifo => 'p',
                _ => 'c',
            };
            let flags = if matches!(kind, 'd' | 'f') { self.flags(ino) } else { 0 };
            let node = Node {
                kind,
                perm: attr.perm,
                ids: (attr.uid, attr.gid),
                nlink: attr.nlink,
                size: if kind == 'f' { attr.size } else { 0 },
                xattrs: self.xattrs(ino),
                flags: flags & flags::SETTABLE,
            };
            tree.insert(path.clone(), node);
            if kind == 'd' {
                self.look(ino, &format!("{path}/"), tree);
            }
        }
    }

    fn xattrs(&self, ino: InodeNr) -> BTreeMap<String, Vec<u8>> {
        let names = match self.ask(Request::ListXattr { file: ino.into() }) {
            Reply::Names(names) => names,
            other => panic!("no names: {other:?}"),
        };
        let value = |name: Vec<u8>| {
            let text = String::from_utf8_lossy(&name).into_owned();
            match self.ask(Request::GetXattr { file: ino.into(), name }) {
                Reply::Data(value) => (text, value),
                other => panic!("no value: {other:?}"),
            }
        };
        names.into_iter().map(value).collect()
    }
}
