//! Can what a plan would change be applied, and staged in one record (rule R25)? Nothing changes
//! before that is known.

use crate::data::ranges::{block_up, one_per_page, pages_of};
use crate::operations::compound::file::{File, FileNr};
use crate::operations::compound::plan::{Change, Name, Plan};
use crate::operations::group::Hindrance;
use crate::staging::capture::{Coming, Selection};
use crate::staging::not_staged::{Drafting, NotStaged};
use crate::staging::stage::Extra;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::log::names::Unstageable;
use crate::state::room::*;
use crate::state::step::Step;
use siftfs_base::{BLOCK_BYTES, InodeNr, Lsn, Result, Timestamp, errno};
use siftfs_ext4::Mapping;
use siftfs_log::{Item, NameOp, NameOpKind};
use siftfs_proto::compound::WrittenFile;
use siftfs_proto::{ROOT_INO, SetAttr};
use std::collections::BTreeSet;

/// What the applied changes will be staged with.
pub struct Ready {
    pub lane: usize,
    /// The longest that the record may be, in bytes.
    pub longest: u64,
}

/// What the changes need of the running transaction and of the volume, at their worst.
#[derive(Default)]
struct Needs {
    images: usize,
    /// Metadata and data blocks.
    blocks: u64,
    inodes: u64,
    names: usize,
    replacing: usize,
}

impl State {
    /// May the plan be applied? `staged`: and staged then, in one record.
    pub fn check_compound(
        &mut self,
        plan: &Plan<'_>,
        staged: bool,
        privileged: bool,
    ) -> std::result::Result<Ready, Hindrance> {
        let names = names_of(plan);
        let files = files_of(plan);
        for file in plan.files.iter().filter(|file| file.changed()) {
            if let Some(ino) = file.ino {
                self.finish_shrinking(ino)?;
            }
        }
        let needs = self.metadata.tree.needs_of(plan)?;
        let heavy = self.metadata.heavy(plan);
        if !heavy.is_empty() {
            return Err(Hindrance::Unsynced(heavy));
        }
        self.fill_edges(plan)?;
        let mut ready = Ready { lane: self.metadata.log.staging.lane_of(plan.base), longest: 0 };
        let mut images = needs.images;
        if staged {
            match self.metadata.check_record(plan, &files, &names, images, ready.lane) {
                Ok((longest, blocks)) => {
                    ready.longest = longest;
                    images += blocks;
                }
                Err(NotStaged::Unstageable(Unstageable::TooMuchData)) => {
                    let files = self.metadata.tree.unsynced(files);
                    if !files.is_empty() {
                        return Err(Hindrance::Unsynced(files));
                    }
                    // The permissions of others were in that record, too.
                    if !self.metadata.log.running.permissions.is_empty() {
                        return Err(Hindrance::Pending(Unstageable::TooMuchData));
                    }
                    return Err(errno(libc::E2BIG).into());
                }
                Err(other) => return Err(other.into()),
            }
        }
        if images + EMPTY_BLOCKS > self.metadata.log.max_transaction_blocks() {
            return Err(errno(libc::E2BIG).into());
        }
        self.metadata.log.room_for_replacing(needs.replacing)?;
        self.metadata.begin_many(needs.blocks, images, needs.names)?;
        if self.metadata.tree.fs.available_inodes() < needs.inodes {
            return Err(self.metadata.log.shortage().into());
        }
        if needs.blocks > 0 {
            self.metadata.check_space(needs.blocks, privileged)?;
        }
        Ok(ready)
    }

