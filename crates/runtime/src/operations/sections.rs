//! Atomic sections: many writes of one file, or of several, that become the files' in one staged
//! transaction (rules R25 to R27; `docs/design/operations.md`, "Atomic sections").
//!
//! A commit is one hold of the state lock: everything is checked, then applied, then staged. What
//! prevents that is found by the check, when nothing has changed yet, and is brought out of the way
//! without the lock.

use crate::data::file::{Input, MAX_FILE_SIZE};
use crate::data::ranges::{block_up, one_per_page, pages_of};
use crate::operations::ROUNDS;
use crate::runtime::Runtime;
use crate::staging::capture::{Coming, Selection};
use crate::staging::pause::Pause;
use crate::staging::sequencer::{Sequencer, Writer};
use crate::staging::unwritten::Staged;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::log::names::Unstageable;
use crate::state::room::{SECTION_BLOCKS, head_bytes, with_path};
use crate::state::sections::Section;
use crate::state::shadow::Shadow;
use crate::state::step::{Need, Step, Stop};
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, RangeSet, Result, Timestamp, errno};
use siftfs_device::Origin;
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, Reply, SectionId, SessionId, Target, WriteData};

/// A commit that a caller asked for.
pub struct Commit<'a> {
    /// The caller's session.
    pub session: SessionId,
    /// The sections, each once.
    pub sections: &'a [SectionId],
    /// It is durable when it returns.
    pub durable: bool,
    /// The files' mtime and ctime move.
    pub times: bool,
    /// The caller may use the blocks that are held back for root.
    pub privileged: bool,
}

/// What a try came to.
enum Tried {
    /// The sections were empty.
    Nothing,
    /// Applied and staged.
    Staged(Staged, Pause),
    /// Unsynced data of these files keeps the sections out of a record.
    Unsynced(Vec<InodeNr>),
    /// Only a background transaction brings this out of the way.
    Unstageable(Unstageable, Vec<InodeNr>),
}

/// What the check of a commit found.
enum Checked {
    /// It can be applied: the files, and the longest that the record will be.
    Ready(Vec<InodeNr>, u64),
    Not(Tried),
}

impl Runtime {
    /// Starts a section on a file.
    ///
    /// # Errors
    /// `EBUSY` if the file has one, `EMFILE` if there are too many, `ENOENT` for a file that has no
    /// name and never will, `EROFS`, `EBADF` for a handle that may not read and write.
    pub fn start_section(
        &self,
        session: SessionId,
        cred: &Credentials,
        file: Target,
    ) -> Result<SectionId> {
        self.seq.check()?;
        let mut st = self.lock();
        if st.metadata.log.config.read_only {
            return Err(errno(libc::EROFS));
        }
        let ino = st.metadata.tree.target((session, file), Access::Both)?;
        st.metadata.tree.load_regular(ino)?;
        if st.metadata.tree.node(ino).is_dead() {
            return Err(errno(libc::ENOENT));
        }
        st.sections.start((session, cred.uid), ino)
    }

    /// Writes into a section. Nothing of it reaches storage.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's, `EFBIG` if it would outgrow one record or
    /// the largest file, all sections half of the page cache, or its user the memory that it may
    /// have; it stays as it was then.
    pub fn write_section(
        &self,
        session: SessionId,
        id: SectionId,
        offset: u64,
        data: &WriteData,
    ) -> Result<Reply> {
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        self.seq.check()?;
        self.lock().write_section(session, id, offset, data)?;
        Ok(Reply::Written { len })
    }

    /// Reads the file as the section's commit would leave it.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's, and those of a read.
    pub fn read_section(
        &self,
        session: SessionId,
        id: SectionId,
        offset: u64,
        len: u32,
    ) -> Result<Reply> {
        let read = || {
            let mut st = self.lock();
            let result = st.read_section(session, id, offset, len);
            st.shrink_caches(self.seq.oldest_unwritten());
            result
        };
        self.drive(libc::EIO, read).map(Reply::Data)
    }

    /// Ends a section without a trace.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's.
    pub fn abort_section(&self, session: SessionId, id: SectionId) -> Result<()> {
        self.lock().sections.end(session, id).map(drop)
    }

    /// Applies sections and stages them in one record.
    ///
    /// # Errors
    /// `ECANCELED` if one is void, `EINVAL` if one is not this session's or named twice, `EFBIG` if
    /// one record does not take them together, `EPERM` for a file that became immutable, `ENOSPC`,
    /// `EROFS`; `EAGAIN` if what kept them out of a record came back again and again. Nothing was
    /// applied then, and the sections stay. After a failure of the storage, `EIO`.
    pub fn commit_sections(&self, commit: &Commit<'_>) -> Result<()> {
        for _ in 0..ROUNDS {
            match self.drive_commit(commit)? {
                Tried::Nothing => return Ok(()),
                Tried::Staged(staged, pause) if commit.durable => {
                    return self.make_durable(staged, pause).map(drop);
                }
                Tried::Staged(staged, _) => return self.write_staged(staged, Origin::Foreground),
                Tried::Unsynced(files) => {
                    for ino in files {
                        let _durable = self.fsync(ino, false)?;
                    }
                }
                Tried::Unstageable(reason, files) => {
                    self.lock().stats.full_commit(reason);
                    for ino in files {
                        let _journaled = self.full_commit(ino)?;
                    }
                }
            }
        }
        Err(errno(libc::EAGAIN))
    }

