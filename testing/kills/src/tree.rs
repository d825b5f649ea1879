//! The tree of one worker as programs see it, through a mount of SiftFS or of the kernel's ext4.

use crate::calls::{Place, SHARED_NAME};
use crate::posix::{attr_of, get_xattr, list_xattrs};
use siftfs_base::InodeNr;
use siftfs_model::{Content, PAGE, Seen, Tree};
use siftfs_proto::{FileKind, ROOT_INO};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// An error with the path that it is about.
type Result<T> = std::result::Result<T, String>;

fn about<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String {
    move |e| format!("{}: {e}", path.display())
}

/// Everything of the worker at `place`. Its directory is the root, and the shared one lies in it,
/// with the worker's own names alone. Inode numbers are the volume's, the root's excepted.
///
/// # Errors
/// What could not be read, or contradicts itself.
pub fn walk(place: &Place) -> Result<Tree> {
    let mut tree = Tree::default();
    let (own, shared) = (place.own(), place.shared());
    let mut root = look(&own)?;
    root.attr.ino = ROOT_INO;
    // The model's root holds the shared directory.
    root.attr.nlink += 1;
    tree.nodes.insert(ROOT_INO, root);
    below(&mut tree, ROOT_INO, &own, b"")?;
    let mut common = look(&shared)?;
    let ino = common.attr.ino;
    common.names.push((ROOT_INO, SHARED_NAME.to_vec()));
    common.attr.nlink = 2;
    tree.nodes.insert(ino, common);
    bind(&mut tree, ROOT_INO, SHARED_NAME.to_vec(), ino)?;
    below(&mut tree, ino, &shared, &place.prefix())?;
    let subdirs = tree.nodes.get(&ino).map_or(0, |n| {
        let dirs = n.entries.values().filter_map(|i| tree.nodes.get(i));
        dirs.filter(|n| n.attr.kind == FileKind::Directory).count()
    });
    if let Some(node) = tree.nodes.get_mut(&ino) {
        node.attr.nlink += u32::try_from(subdirs).unwrap_or(u32::MAX);
    }
    Ok(tree)
}

/// Enters all names in directory `top` that begin with `prefix`, and all below them.
fn below(tree: &mut Tree, top: InodeNr, path: &Path, prefix: &[u8]) -> Result<()> {
    let mut queue: Vec<(InodeNr, PathBuf, Vec<u8>)> = vec![(top, path.into(), prefix.to_vec())];
    while let Some((dir, path, prefix)) = queue.pop() {
        for entry in std::fs::read_dir(&path).map_err(about(&path))? {
            let entry = entry.map_err(about(&path))?;
            let full = entry.path();
            let name = entry.file_name().into_vec();
            let Some(name) = name.strip_prefix(prefix.as_slice()) else { continue };
            let found = rustix::fs::lstat(&full).map_err(about(&full))?;
            let attr = attr_of(&found);
            let known = tree.nodes.contains_key(&attr.ino);
            if known && attr.kind == FileKind::Directory {
                return Err(format!("{}: a directory with two names", full.display()));
            }
            if !known {
                tree.nodes.insert(attr.ino, look(&full)?);
            }
            if let Some(node) = tree.nodes.get_mut(&attr.ino) {
                node.names.push((dir, name.to_vec()));
            }
            bind(tree, dir, name.to_vec(), attr.ino)?;
            if attr.kind == FileKind::Directory {
                queue.push((attr.ino, full, Vec::new()));
            }
        }
    }
    Ok(())
}

fn bind(tree: &mut Tree, dir: InodeNr, name: Vec<u8>, ino: InodeNr) -> Result<()> {
    let shown = String::from_utf8_lossy(&name).into_owned();
    let entries = tree.nodes.get_mut(&dir).map(|n| &mut n.entries);
    match entries.map(|e| e.insert(name, ino)) {
        Some(None) => Ok(()),
        _ => Err(format!("{}: {shown} is there twice", tree.path(dir))),
    }
}

/// One inode with everything in it but its entries and names.
fn look(path: &Path) -> Result<Seen> {
    let attr = attr_of(&rustix::fs::lstat(path).map_err(about(path))?);
    let (mut content, mut target, mut xattrs) = (Content::default(), Vec::new(), BTreeMap::new());
    match attr.kind {
        FileKind::Regular => content = read(path, attr.size).map_err(about(path))?,
        FileKind::Symlink => {
            let read = rustix::fs::readlink(path, Vec::new()).map_err(about(path))?;
            target = read.into_bytes();
        }
        _ => {}
    }
    if attr.kind != FileKind::Symlink {
        for name in list_xattrs(path).map_err(about(path))? {
            let value = get_xattr(path, &name).map_err(about(path))?;
            xattrs.insert(name, value);
        }
    }
    Ok(Seen { attr, content, target, xattrs, entries: BTreeMap::new(), names: Vec::new() })
}

/// All `size` bytes; pages of zeros are left out, which means the same.
fn read(path: &Path, size: u64) -> io::Result<Content> {
    let file = File::open(path)?;
    let mut content = Content::default();
    let mut buf = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < size {
        let len = buf.len().min(usize::try_from(size - at).unwrap_or(CHUNK));
        let part = buf.get_mut(..len).unwrap_or_default();
        file.read_exact_at(part, at)?;
        for (page, offset) in part.chunks(PAGE as usize).zip((at..).step_by(PAGE as usize)) {
            if page.iter().any(|b| *b != 0) {
                content.write(offset, page);
            }
        }
        at += len as u64;
    }
    content.resize(size);
    Ok(content)
}
