//! Which blocks of a leased file a program gets, to read and write them at the storage's target by
//! itself (`docs/design/target.md`, "The data plane").

use super::Call;
use super::leases::takes_bytes_alone;
use crate::data::appended::{is_mapped_durably, set_room_aside};
use crate::direct_plane::{Admits, DirectPlane};
use crate::session::{direct, readers};
use crate::staging::capture::Asked;
use crate::state::State;
use crate::state::leases::direct::Offered;
use crate::state::leases::readers::{Reader, Whose};
use crate::state::step::{Step, Stop};
use siftfs_base::{BLOCK_BYTES, Blocks, Error, InodeNr, RangeSet, Result, errno};
use siftfs_ext4::Mapping;
use siftfs_proto::compound::Access;
use siftfs_proto::{Direct, DirectRun, LeaseId, MAX_FILE_SIZE, ROOM_MOST, Reply, Target};
use siftfs_status::Urgency;
use siftfs_wire::{GRANT_MAX_FRESH, GRANT_MAX_RUNS};

/// Runs of blocks that are granted at most.
const MOST_RUNS: usize = GRANT_MAX_RUNS;
/// Fresh blocks that are granted at most.
const MOST_FRESH: u64 = GRANT_MAX_FRESH;
/// Of both, what is kept for the end of a file with room behind it.
const TAIL: (usize, u64) = (MOST_RUNS / 2, ROOM_MOST / BLOCK_BYTES);

impl Call<'_> {
    pub(super) fn lease_direct(&self, lease: LeaseId, file: Target, room: u64) -> Result<Reply> {
        let runtime = self.runtime;
        let plane = runtime.direct.as_deref().ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        runtime.seq.check()?;
        let ino = self.query_step(|st| self.ask_direct(st, lease, file))?;
        let granted = self.grant_direct(plane, ino, (lease, room));
        if granted.is_err() {
            direct::forget_grant(runtime, ino);
        }
        granted.map(Reply::Direct)
    }

    /// As [`Call::lease_direct`], for a lease that was taken just now. What is not granted is asked
    /// for again by him who wants it.
    pub(super) fn grant_with(
        &self,
        lease: LeaseId,
        file: Target,
        room: u64,
    ) -> Option<Box<Direct>> {
        match self.lease_direct(lease, file, room).and_then(Reply::direct) {
            Ok(granted) => Some(granted.into()),
            Err(error) => {
                tracing::debug!(%error, "nothing is granted with a lease");
                None
            }
        }
    }

    /// From here on until the grant, or its failure, this thread is at it.
    fn ask_direct(&self, st: &mut State, lease: LeaseId, file: Target) -> Step<InodeNr> {
        let ino = self.leased_file(st, lease, file)?;
        st.leases.direct.touch(ino)?;
        if st.leases.direct.take_lost(ino) {
            return Err(errno(libc::EIO).into());
        }
        takes_bytes_alone(st, ino)?;
        st.leases.direct.ask(ino, lease)?;
        Ok(ino)
    }

    /// The file, which the caller has open to read and write, of a lease that nobody wants back.
    fn leased_file(&self, st: &mut State, lease: LeaseId, file: Target) -> Result<InodeNr> {
        let ino = self.use_lease(st, lease)?;
        let wanted = st.metadata.tree.target((self.session.id, file), Access::Both)?;
        if wanted != ino || st.leases.is_recalled(ino) {
            return Err(errno(libc::ESTALE));
        }
        Ok(ino)
    }

    fn grant_direct(
        &self,
        plane: &dyn DirectPlane,
        ino: InodeNr,
        (lease, room): (LeaseId, u64),
    ) -> Result<Direct> {
        let runtime = self.runtime;
        self.bring(ino)?;
        self.set_room_aside(ino, (lease, room))?;
        let runs = runtime.drive(libc::EAGAIN, || {
            let mut st = runtime.lock();
            if st.fills.meets(ino, &(0..u64::MAX)) {
                // What it brings may be older than what is written meanwhile.
                return Err(Stop::Wait(ino, 0..u64::MAX));
            }
            self.use_lease(&mut st, lease)?;
            let (runs, offered) = choose(&mut st, ino, (0, room))?;
            st.leases.direct.offer(ino, offered);
            Ok(runs)
        })?;
        let granted = at_target(plane, (lease, ino), true, runs)?;
        runtime.lock().leases.direct.granted(ino);
        runtime.lease_ended.notify_all();
        Ok(granted)
    }

    /// More by the grant that there is, which stays.
    pub(super) fn lease_extend(
        &self,
        lease: LeaseId,
        file: Target,
        (first, end): (u64, u64),
    ) -> Result<Reply> {
        let runtime = self.runtime;
        let plane = runtime.direct.as_deref().ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        runtime.seq.check()?;
        let (ino, size) = self.query_step(|st| {
            let ino = self.leased_file(st, lease, file)?;
            st.leases.direct.may_extend(ino, lease)?;
            Ok((ino, st.metadata.tree.node(ino).size))
        })?;
        self.bring(ino)?;
        let room = end.saturating_sub(size);
        self.set_room_aside(ino, (lease, room))?;
        let (runs, offered) = self.offer_more(ino, lease, (first, room))?;
        if runs.is_empty() {
            return Ok(Reply::Extended(runs));
        }
        let granted = plane.extend(lease, &runs);
        runtime.lock().leases.direct.extended(ino, &offered, granted.is_ok());
        runtime.lease_ended.notify_all();
        granted.map(|()| Reply::Extended(runs)).map_err(not_granted)
    }

    /// Chooses what is granted besides, when no other thread asks the target about the file. From
    /// here on this one does, unless nothing was chosen.
    fn offer_more(
        &self,
        ino: InodeNr,
        lease: LeaseId,
        (first, room): (u64, u64),
    ) -> Result<(Vec<DirectRun>, Offered)> {
        let runtime = self.runtime;
        runtime.drive(libc::EAGAIN, || {
            let mut st = direct::once_granted(runtime, ino, lease)?;
            if st.fills.meets(ino, &(0..u64::MAX)) {
                return Err(Stop::Wait(ino, 0..u64::MAX));
            }
            self.use_lease(&mut st, lease)?;
            let (runs, offered) = choose(&mut st, ino, (first, room))?;
            if !runs.is_empty() {
                st.leases.direct.offer_more(ino, &offered);
            }
            Ok((runs, offered))
        })
    }

    /// Sets room aside behind the end of the file, as far as there is space. What the file has of
    /// unwritten blocks is journaled when this returns: none of them is granted before.
    fn set_room_aside(&self, ino: InodeNr, (lease, room): (LeaseId, u64)) -> Result<()> {
        let runtime = self.runtime;
        if room > 0 {
            let set = runtime.mutate(&self.doing, |st| {
                self.use_lease(st, lease)?;
                let privileged = st.metadata.tree.privileged(self.cred);
                set_room_aside(st, ino, room, privileged)
            });
            match set {
                Err(Error::Posix(libc::ENOSPC)) => {}
                set => set?,
            }
        }
        if !is_mapped_durably(&runtime.lock(), ino) {
            let _journaled = runtime.full_commit(ino)?;
        }
        Ok(())
    }

    /// Brings home what is pending of the file, unless that was done for any file just now.
    fn bring(&self, ino: InodeNr) -> Result<()> {
        if self.is_to_bring(ino)? {
            let _durable = self.runtime.fsync(ino, Asked::default())?;
            let _journaled = self.runtime.full_commit(ino)?;
            self.runtime.checkpoint(Urgency::Emergency)?;
        }
        Ok(())
    }

    /// Is something of the file pending, and may it be brought home now?
    fn is_to_bring(&self, ino: InodeNr) -> Result<bool> {
        self.query(|st| {
            st.metadata.tree.load_regular(ino)?;
            let node = st.metadata.tree.node(ino);
            let home = node.overlay.is_empty() && node.dirty_pages == 0 && node.sent.is_empty();
            let now = st.metadata.log.time.mono_ns();
            Ok(!home && st.leases.direct.may_bring(now))
        })
    }
}

