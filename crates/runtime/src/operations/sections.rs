//! Atomic sections: many writes of one file, or of several, that become the files' in one staged
//! transaction (rules R25 to R27; `docs/design/operations.md`, "Atomic sections").
//!
//! A commit is one hold of the state lock: everything is checked, then applied, then staged. What
//! prevents that is found by the check, when nothing has changed yet, and is brought out of the way
//! without the lock.

use crate::data::file::{Input, MAX_FILE_SIZE};
use crate::data::ranges::{block_up, one_per_page, pages_of};
use crate::endpoint::Call;
use crate::operations::group::{Checked, Group, Hindrance};
use crate::staging::capture::{Asked, Coming, Selection};
use crate::staging::not_staged::NotStaged;
use crate::staging::pause::Pause;
use crate::staging::sequencer::{Sequencer, Writer};
use crate::staging::unwritten::Staged;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::log::names::Unstageable;
use crate::state::room::{SECTION_BLOCKS, SECTIONS_PART, head_bytes, with_path};
use crate::state::shadow::Shadow;
use crate::state::step::Step;
use crate::state::tree::references::SessionId;
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, RangeSet, Result, Timestamp, corrupt, errno};
use siftfs_device::Origin;
use siftfs_proto::compound::Access;
use siftfs_proto::{Reply, SectionId, Target, WriteData};
use std::convert::Infallible;

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

impl Call<'_> {
    /// Starts a section on a file.
    ///
    /// # Errors
    /// `EBUSY` if the file has one, or the session has a write lease of it; `EMFILE` if there are
    /// too many, `ENOENT` for a file that has no name and never will, `EROFS`, `EBADF` for a handle
    /// that may not read and write.
    pub(crate) fn start_section(&self, file: Target) -> Result<SectionId> {
        self.runtime.drive(libc::EAGAIN, || self.try_start(file))
    }

    fn try_start(&self, file: Target) -> Step<SectionId> {
        self.runtime.seq.check()?;
        let mut st = self.runtime.lock();
        st.metadata.log.may_change()?;
        let ino = st.metadata.tree.target((self.session.id, file), Access::Both)?;
        st.metadata.tree.load_regular(ino)?;
        if st.metadata.tree.node(ino).is_dead() {
            return Err(errno(libc::ENOENT).into());
        }
        if st.metadata.tree.inodes.references.held(self.session.id).is_none() {
            // It has ended meanwhile, and would leave the section behind.
            return Err(errno(libc::ESTALE).into());
        }
        self.doing.touch(&mut st)?;
        if st.leases.holder_of(ino) == Some(self.session.id) {
            return Err(errno(libc::EBUSY).into());
        }
        Ok(st.sections.start((self.session.id, self.cred.uid), ino)?)
    }

    /// Writes into a section. Nothing of it reaches storage.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's, `EFBIG` if it would outgrow one record or
    /// the largest file, all sections half of the page cache, or its user the memory that it may
    /// have; it stays as it was then.
    pub(crate) fn write_section(
        &self,
        id: SectionId,
        offset: u64,
        data: &WriteData,
    ) -> Result<Reply> {
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        self.runtime.seq.check()?;
        self.runtime.lock().write_section(self.session.id, id, offset, data)?;
        Ok(Reply::Written { len })
    }

    /// Reads the file as the section's commit would leave it.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's, and those of a read.
    pub(crate) fn read_section(&self, id: SectionId, offset: u64, len: u32) -> Result<Reply> {
        let read = || {
            let mut st = self.runtime.lock();
            let result = st.read_section(self.session.id, id, offset, len);
            st.shrink_caches(self.runtime.seq.oldest_unwritten());
            result
        };
        self.runtime.drive(libc::EIO, read).map(Reply::Data)
    }

    /// Ends a section without a trace.
    ///
    /// # Errors
    /// `EINVAL` for a section that is not this session's.
    pub(crate) fn abort_section(&self, id: SectionId) -> Result<()> {
        self.runtime.lock().sections.end(self.session.id, id).map(drop)
    }

    /// Applies sections and stages them in one record.
    ///
    /// # Errors
    /// `ECANCELED` if one is void, `EINVAL` if one is not this session's or named twice, `EFBIG` if
    /// one record does not take them together, `EPERM` for a file that became immutable, `ENOSPC`,
    /// `EROFS`; `EAGAIN` if what kept them out of a record came back again and again. Nothing was
    /// applied then, and the sections stay. After a failure of the storage, `EIO`.
    pub(crate) fn commit_sections(&self, commit: &Commit<'_>) -> Result<()> {
        match self
            .runtime
            .drive_group(&self.doing, &mut CommitSections { seq: &self.runtime.seq, commit })?
        {
            None => Ok(()),
            Some((staged, pause)) if commit.durable => {
                self.runtime.make_durable(staged, pause).map(drop)
            }
            Some((staged, _)) => self.runtime.write_staged(staged, Origin::Foreground),
        }
    }
}