    fn drive_commit(&self, commit: &Commit<'_>) -> Result<Tried> {
        let mut space_tried = false;
        self.drive(libc::EAGAIN, || {
            self.seq.check()?;
            let mut st = self.lock();
            if st.metadata.log.config.read_only {
                return Err(errno(libc::EROFS).into());
            }
            st.metadata.log.running.begin_operation(space_tried);
            let tried = st.commit_sections(&self.seq, commit);
            space_tried |= matches!(tried, Err(Stop::Needs(Need::Space)));
            self.leave(st);
            tried
        })
    }
}

impl State {
    fn write_section(
        &mut self,
        session: SessionId,
        id: SectionId,
        offset: u64,
        data: &WriteData,
    ) -> Result<()> {
        let section = self.sections.get(session, id)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_FILE_SIZE);
        let end = end.ok_or_else(|| errno(libc::EFBIG))?;
        if matches!(data, WriteData::Blocks(_)) && !offset.is_multiple_of(BLOCK_BYTES) {
            return Err(errno(libc::EINVAL));
        }
        if data.is_empty() {
            return Ok(());
        }
        let (ino, mut written) = (section.ino(), section.written().clone());
        let before = pages_of(&written).total();
        written.insert(offset, end);
        let pages = self.sections.pages() as u64 + pages_of(&written).total() - before;
        if pages > self.pages.limit() as u64 / 2 || !self.metadata.fits_a_record(ino, written)? {
            return Err(errno(libc::EFBIG));
        }
        self.sections.write(session, id, offset, data)
    }

    fn read_section(
        &mut self,
        session: SessionId,
        id: SectionId,
        offset: u64,
        len: u32,
    ) -> Step<Vec<u8>> {
        let section = self.sections.get(session, id)?;
        let (ino, last) = (section.ino(), section.written().max_end().unwrap_or(0));
        let read = self.read(ino, offset, len)?;
        let mut out = read.data().expect("a read is answered by data");
        let end =
            self.metadata.tree.node(ino).size.max(last).min(offset.saturating_add(u64::from(len)));
        out.resize(usize::try_from(end.saturating_sub(offset)).unwrap_or(0), 0);
        self.sections.get(session, id)?.shadow().lay_over(offset, &mut out);
        Ok(out)
    }

    /// One try: check, apply, stage.
    fn commit_sections(&mut self, seq: &Sequencer, commit: &Commit<'_>) -> Step<Tried> {
        let (files, longest) = match self.check_sections(commit)? {
            Checked::Ready(files, longest) => (files, longest),
            Checked::Not(tried) => return Ok(tried),
        };
        // From here on nothing can fail (rule R25).
        let time = self.metadata.log.now();
        let end = |st: &mut Self, id| st.sections.end(commit.session, id).expect("checked before");
        let ended: Vec<Section> = commit.sections.iter().map(|id| end(self, *id)).collect();
        for section in ended.iter().filter(|s| !s.written().is_empty()) {
            self.apply_shadow(section.ino(), section.shadow(), commit.times.then_some(time));
        }
        let draft = self.metadata.draft(&files, false, &Selection::All);
        let Ok(Ok(Some(draft))) = draft else { panic!("sections that were checked are staged") };
        assert!(draft.len() <= longest, "a record is as long as the check said, or shorter");
        let (lane, len) = (draft.lane(), draft.len());
        let staged = self.stage_draft(
            seq,
            draft,
            if commit.durable { Writer::Caller } else { Writer::Background },
        );
        for ino in files {
            self.metadata.tree.node_mut(ino).fsynced = true;
        }
        Ok(Tried::Staged(staged, Pause::at(self.metadata.fill(lane), len)))
    }

    /// May the sections be applied, and staged in one record? Nothing changes.
    fn check_sections(&mut self, commit: &Commit<'_>) -> Step<Checked> {
        let Some(coming) = self.coming(commit)? else {
            for id in commit.sections {
                drop(self.sections.end(commit.session, *id)?);
            }
            return Ok(Checked::Not(Tried::Nothing));
        };
        let files: Vec<InodeNr> = coming.bytes.keys().copied().collect();
        let mut blocks = 0;
        for (ino, written) in &coming.bytes {
            self.load_whole(*ino)?;
            let first = written.iter().next().expect("not empty").0;
            self.metadata.tree.may_write(*ino, first)?;
            blocks += with_path(self.metadata.tree.homeless_blocks(*ino, written)?);
            for (start, end) in written.iter() {
                for edge in [start, end] {
                    if edge % BLOCK_BYTES != 0 {
                        self.plan_edge(*ino, edge / BLOCK_BYTES)?;
                    }
                }
            }
        }
        let draft = match self.metadata.draft(&files, false, &Selection::With(&coming))? {
            Ok(Some(draft)) => draft,
            Ok(None) => panic!("there are bytes to stage"),
            Err(Unstageable::TooMuchData) => {
                return self.metadata.too_much(files).map(Checked::Not);
            }
            Err(reason) => return Ok(Checked::Not(Tried::Unstageable(reason, files))),
        };
        if !self.metadata.has_room(&draft, SECTION_BLOCKS * files.len())? {
            return self.metadata.too_much(files).map(Checked::Not);
        }
        if blocks > 0 {
            self.metadata.check_space(blocks, commit.privileged)?;
        }
        Ok(Checked::Ready(files, draft.len()))
    }

    /// The bytes that the sections bring, by file; `None` if there are none.
    fn coming(&self, commit: &Commit<'_>) -> Result<Option<Coming>> {
        let mut coming = Coming::default();
        let mut seen = std::collections::BTreeSet::new();
        for id in commit.sections {
            let section = self.sections.get(commit.session, *id)?;
            if !seen.insert(*id) {
                return Err(errno(libc::EINVAL));
            }
            if section.is_void() {
                return Err(errno(libc::ECANCELED));
            }
            if !section.written().is_empty() {
                coming.bytes.insert(section.ino(), section.written().clone());
            }
        }
        Ok((!coming.bytes.is_empty()).then_some(coming))
    }

    /// The bytes beside the file become the file's, as if they had been written now.
    ///
    /// # Panics
    /// If that cannot be: the check was another one's.
    pub fn apply_shadow(&mut self, ino: InodeNr, shadow: &Shadow, time: Option<Timestamp>) {
        for (first, end) in pages_of(shadow.written()).iter() {
            let wanted = self.metadata.tree.homeless(ino, first, end).expect("mapped by the check");
            self.metadata.keep_space(ino, &wanted);
        }
        for (start, end) in shadow.written().iter() {
            self.zero_gap(ino, start).expect("mapped by the check");
            for (at, bytes, page) in shadow.pieces(start, end) {
                match bytes.len() as u64 {
                    BLOCK_BYTES => self.put(ino, at, Input::Blocks(&mut [page.clone()])),
                    _ => self.put(ino, at, Input::Bytes(bytes)),
                }
            }
            self.note_dirty(ino, start, end);
            let node = self.metadata.tree.node_mut(ino);
            node.size = node.size.max(end);
        }
        let node = self.metadata.tree.node_mut(ino);
        if let Some(time) = time {
            (node.inode.mtime, node.inode.ctime) = (time, time);
            node.delta.running_mut().times = true;
        }
        self.metadata.mark_delta(ino);
    }
}