/// To read what nobody has alone.
impl Call<'_> {
    pub(super) fn read_direct(&self, file: Target) -> Result<Reply> {
        let runtime = self.runtime;
        let plane = runtime.direct.as_deref().ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        let Target::Open(handle) = file else { return Err(errno(libc::EINVAL)) };
        runtime.seq.check()?;
        let reader = Reader { session: self.session.id, handle };
        readers::end(runtime, Whose::Handle(reader));
        let (ino, id) = self.query_step(|st| Ok(ask_to_read(st, file, reader)?))?;
        let granted = self.grant_to_read(plane, ino, id);
        if granted.is_err() {
            readers::forget(runtime, id);
        }
        granted.map(Reply::Direct)
    }

    fn grant_to_read(&self, plane: &dyn DirectPlane, ino: InodeNr, id: LeaseId) -> Result<Direct> {
        let runtime = self.runtime;
        self.bring(ino)?;
        let runs = {
            let mut st = runtime.lock();
            let runs = homes(&mut st, ino, (0, None))?;
            if !st.leases.direct.readers.offer(id) {
                return Err(errno(libc::EAGAIN));
            }
            runs
        };
        let granted = at_target(plane, (id, ino), false, runs)?;
        runtime.lock().leases.direct.readers.granted(id);
        runtime.lease_ended.notify_all();
        Ok(granted)
    }
}

/// From here on until the grant, or its failure, the calling thread is at it. The request has
/// touched the file, as one that reads does.
fn ask_to_read(st: &mut State, file: Target, reader: Reader) -> Result<(InodeNr, LeaseId)> {
    if st.metadata.log.config.read_only {
        return Err(errno(libc::EOPNOTSUPP));
    }
    let ino = st.metadata.tree.target((reader.session, file), Access::Read)?;
    st.metadata.tree.load_regular(ino)?;
    if st.leases.is_leased(ino) || st.sections.has(ino) {
        return Err(errno(libc::EAGAIN));
    }
    let (id, now) = (st.leases.draw(), st.metadata.log.time.mono_ns());
    let State { leases, metadata, .. } = st;
    leases.direct.readers.ask((ino, now), (reader, id), &mut metadata.tree.inodes)?;
    Ok((ino, id))
}