    /// Pages that are changed in part are brought into the cache.
    fn fill_edges(&mut self, plan: &Plan<'_>) -> Step<()> {
        for file in &plan.files {
            let Some(ino) = file.ino else { continue };
            for (start, end) in file.shadow.written().iter() {
                for edge in [start, end] {
                    if edge % BLOCK_BYTES != 0 && edge / BLOCK_BYTES * BLOCK_BYTES < file.kept {
                        self.plan_edge(ino, edge / BLOCK_BYTES)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Metadata {
    /// What is renamed over another file takes its data along (rule R20): the files that have too
    /// much of it.
    fn heavy(&self, plan: &Plan<'_>) -> Vec<InodeNr> {
        let most = self.log.most_replacing();
        let replaces = plan.changes.iter().filter_map(|change| match change {
            Change::Rename { file, displaced: Some(_), .. } => plan.files[*file].ino,
            _ => None,
        });
        replaces.filter(|ino| self.tree.node(*ino).data.running().total() > most).collect()
    }

    /// The longest that one record of it all may be, and the blocks that it adds to the running
    /// transaction.
    fn check_record(
        &mut self,
        plan: &Plan<'_>,
        files: &[InodeNr],
        names: &[Name],
        more: usize,
        lane: usize,
    ) -> Drafting<(u64, usize)> {
        let mut coming = Coming { names: names.to_vec(), ..Coming::default() };
        for file in &plan.files {
            if let Some(ino) = file.ino.filter(|ino| files.contains(ino)) {
                coming.bytes.insert(ino, file.shadow.written().clone());
            }
        }
        // Which directories guard a file with several names is not known.
        let lost = |c: &Change| matches!(c, Change::Link(..) | Change::Unlink(_));
        coming.hides_ancestors = plan.changes.iter().any(lost);
        if self.log.closure_max() < plan.changes.len() {
            return Err(errno(libc::E2BIG).into());
        }
        coming.own = plan.changes.len();
        let extra = self.tree.extra_of(plan, files)?;
        self.room_for_coming(lane, files, &Selection::With(&coming), &extra, more)
    }
}

impl Tree {
    /// Those of which an fsync takes something out of the way: nothing of a file without a name.
    fn unsynced(&self, mut files: Vec<InodeNr>) -> Vec<InodeNr> {
        files.retain(|ino| {
            let node = self.node(*ino);
            !node.is_durable() && !node.is_dead()
        });
        files
    }

    fn needs_of(&mut self, plan: &Plan<'_>) -> Step<Needs> {
        let mut needs = Needs { images: OP_BLOCKS, blocks: NAMES_SPACE, ..Needs::default() };
        let mut dearest = 0;
        for change in &plan.changes {
            needs.names += 1;
            let (to, inserts) = match change {
                Change::Create(file, to) => {
                    needs.inodes += 1;
                    needs.images += CREATE_BLOCKS;
                    let made = plan.files[*file].made.as_ref().expect("the steps made it");
                    if !made.xattrs.is_empty() {
                        needs.blocks += XATTR_SPACE;
                        needs.images += CREATE_XATTR_BLOCKS;
                    }
                    (to, true)
                }
                Change::Link(_, to) => {
                    needs.images += NAME_BLOCKS;
                    (to, true)
                }
                Change::Rename { to, displaced, .. } => {
                    needs.replacing += usize::from(displaced.is_some());
                    needs.images += NAME_BLOCKS;
                    (to, displaced.is_none())
                }
                Change::Unlink(_) => {
                    needs.images += NAME_BLOCKS;
                    continue;
                }
            };
            // What replaces an entry asks for room to insert one all the same.
            let cost = self.fs.layout.dir_insert_cost(&self.node(to.0).inode)?;
            dearest = dearest.max(cost.dirtied as usize);
            if inserts {
                needs.images += cost.dirtied as usize;
                needs.blocks += u64::from(cost.appended);
            }
        }
        needs.images += dearest;
        for file in plan.files.iter().filter(|f| f.changed()) {
            needs.images += FILE_BLOCKS + file.attributes.len() * ATTRIBUTE_BLOCKS;
            needs.blocks += ATTRIBUTE_SPACE * u64::from(!file.attributes.is_empty());
            needs.blocks += self.homeless_of(file)?;
            if let Some(ino) = file.ino.filter(|_| file.resized) {
                let tree =
                    usize::try_from(self.fs.layout.worst_case_touched(&self.node(ino).inode)?);
                let extents = self.extents_behind(ino, block_up(file.kept))?;
                let extents = extents.ok_or_else(|| errno(libc::E2BIG))?;
                needs.images += TRUNCATE_BLOCKS + tree.unwrap_or(0) + extents * FREED_EXTENT_BLOCKS;
            }
        }
        Ok(needs)
    }

    /// Blocks that must be found for the bytes that a file gets.
    fn homeless_of(&mut self, file: &File) -> Result<u64> {
        let mut blocks = 0;
        for (first, end) in pages_of(file.shadow.written()).iter() {
            let kept = match file.ino {
                Some(_) => (file.kept / BLOCK_BYTES).clamp(first, end),
                None => first,
            };
            blocks += end - kept;
            if let Some(ino) = file.ino.filter(|_| first < kept) {
                let homeless = self.homeless(ino, first, kept)?;
                blocks += homeless.iter().map(|(start, end)| end - start).sum::<u64>();
            }
        }
        Ok(with_path(blocks))
    }

    /// Extents from a block on; `None` if they are too many for one step.
    fn extents_behind(&mut self, ino: InodeNr, first: u64) -> Result<Option<usize>> {
        let (mut extents, mut block) = (0, first);
        let end = siftfs_proto::MAX_FILE_SIZE / BLOCK_BYTES;
        while block < end {
            let node = self.inodes.get(&ino).expect("loaded before use");
            let len = match self.fs.layout.map(&mut self.meta, &node.inode, block, end - block)? {
                Mapping::Hole { len } => len,
                Mapping::Mapped { len, .. } => {
                    extents += 1;
                    len
                }
            };
            if extents > MOST_EXTENTS {
                return Ok(None);
            }
            block += len.max(1);
        }
        Ok(Some(extents))
    }

    /// What the record has beside what it would have if only the bytes were written.
    fn extra_of(&mut self, plan: &Plan<'_>, files: &[InodeNr]) -> Result<Extra> {
        let mut extra = Extra::default();
        extra.items.extend(plan.changes.iter().map(|change| name_op(plan, change)));
        for file in plan.files.iter() {
            let ino = file.ino.unwrap_or(ROOT_INO);
            if file.ino.is_some_and(|ino| !files.contains(&ino)) {
                continue;
            }
            extra.items.push(Item::Inode(self.inode_item(plan.base, Some(file.size))));
            let zero = Item::Zero { ino, generation: 1, offset: 0, len: 1 };
            let ranges = one_per_page(file.shadow.written().clone());
            if file.resized {
                extra.items.push(Item::Truncate { ino, generation: 1, size: 0 });
                extra.items.extend(vec![zero.clone(); 2 + ranges.ranges()]);
            }
            match &file.made {
                None => {
                    let list = self.whole_xattrs(ino)?;
                    if !list.is_empty() {
                        extra.items.push(Item::Xattrs { ino, generation: 1, list });
                    }
                }
                Some(made) => {
                    extra.items.extend(vec![zero; ranges.ranges()]);
                    let list = made.xattrs.clone();
                    extra.items.push(Item::Xattrs { ino, generation: 1, list });
                    for (start, end) in ranges.iter() {
                        let len = u32::try_from(end - start).unwrap_or(u32::MAX);
                        let (generation, offset, data_offset) = (1, start, 0);
                        extra.items.push(Item::Data {
                            ino,
                            generation,
                            offset,
                            len,
                            data_offset,
                            home: None,
                        });
                        extra.ranges += 1;
                        extra.bytes += end - start;
                    }
                    extra.files += 1;
                }
            }
        }
        Ok(extra)
    }
}

/// The existing files that the plan changes, or that it gives or takes names.
pub fn files_of(plan: &Plan<'_>) -> Vec<InodeNr> {
    let mut touched: BTreeSet<FileNr> = plan.unlinked.iter().copied().collect();
    for change in &plan.changes {
        match change {
            Change::Create(file, _) | Change::Link(file, _) => {
                touched.insert(*file);
            }
            Change::Rename { file, displaced, .. } => {
                touched.extend(std::iter::once(*file).chain(*displaced));
            }
            Change::Unlink(..) => {}
        }
    }
    let changed =
        |(nr, file): (FileNr, &File)| file.ino.filter(|_| file.changed() || touched.contains(&nr));
    plan.files.iter().enumerate().filter_map(changed).collect()
}

/// The files of the volume whose bytes the plan changes, before it is applied.
pub fn written_of(plan: &Plan<'_>, st: &State) -> Vec<WrittenFile> {
    let written = |file: &File| {
        let ino = file.ino.filter(|_| file.written || file.resized)?;
        let (resized, grown) = (file.resized, file.size > st.metadata.tree.node(ino).size);
        Some(WrittenFile { ino, resized, grown })
    };
    plan.files.iter().filter_map(written).collect()
}

/// The names that the plan changes, each once.
pub fn names_of(plan: &Plan<'_>) -> Vec<Name> {
    let mut names = BTreeSet::new();
    for change in &plan.changes {
        match change {
            Change::Create(_, name) | Change::Link(_, name) | Change::Unlink(name) => {
                names.insert(name.clone());
            }
            Change::Rename { from, to, .. } => {
                names.extend([from.clone(), to.clone()]);
            }
        }
    }
    names.into_iter().collect()
}

/// As long as the operation's item will be.
fn name_op(plan: &Plan<'_>, change: &Change) -> Item {
    let ino = ROOT_INO;
    let kind = match change {
        Change::Create(file, (dir, name)) => NameOpKind::Create {
            dir: *dir,
            name: name.clone(),
            ino,
            generation: 1,
            mode: plan.files[*file].guard.mode.into(),
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Vec::new(),
        },
        Change::Link(_, (dir, name)) => NameOpKind::Link { dir: *dir, name: name.clone(), ino },
        Change::Unlink((dir, name)) => NameOpKind::Unlink { dir: *dir, name: name.clone(), ino },
        Change::Rename { from, to, .. } => NameOpKind::Rename {
            dir: from.0,
            name: from.1.clone(),
            new_dir: to.0,
            new_name: to.1.clone(),
            ino,
            displaced: 0,
        },
    };
    Item::NameOp(NameOp { lsn: Lsn(1), time: Timestamp::default(), kind })
}

/// Changes of attributes in order, with those joined that say the same.
pub fn in_order(list: &[SetAttr]) -> impl Iterator<Item = &SetAttr> {
    list.iter().enumerate().filter(|(i, set)| *i == 0 || list[*i - 1] != **set).map(|(_, set)| set)
}
