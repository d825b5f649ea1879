//! Block maps of files older than extents: read only.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Result, corrupt};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::map::Mapping;
use crate::fs::Layout;
use crate::inode::Inode;
use crate::store::BlockStore;

/// Block numbers in the inode that name data; then one each of one, two and three levels.
const DIRECT: u64 = 12;
/// Block numbers in a block.
const FAN: u64 = BLOCK_SIZE as u64 / 4;

fn pointers(bytes: &[u8]) -> &[U32] {
    <[U32]>::ref_from_bytes(bytes).unwrap_or(&[])
}

impl Layout {
    /// [`Layout::map`](crate::Layout::map) of an inode without an extent tree.
    pub(super) fn map_indirect(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        lblk: u32,
        max: u64,
    ) -> Result<Mapping> {
        let lblk = u64::from(lblk);
        let roots = pointers(&inode.i_block);
        if lblk < DIRECT {
            return self.run_of(inode, roots.get(..12).unwrap_or(&[]), lblk, max);
        }
        let (mut rest, mut levels, mut span) = (lblk - DIRECT, 1usize, FAN);
        while rest >= span {
            if levels == 3 {
                return Ok(Mapping::Hole { len: max });
            }
            rest -= span;
            levels += 1;
            span *= FAN;
        }
        let mut nr = roots.get(11 + levels).map_or(0, |p| u64::from(p.get()));
        for level in (0..levels).rev() {
            if nr == 0 {
                // Nothing below: the hole lasts to the end of this subtree.
                let below = FAN.pow(level as u32 + 1);
                return Ok(Mapping::Hole { len: (below - rest % below).min(max) });
            }
            self.check_place(inode, nr)?;
            let below = FAN.pow(level as u32);
            let all = pointers(&store.read(nr)?[..]);
            let at = rest / below;
            if level == 0 {
                return self.run_of(inode, all, at, max);
            }
            nr = all.get(at as usize).map_or(0, |p| u64::from(p.get()));
            rest %= below;
        }
        Err(corrupt(format!("block map of inode {}", inode.ino), "no level reached the data"))
    }

    /// The run that begins at entry `at` of a list of data blocks.
    fn run_of(&self, inode: &Inode, all: &[U32], at: u64, max: u64) -> Result<Mapping> {
        let rest = all.get(at as usize..).unwrap_or(&[]);
        let first = rest.first().map_or(0, |p| u64::from(p.get()));
        let follows = |i: u64, p: &U32| {
            let here = u64::from(p.get());
            if first == 0 { here == 0 } else { here == first + i }
        };
        let len = (0..max).zip(rest).take_while(|(i, p)| follows(*i, p)).count().max(1) as u64;
        if first == 0 {
            return Ok(Mapping::Hole { len });
        }
        let run = BlockRun { start: first, len };
        self.check_run(run, || format!("block map of inode {}", inode.ino))?;
        Ok(Mapping::Mapped { pblk: first, len, unwritten: false })
    }

    fn check_place(&self, inode: &Inode, nr: BlockNr) -> Result<()> {
        let run = BlockRun { start: nr, len: 1 };
        self.check_run(run, || format!("block map of inode {}", inode.ino))
    }
}
