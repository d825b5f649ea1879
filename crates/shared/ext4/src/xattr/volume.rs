//! Extended attributes of a volume's inodes.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Result, Timestamp, corrupt, errno};

use super::encode::{encode_block, lay_out, references, set_references};
use super::name::{ACL_ACCESS, ACL_DEFAULT, full_name, split_name};
use super::parse::{check_block, parse_block, parse_inode};
use super::{Acl, Xattr};
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

/// 512-byte units of an attribute block.
const BLOCK_UNITS: u64 = BLOCK_SIZE as u64 / 512;

/// Whether an attribute may or must exist already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetMode {
    /// Create or replace.
    Any,
    /// EEXIST if it is there.
    Create,
    /// ENODATA if it is not.
    Replace,
}

/// A value as programs see it.
fn shown(x: &Xattr) -> Result<Vec<u8>> {
    match x.index {
        ACL_ACCESS | ACL_DEFAULT => Ok(Acl::from_disk(&x.value)?.to_xattr()),
        _ => Ok(x.value.clone()),
    }
}

/// A value as it is stored.
fn stored(index: u8, value: &[u8]) -> Result<Vec<u8>> {
    match index {
        ACL_ACCESS | ACL_DEFAULT => Ok(Acl::from_xattr(value)?.to_disk()),
        _ => Ok(value.to_vec()),
    }
}

/// Operations on extended attributes. Names are full names, values the ones programs see (for
/// access control lists, Linux's form). The permission to see or change an attribute, the mode that
/// goes with an access control list, and times are the caller's. Where they take `&mut Inode`, the
/// caller writes it; after an error it is as it was.
impl Layout {
    /// All attributes of an inode as stored, the inode's own first.
    ///
    /// Errors: `Corrupt` for bad bytes, `Incompatible` for values in inodes of their own.
    pub fn xattrs(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut all = parse_inode(inode.xattr_area())?;
        for x in self.block_xattrs(store, inode)? {
            if all.iter().any(|y| y.index == x.index && y.name == x.name) {
                let what = format!("attributes of inode {}", inode.ino);
                return Err(corrupt(what, "one is both in the inode and in its block"));
            }
            all.push(x);
        }
        Ok(all)
    }

    fn block_xattrs(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<Vec<Xattr>> {
        let Some((nr, seed)) = self.attribute_block(inode)? else {
            return Ok(Vec::new());
        };
        let fresh = !store.verified(nr);
        let all = parse_block(store.read(nr)?, nr, seed.filter(|_| fresh))?;
        if fresh {
            store.set_verified(nr);
        }
        Ok(all)
    }

    /// Number of the inode's attribute block and the seed of its checksum.
    fn attribute_block(&self, inode: &Inode) -> Result<Option<(BlockNr, Option<u32>)>> {
        match inode.file_acl {
            0 => Ok(None),
            nr if self.is_data_block(nr) => Ok(Some((nr, Some(self.csum_seed())))),
            nr => Err(corrupt(format!("inode {}", inode.ino), format!("attribute block {nr}"))),
        }
    }

    /// The value of an attribute; ENODATA if there is none of this name, EOPNOTSUPP, EINVAL
    /// or ERANGE for names that cannot be.
    pub fn xattr_get(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let (index, rest) = split_name(name)?;
        let all = self.xattrs(store, inode)?;
        let found = all.iter().find(|x| x.index == index && x.name == rest);
        shown(found.ok_or(errno(libc::ENODATA))?)
    }

    /// The full names of all attributes whose name space is known.
    pub fn xattr_list(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let all = self.xattrs(store, inode)?;
        Ok(all.iter().filter_map(|x| full_name(x.index, &x.name)).collect())
    }
}

impl Fs {
    /// Sets an attribute. EEXIST or ENODATA as `mode` says; ENOSPC if the attributes do not
    /// fit the inode and one block, or the volume is full; EINVAL for an access control list
    /// that is malformed.
    pub fn xattr_set(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
    ) -> Result<()> {
        let (index, rest) = split_name(name)?;
        let value = stored(index, value)?;
        let mut all = self.layout.xattrs(store, inode)?;
        match (all.iter_mut().find(|x| x.index == index && x.name == rest), mode) {
            (Some(_), SetMode::Create) => return Err(errno(libc::EEXIST)),
            (None, SetMode::Replace) => return Err(errno(libc::ENODATA)),
            (Some(x), _) if x.value == value => return Ok(()),
            (Some(x), _) => x.value = value,
            (None, _) => all.push(Xattr { index, name: rest.to_vec(), value }),
        }
        self.store_xattrs(store, inode, &all)
    }

