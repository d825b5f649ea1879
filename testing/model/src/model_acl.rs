//! Access control lists, the model's own way: what they mean for modes, and what inherits them.

use crate::model::Node;
use siftfs_proto::FileKind;

pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Tag, permissions and id of each entry, in Linux's order.
type List = Vec<(u16, u16, u32)>;

pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// The value of an attribute.
pub(crate) fn value(list: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm, id) in list {
        out.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()));
        out.extend(id.to_le_bytes());
    }
    out
}

/// The list that a value says, or the errno for bytes that are no list.
fn list(value: &[u8]) -> Result<List, i32> {
    let (version, rest) = value.split_first_chunk::<4>().ok_or(libc::EINVAL)?;
    if *version != [2, 0, 0, 0] {
        return Err(libc::EOPNOTSUPP);
    }
    let (entries, odd) = rest.as_chunks::<8>();
    let two = |a: u8, b: u8| u16::from(a) | u16::from(b) << 8;
    let list: List = entries
        .iter()
        .map(|&[a, b, c, d, id @ ..]| (two(a, b), two(c, d), u32::from_le_bytes(id)))
        .collect();
    let count = |tag: u16| list.iter().filter(|e| e.0 == tag).count();
    let named = count(2) + count(8);
    let known = list.iter().all(|e| [1, 2, 4, 8, 16, 32].contains(&e.0) && e.1 <= 7);
    let once = count(1) == 1 && count(4) == 1 && count(32) == 1 && count(16) <= 1;
    let masked = named == 0 || count(16) == 1;
    let ordered = list.is_sorted_by_key(|e| e.0);
    if known && once && masked && ordered && odd.is_empty() { Ok(list) } else { Err(libc::EINVAL) }
}

fn perm_of(list: &List, tag: u16) -> Option<u16> {
    list.iter().find(|e| e.0 == tag).map(|e| e.1)
}

/// Nine permission bits; the mask stands for the group where there is one.
fn mode(list: &List) -> u16 {
    let group = perm_of(list, 16).or(perm_of(list, 4)).unwrap_or(0);
    perm_of(list, 1).unwrap_or(0) << 6 | group << 3 | perm_of(list, 32).unwrap_or(0)
}

fn set_mode(list: &mut List, mode: u16) {
    let group = if perm_of(list, 16).is_some() { 16 } else { 4 };
    for e in list {
        match e.0 {
            1 => e.1 = mode >> 6 & 7,
            32 => e.1 = mode & 7,
            tag if tag == group => e.1 = mode >> 3 & 7,
            _ => {}
        }
    }
}

/// setxattr of a list.
pub(crate) fn set(node: &mut Node, name: &[u8], new: &[u8], kill_setgid: bool) -> Result<(), i32> {
    let acl = list(new)?;
    match node.kind {
        FileKind::Symlink => return Err(libc::EOPNOTSUPP),
        FileKind::Directory => {}
        _ if name == DEFAULT => return Err(libc::EACCES),
        _ => {}
    }
    if name == ACCESS {
        node.perm = node.perm & 0o7000 | mode(&acl);
        if kill_setgid {
            node.perm &= !0o2000;
        }
        if acl.len() == 3 {
            node.xattrs.remove(name);
            return Ok(());
        }
    }
    node.xattrs.insert(name.to_vec(), new.to_vec());
    Ok(())
}

/// Does the file's list, if it has one, grant `wanted` to a user who does not own it? `groups` says
/// which groups the user is in.
pub(crate) fn grants(
    node: &Node,
    uid: u32,
    groups: impl Fn(u32) -> bool,
    wanted: u16,
) -> Option<bool> {
    let acl = list(node.xattrs.get(ACCESS)?).ok()?;
    let mask = perm_of(&acl, 16).unwrap_or(7);
    let has = |perm: u16| perm & wanted == wanted;
    if let Some((_, perm, _)) = acl.iter().find(|(tag, _, id)| *tag == 2 && *id == uid) {
        return Some(has(perm & mask));
    }
    let own = |tag: u16, id: u32| tag == 4 && groups(node.gid) || tag == 8 && groups(id);
    let of_groups: Vec<u16> =
        acl.iter().filter(|(tag, _, id)| own(*tag, *id)).map(|(_, perm, _)| *perm).collect();
    Some(match of_groups.is_empty() {
        true => has(perm_of(&acl, 32).unwrap_or(0)),
        false => of_groups.iter().any(|perm| has(perm & mask)),
    })
}

/// chmod, after the mode was changed.
pub(crate) fn follow_mode(node: &mut Node) {
    let perm = node.perm;
    if let Some(old) = node.xattrs.get_mut(ACCESS)
        && let Ok(mut acl) = list(old)
    {
        set_mode(&mut acl, perm & 0o777);
        *old = value(&acl);
    }
}

/// What `node`, about to be made in `dir`, gets from there, or else from the umask.
pub(crate) fn inherit(node: &mut Node, dir: &Node, umask: u16) {
    if node.kind == FileKind::Symlink {
        return;
    }
    let Some(Ok(default)) = dir.xattrs.get(DEFAULT).map(|v| list(v)) else {
        node.perm &= !(umask & 0o777);
        return;
    };
    let mut access = default.clone();
    set_mode(&mut access, mode(&default) & node.perm);
    node.perm = node.perm & 0o7000 | mode(&access);
    if access.len() > 3 {
        node.xattrs.insert(ACCESS.to_vec(), value(&access));
    }
    if node.is_dir() {
        node.xattrs.insert(DEFAULT.to_vec(), value(&default));
    }
}
