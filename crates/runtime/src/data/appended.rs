//! Blocks of a file that a program writes for the first time at the storage's target: room behind
//! the end, what was written of it, and what is given back (rule R30; `docs/design/target.md`,
//! "Appends").

use crate::data::ranges::block_up;
use crate::state::room::{OP_BLOCKS, PATH_BLOCKS, with_tree};
use crate::state::step::Step;
use crate::state::{Metadata, State, Tree};
use siftfs_base::{BLOCK_BYTES, Blocks, Error, InodeNr, RangeSet, Result};
use siftfs_ext4::Mapping;
use siftfs_proto::{MAX_FILE_SIZE, ROOM_MOST};

/// One part in this many of the free space that one request may set aside: the rest is for those
/// who write now.
const ROOM_PART: u64 = 4;

/// Is every change of where the file's blocks lie journaled?
pub fn is_mapped_durably(st: &State, ino: InodeNr) -> bool {
    let node = st.metadata.tree.inodes.get(&ino);
    node.is_some_and(|node| st.metadata.log.committed(node.mapped_in).is_some())
}

/// Gives unwritten blocks to the holes of the next `bytes` bytes behind a file's end, [`ROOM_MOST`]
/// at most, and notes them as its lease's room. Where space is short they are fewer, or none.
pub fn set_room_aside(st: &mut State, ino: InodeNr, bytes: u64, privileged: bool) -> Step<()> {
    st.load_whole(ino)?;
    let node = st.metadata.tree.node(ino);
    if !node.inode.has_extents() || node.is_dead() {
        return Ok(());
    }
    let first = node.size / BLOCK_BYTES;
    let end = node.size.saturating_add(bytes.min(ROOM_MOST)).min(MAX_FILE_SIZE);
    let most = most_room(&st.metadata, privileged, block_up(end).saturating_sub(first));
    let holes = first_holes(&mut st.metadata.tree, ino, (first, block_up(end)), most)?;
    let Some((_, last)) = holes.last() else { return Ok(()) };
    st.metadata.room_in_transaction(OP_BLOCKS)?;
    st.leases.direct.rooms.note(ino, &holes);
    remember(&mut st.metadata, ino)?;
    st.metadata.preallocate(ino, first, *last)
}

/// Blocks of a file were written at the target, and are durable there: they are the file's from
/// here on, and so is what lies before byte `end`. Those that are noted leave `fresh`, which holds
/// the rest when this stops.
///
/// # Errors
/// Refused: a block has no home.
pub fn note_appended(
    st: &mut State,
    ino: InodeNr,
    fresh: &mut RangeSet<Blocks>,
    end: u64,
) -> Step<()> {
    st.load_whole(ino)?;
    loop {
        let Some((first, stop)) = fresh.iter().next() else { break };
        let len = make_written(&mut st.metadata, ino, (first, stop))?;
        // In the same transaction: a written block behind the end is no file system's.
        grow_to(st, ino, end.min((first + len).saturating_mul(BLOCK_BYTES)))?;
        fresh.remove(first, first + len);
    }
    st.metadata.room_in_transaction(OP_BLOCKS)?;
    grow_to(st, ino, end)
}

/// The first blocks of a range of the file become written, if they are not. How many.
fn make_written(metadata: &mut Metadata, ino: InodeNr, (first, stop): (u64, u64)) -> Step<u64> {
    let touched = metadata.tree.tree_touched(ino);
    metadata.room_in_transaction(OP_BLOCKS + touched)?;
    let tree = &mut metadata.tree;
    let node = tree.inodes.get_mut(&ino).expect("just loaded");
    let mapped = tree.fs.layout.map(&mut tree.meta, &node.inode, first, stop - first)?;
    let Mapping::Mapped { len, unwritten, .. } = mapped else {
        let what = format!("block {first} of inode {ino}, which has no home");
        return Err(Error::Refused(format!("a program has written {what}")).into());
    };
    let len = len.clamp(1, stop - first);
    if unwritten {
        tree.fs.mark_written(&mut tree.meta, &mut node.inode, first, len)?;
        metadata.remapped(ino);
        metadata.tree.note_tree(ino);
        metadata.log.mark_inode(ino);
    }
    Ok(len)
}