/// The target grants these blocks.
///
/// # Errors
/// `EAGAIN` if it does not. Any other error says that the storage is lost for good.
fn at_target(
    plane: &dyn DirectPlane,
    named: (LeaseId, InodeNr),
    write: bool,
    runs: Vec<DirectRun>,
) -> Result<Direct> {
    let granted = plane.grant(named, write, &runs);
    granted.map(|Admits { token, target }| Direct { token, target, runs }).map_err(not_granted)
}

/// What its program is told where the target grants nothing.
fn not_granted(error: Error) -> Error {
    match error {
        Error::Refused(why) => {
            tracing::warn!(why, "the target grants nothing");
            errno(libc::EAGAIN)
        }
        other => other,
    }
}

/// Chooses blocks of a file, from this one on, that lie in their homes and nowhere else, so that
/// nothing which is staged, journaled or under way will be written to them, now or by a recovery
/// (rule R42). None is granted already. The page cache forgets them.
fn choose(
    st: &mut State,
    ino: InodeNr,
    (first, room): (u64, u64),
) -> Result<(Vec<DirectRun>, Offered)> {
    let runs = homes(st, ino, (first, Some(room)))?;
    let mut offered = Offered::default();
    for DirectRun { first, count, fresh, .. } in &runs {
        offered.blocks.insert(*first, first + count);
        if *fresh {
            offered.fresh.insert(*first, first + count);
        }
        st.pages.remove_range(ino, *first, first + count);
    }
    Ok((runs, offered))
}

/// What of a file lies in its homes: of what was written, the blocks that are whole within the
/// size. With room, unwritten blocks as well, up to that many bytes behind the end.
fn homes(
    st: &mut State,
    ino: InodeNr,
    (first, room): (u64, Option<u64>),
) -> Result<Vec<DirectRun>> {
    st.metadata.tree.load_regular(ino)?;
    let node = st.metadata.tree.node(ino);
    let whole = node.size.min(node.inode.size) / BLOCK_BYTES;
    let room = room.filter(|_| is_mapped_durably(st, ino));
    let behind = |room: u64| node.size.saturating_add(room.min(ROOM_MOST)).min(MAX_FILE_SIZE);
    let end = room.map_or(whole, |room| behind(room).div_ceil(BLOCK_BYTES));
    let granted = st.leases.direct.fresh_blocks(ino);
    let (mut runs, mut at, mut left) = (Vec::new(), first, MOST_FRESH.saturating_sub(granted));
    let tail = if room > Some(0) { node.size / BLOCK_BYTES } else { 0 };
    while at < end && runs.len() < MOST_RUNS {
        if at < tail && (runs.len() + TAIL.0 >= MOST_RUNS || left <= TAIL.1) {
            at = tail;
        }
        let tree = &mut st.metadata.tree;
        let node = tree.inodes.get(&ino).expect("just loaded");
        match tree.fs.layout.map(&mut tree.meta, &node.inode, at, end - at)? {
            Mapping::Mapped { pblk, len, unwritten: fresh } => {
                let len = len.clamp(1, end - at);
                let most = match fresh {
                    true if room.is_some() => len.min(left),
                    true => 0,
                    false => len.min(whole.saturating_sub(at)),
                };
                let run = DirectRun { first: at, block: pblk, count: most, fresh };
                at_home(st, ino, run, &mut runs);
                left -= if fresh { most } else { 0 };
                at += len;
            }
            Mapping::Hole { len } => at += len.clamp(1, end - at),
        }
    }
    runs.truncate(MOST_RUNS);
    Ok(runs)
}

/// The parts of a run of which no byte is newer elsewhere, and that are not granted yet.
fn at_home(st: &State, ino: InodeNr, run: DirectRun, found: &mut Vec<DirectRun>) {
    let node = st.metadata.tree.node(ino);
    let end = run.first + run.count;
    let mut busy = RangeSet::<Blocks>::new();
    let bytes = (run.first * BLOCK_BYTES, end * BLOCK_BYTES);
    let dirty = node.data.each().into_iter().flat_map(|data| data.overlapping(bytes.0, bytes.1));
    let newer = node.overlay.overlapping(bytes.0, bytes.1).map(|part| (part.start, part.end));
    for (start, end) in dirty.chain(newer) {
        busy.insert(start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
    }
    let granted = st.leases.direct.blocks(ino);
    let granted = granted.into_iter().flat_map(|blocks| blocks.overlapping(run.first, end));
    let sent = node.sent.overlapping(run.first, end);
    sent.chain(granted).for_each(|(start, end)| busy.insert(start, end));
    let homes = busy.gaps(run.first, end).into_iter().map(|(first, end)| DirectRun {
        first,
        block: run.block + (first - run.first),
        count: end - first,
        fresh: run.fresh,
    });
    found.extend(homes);
}