/// The commit of sections as a group.
struct CommitSections<'a> {
    seq: &'a Sequencer,
    commit: &'a Commit<'a>,
}

/// A commit that can be applied.
struct Ready {
    files: Vec<InodeNr>,
    /// The longest that the record will be, in bytes.
    longest: u64,
}

impl Group for CommitSections<'_> {
    const NAME: &'static str = "commit of sections";
    type Ready<'a>
        = Ready
    where
        Self: 'a;
    /// The record, unless the sections were empty.
    type Done = Option<(Staged, Pause)>;
    type Job = Infallible;

    fn check(&self, st: &mut State) -> std::result::Result<Checked<Self, Ready>, Hindrance> {
        st.metadata.log.may_change()?;
        let Some(coming) = st.coming(self.commit)? else {
            for id in self.commit.sections {
                drop(st.sections.end(self.commit.session, *id)?);
            }
            return Ok(Checked::Answer(None));
        };
        st.check_sections(self.commit, &coming).map(Checked::Ready)
    }

    fn apply(&self, st: &mut State, ready: Ready) -> Step<Self::Done> {
        st.apply_sections(self.seq, self.commit, &ready).map(Some)
    }

    fn compute(&mut self, job: Infallible) {
        match job {}
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
        if pages > self.pages.limit() as u64 / SECTIONS_PART
            || !self.metadata.fits_a_record(ino, written)?
        {
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

    /// Applies and stages; nothing of it can fail (rule R25).
    fn apply_sections(
        &mut self,
        seq: &Sequencer,
        commit: &Commit<'_>,
        Ready { files, longest }: &Ready,
    ) -> Step<(Staged, Pause)> {
        let time = self.metadata.log.now();
        self.metadata.log.changes.ordered();
        for id in commit.sections {
            let section = self.sections.end(commit.session, *id)?;
            if !section.written().is_empty() {
                self.apply_shadow(section.ino(), section.shadow(), commit.times.then_some(time));
            }
        }
        let Ok(Some(draft)) = self.metadata.draft(files, Asked::default(), &Selection::All) else {
            return Err(corrupt(CommitSections::NAME, "what was checked is not staged").into());
        };
        assert!(draft.len() <= *longest, "a record is as long as the check said, or shorter");
        let (lane, len) = (draft.lane(), draft.len());
        let writer = if commit.durable { Writer::Caller } else { Writer::Background };
        let staged = self.stage_draft(seq, draft, writer);
        for ino in files {
            self.metadata.tree.node_mut(*ino).fsynced = true;
        }
        Ok((staged, Pause::at(self.metadata.fill(lane), len)))
    }

    /// May the sections be applied, and staged in one record? Nothing changes.
    fn check_sections(
        &mut self,
        commit: &Commit<'_>,
        coming: &Coming,
    ) -> std::result::Result<Ready, Hindrance> {
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
        let draft = match self.metadata.draft(&files, Asked::default(), &Selection::With(coming)) {
            Ok(Some(draft)) => draft,
            Ok(None) => panic!("there are bytes to stage"),
            Err(NotStaged::Unstageable(Unstageable::TooMuchData)) => {
                return Err(self.metadata.too_much(files));
            }
            Err(other) => return Err(other.into()),
        };
        if !self.metadata.has_room(&draft, SECTION_BLOCKS * files.len())? {
            return Err(self.metadata.too_much(files));
        }
        if blocks > 0 {
            self.metadata.check_space(blocks, commit.privileged)?;
        }
        Ok(Ready { files, longest: draft.len() })
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
    fn too_much(&self, mut files: Vec<InodeNr>) -> Hindrance {
        files.retain(|ino| !self.tree.node(*ino).is_durable());
        if !files.is_empty() {
            return Hindrance::Unsynced(files);
        }
        // The permissions of others were in that record, too.
        if !self.log.running.permissions.is_empty() {
            return Hindrance::Pending(Unstageable::TooMuchData);
        }
        errno(libc::EFBIG).into()
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