/// The file reaches up to `size` at least. What lies between its end and that is zeros, unless the
/// program has the block of the end: then what is there is what it wrote.
fn grow_to(st: &mut State, ino: InodeNr, size: u64) -> Step<()> {
    let node = st.metadata.tree.node(ino);
    let old = node.size;
    if size <= old.min(node.inode.size) {
        return Ok(());
    }
    if size > old {
        if !st.leases.direct.has_fresh(ino, old / BLOCK_BYTES) {
            st.zero_gap(ino, size)?;
        }
        st.sections.resized(ino);
        st.metadata.log.changes.size(ino, old);
    }
    let node = st.metadata.tree.node_mut(ino);
    node.size = old.max(size);
    node.inode.size = node.inode.size.max(size);
    node.delta.running_mut().size = true;
    st.metadata.mark_delta(ino);
    Ok(())
}

/// Frees what of a lease's room lies behind the file's end. Goes on when called again.
pub fn give_room_back(metadata: &mut Metadata, ino: InodeNr, room: &RangeSet<Blocks>) -> Step<()> {
    metadata.tree.load_regular(ino)?;
    let node = metadata.tree.node(ino);
    if node.is_dead() {
        return Ok(());
    }
    let behind = block_up(node.size.max(node.inode.size));
    let parts: Vec<_> = room.overlapping(behind, u64::MAX).collect();
    for (first, end) in parts {
        metadata.remove_blocks(ino, first, end)?;
    }
    forget(metadata, ino)
}

/// The list of orphans has the file while it has room, so that a mount after a crash gives back
/// what lies behind its end, as after a truncation that a crash interrupted; unless something lies
/// there already, which its user has preallocated.
fn remember(metadata: &mut Metadata, ino: InodeNr) -> Step<()> {
    let tree = &mut metadata.tree;
    let node = tree.inodes.get(&ino).expect("loaded before use");
    let behind = block_up(node.size.max(node.inode.size));
    let found = tree.fs.layout.next_mapped(&mut tree.meta, &node.inode, behind, u64::MAX)?;
    if found.is_none() && !tree.fs.is_orphan(ino) {
        tree.fs.orphan_add(&mut tree.meta, &node.inode)?;
        metadata.log.touch();
    }
    Ok(())
}

/// What lies behind the end of a file that had room is to stay there.
pub fn forget(metadata: &mut Metadata, ino: InodeNr) -> Step<()> {
    let node = metadata.tree.node(ino);
    let listed = node.inode.nlink > 0 && !node.trunc_pending && metadata.tree.fs.is_orphan(ino);
    if !listed {
        return Ok(());
    }
    metadata.room_in_transaction(OP_BLOCKS)?;
    let tree = &mut metadata.tree;
    let node = tree.inodes.get(&ino).expect("loaded before use");
    tree.fs.orphan_remove(&mut tree.meta, &node.inode)?;
    metadata.log.touch();
    Ok(())
}

/// Blocks that may be set aside, `wanted` at most.
fn most_room(metadata: &Metadata, privileged: bool, wanted: u64) -> u64 {
    let held_back = if privileged { 0 } else { metadata.tree.fs.reserved_blocks() };
    let free = metadata.spendable().saturating_sub(held_back + PATH_BLOCKS) / ROOM_PART;
    let mut most = wanted.min(free);
    while most > 0 && with_tree(most) > free {
        most /= 2;
    }
    most
}

/// The first `most` blocks without a home of a range of the file, as ranges.
fn first_holes(
    tree: &mut Tree,
    ino: InodeNr,
    (first, end): (u64, u64),
    most: u64,
) -> Result<Vec<(u64, u64)>> {
    let (mut holes, mut left, mut block) = (Vec::new(), most, first);
    while block < end && left > 0 {
        let node = tree.inodes.get(&ino).expect("loaded before use");
        let len = match tree.fs.layout.map(&mut tree.meta, &node.inode, block, end - block)? {
            Mapping::Hole { len } => {
                let len = len.clamp(1, end - block).min(left);
                holes.push((block, block + len));
                left -= len;
                len
            }
            Mapping::Mapped { len, .. } => len.clamp(1, end - block),
        };
        block += len;
    }
    Ok(holes)
}