impl Metadata {
    /// Does one record take a file's changes of these ranges, if nothing else is to be in it?
    fn fits_a_record(&mut self, ino: InodeNr, written: RangeSet<Bytes>) -> Result<bool> {
        self.tree.load(ino)?;
        let written = one_per_page(written);
        let (count, bytes) = (written.ranges(), written.total());
        let record = (block_up(head_bytes(count, bytes)) + block_up(bytes)) * BLOCK_BYTES;
        let lane = self.log.staging.lane_of(ino);
        let blocks = self.log.range_blocks(count, bytes) + self.tree.inode_blocks(ino, count);
        Ok(record <= self.log.staging.lanes()[lane].max_record()
            && count <= self.log.most_ranges()
            && bytes <= self.log.most_staged()
            && blocks + SECTION_BLOCKS <= self.log.half_transaction())
    }

    /// One record does not take it all: what of the files is not durable goes before, if there is
    /// anything.
    fn too_much(&self, files: Vec<InodeNr>) -> Step<Tried> {
        let unsynced = |ino: &InodeNr| !self.tree.node(*ino).is_durable();
        let dirty: Vec<InodeNr> = files.iter().copied().filter(unsynced).collect();
        if !dirty.is_empty() {
            return Ok(Tried::Unsynced(dirty));
        }
        // The permissions of others were in that record, too.
        if !self.log.running.permissions.is_empty() {
            return Ok(Tried::Unstageable(Unstageable::TooMuchData, files));
        }
        Err(errno(libc::EFBIG).into())
    }
}

impl Tree {
    fn homeless_blocks(&mut self, ino: InodeNr, written: &RangeSet<Bytes>) -> Result<u64> {
        let mut blocks = 0;
        for (first, end) in pages_of(written).iter() {
            blocks += self.homeless(ino, first, end)?.iter().map(|(s, e)| e - s).sum::<u64>();
        }
        Ok(blocks)
    }
}
