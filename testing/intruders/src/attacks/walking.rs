//! The ways of an ordinary client, as far as they lead.

use super::{Intruder, ask, reply};
use crate::wire::Wire;
use siftfs_base::InodeNr;
use siftfs_proto::compound::Access;
use siftfs_proto::{Attr, FileKind, ROOT_INO, Reply, Request, Target};
use std::io;

/// Names that a hostile client knows without being told.
const KNOWN: [&str; 6] = ["canary", "pen", "vault", "shared", "open", "link"];
/// Inodes that one walk looks at.
const MOST: usize = 80;

/// Walks through all directories, and reads all that it can find there.
pub(super) fn walks(it: &mut Intruder) -> io::Result<()> {
    let mut wire = it.session(false)?;
    let (mut dirs, mut seen) = (vec![ROOT_INO], 0);
    while let Some(parent) = dirs.pop() {
        for name in names(&mut wire, parent)? {
            let found = reply(ask(&mut wire, Request::Lookup { parent, name })?);
            let Some(Reply::Entry(attr)) = found else { continue };
            seen += 1;
            if seen > MOST {
                return Ok(());
            }
            read(&mut wire, &attr)?;
            if attr.kind == FileKind::Directory {
                dirs.push(attr.ino);
            }
        }
    }
    Ok(())
}

/// What could be in a directory: what it shows, and what is known anyway.
fn names(wire: &mut Wire, ino: InodeNr) -> io::Result<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = KNOWN.map(|name| name.as_bytes().to_vec()).into();
    if let Some(Reply::Opened { handle }) = reply(ask(wire, Request::OpenDir { ino })?) {
        let list = Request::ReadDir { handle, cookie: 0, max_bytes: 1 << 16, plus: false };
        if let Some(Reply::Dir(entries)) = reply(ask(wire, list)?) {
            let shown = entries.into_iter().map(|entry| entry.name);
            names.extend(shown.filter(|name| name != b"." && name != b".."));
        }
        ask(wire, Request::Release { handle })?;
    }
    Ok(names)
}

/// Reads a file, a link, or an attribute.
fn read(wire: &mut Wire, attr: &Attr) -> io::Result<()> {
    let ino = attr.ino;
    let how = match attr.kind {
        FileKind::Symlink => return ask(wire, Request::ReadLink { ino }).map(drop),
        FileKind::Regular => Request::open(ino, Access::Read),
        _ => Request::Hold { ino },
    };
    if let Some(Reply::Opened { handle }) = reply(ask(wire, how)?) {
        let file = Target::Open(handle);
        ask(wire, Request::Read { file, offset: 0, len: 1 << 16 })?;
        ask(wire, Request::GetXattr { file, name: b"user.canary".to_vec() })?;
        ask(wire, Request::Release { handle })?;
    }
    Ok(())
}