    /// Will a new inode hold these attributes (full names and values)? ENOSPC if not.
    pub fn xattrs_fit(&self, mode: u16, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let mut all = Vec::with_capacity(list.len());
        for (name, value) in list {
            let (index, rest) = split_name(name)?;
            all.push(Xattr { index, name: rest.to_vec(), value: stored(index, value)? });
        }
        let fresh = self.new_inode(self.layout.geo.first_ino, 1, mode, Timestamp::default());
        lay_out(&all, fresh.xattr_area().len()).map(drop)
    }

    /// Removes an attribute; ENODATA if there is none of this name.
    pub fn xattr_remove(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        name: &[u8],
    ) -> Result<()> {
        let (index, rest) = split_name(name)?;
        let mut all = self.layout.xattrs(store, inode)?;
        let before = all.len();
        all.retain(|x| x.index != index || x.name != rest);
        if all.len() == before {
            return Err(errno(libc::ENODATA));
        }
        self.store_xattrs(store, inode, &all)
    }

    /// Lets go of the inode's attribute block, for an inode that is being deleted.
    pub fn xattr_release(&mut self, store: &mut dyn BlockStore, inode: &mut Inode) -> Result<()> {
        self.drop_block(store, inode)
    }

    fn store_xattrs(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        all: &[Xattr],
    ) -> Result<()> {
        let layout = lay_out(all, inode.xattr_area().len())?;
        let mut old = self.layout.block_xattrs(store, inode)?;
        old.sort_by(|a, b| super::encode::sort_key(a).cmp(&super::encode::sort_key(b)));
        if layout.block != old {
            if layout.block.is_empty() {
                self.drop_block(store, inode)?;
            } else {
                self.store_block(store, inode, &layout.block)?;
            }
        }
        inode.xattr_area_mut().copy_from_slice(&layout.inode);
        Ok(())
    }

    /// Writes the inode's attribute block: in place if it is its own, else to a new one.
    fn store_block(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        list: &[Xattr],
    ) -> Result<()> {
        if let Some((nr, seed)) = self.layout.attribute_block(inode)?
            && references(store.read(nr)?) == 1
        {
            *store.modify(nr)? = encode_block(list, nr, seed);
            return Ok(());
        }
        let run = self.alloc_blocks(store, self.layout.goal_for_inode(inode.ino), 1)?;
        let nr = run.start;
        *store.create(nr)? = encode_block(list, nr, Some(self.layout.csum_seed()));
        store.set_verified(nr);
        if let Err(e) = self.drop_block(store, inode) {
            self.free_run(store, run)?;
            return Err(e);
        }
        inode.file_acl = nr;
        inode.blocks += BLOCK_UNITS;
        Ok(())
    }

    /// Takes the inode's reference off its attribute block, and frees the block with its last.
    fn drop_block(&mut self, store: &mut dyn BlockStore, inode: &mut Inode) -> Result<()> {
        let Some((nr, seed)) = self.layout.attribute_block(inode)? else {
            return Ok(());
        };
        let block = store.read(nr)?;
        check_block(block, nr, seed)?;
        match references(block) {
            1 => self.free_run(store, BlockRun { start: nr, len: 1 })?,
            n => set_references(store.modify(nr)?, n - 1, nr, seed),
        }
        inode.file_acl = 0;
        inode.blocks = inode.blocks.saturating_sub(BLOCK_UNITS);
        Ok(())
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
