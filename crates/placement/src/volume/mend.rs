//! Where header and area disagree: the signs of a torn superblock, of a mount that did not get far,
//! and of a log that was put back from a copy, and what becomes of them (rules R15, R16).

use crate::mount::open::{Found, Volume};
use crate::volume::discard::LSN_GAP;
use crate::volume::marker;
use siftfs_base::{BLOCK_SIZE, Epoch, Lsn, Result, corrupt};
use siftfs_device::{Origin, RegionReader, Storage};
use siftfs_ext4::{check_super, has_marker, set_marker};
use siftfs_log::{
    HostRecord, HostState, JournalHeader, OPEN_END, RECORD_HEADER_LEN, RecordHeader, next_lap,
};
use siftfs_volume::{
    AreaSuper, HEADER_HOST, HostSlots, JournalScanner, LaneScanner, OlderHost, ScanData,
    first_backup,
};

/// What is left where the log cannot be read.
const GIVE_UP: &str = "What is only in the log cannot be read without it; siftfs recover --discard-log \
                       gives that up";

/// The superblock's count and time of mounts (`s_mtime`, `s_mnt_count`).
fn mounts(superblock: &[u8; 1024]) -> (&[u8], &[u8]) {
    (&superblock[44..48], &superblock[52..54])
}

impl Volume {
    /// A primary superblock that a crash tore is put back as it was intended (rule R15); one that
    /// is whole but unmarked under a header that says mounted is that of a mount which did not get
    /// further, or was changed by another program.
    pub(crate) fn mend_superblock(&self) -> Result<Found> {
        let storage = self.storage()?;
        let area = storage.take_superblocks()?;
        let reader: &RegionReader = &area;
        let primary = marker::read_primary(reader)?;
        let host = &self.view.host;
        let found = match host.state {
            HostState::Clean => Found::Empty,
            HostState::Mounted | HostState::Recovering => Found::InUse,
        };
        self.check_service_record()?;
        let whole = AreaSuper::parse(&primary).is_some_and(|s| s.checksum_ok);
        if !whole {
            check_super(&host.superblock)?;
            if found == Found::Empty {
                self.check_torn_at_the_end(&storage)?;
            }
            tracing::warn!("the superblock was torn; restored from the header");
            // The marker is set even under a clean header: the backups may still have it, and
            // clearing takes the primary last.
            let mut whole = host.superblock.clone();
            set_marker(&mut whole, true);
            marker::write_primary(&area, &whole)?;
            return Ok(found);
        }
        if found == Found::Empty && has_marker(&primary) {
            self.check_interrupted_unmount(&primary)?;
            self.check_nothing_newer(&storage)?;
        }
        if found == Found::Empty || has_marker(&primary) {
            return Ok(found);
        }
        let untouched = AreaSuper::parse(&primary).is_some_and(|s| s.crc == host.area_crc);
        // A registry is named after the marker was set.
        let fresh = host.state == HostState::Mounted && untouched && host.registry.is_none();
        if fresh && self.log_is_empty(&storage)? && !self.has_traces(&storage, host.key.epoch)? {
            return Ok(Found::NeverMounted);
        }
        Err(corrupt(
            "volume",
            "the header says that the log holds changes, but the marker is gone from the \
             superblock: the file system was changed without its log. To give the log up: \
             siftfs recover --discard-log",
        ))
    }

    /// A marked area under a header that says clean: an unmount or a recovery was cut off before it
    /// took the marker away. Then the slot before the newest one still holds what that one had
    /// written, and no mount came after the newest. Otherwise a newer record was there and rotted
    /// in both copies: the log may hold acknowledged changes, under a key that only that record
    /// knew.
    fn check_interrupted_unmount(&self, primary: &[u8; 1024]) -> Result<()> {
        self.check_older_slot()?;
        if mounts(primary) != mounts(&self.view.host.superblock) {
            return Err(corrupt(
                "header",
                format!(
                    "its newest host record says that the log is empty, but the volume was mounted \
                     after that record was written: the record of that mount is gone from both \
                     copies of slot {}. {GIVE_UP}",
                    self.view.older_host_slot()
                ),
            ));
        }
        Ok(())
    }

    fn check_older_slot(&self) -> Result<()> {
        if self.view.older_host == OlderHost::Record {
            return Ok(());
        }
        Err(corrupt(
            "header",
            format!(
                "slot {} is damaged in both copies, and the file system is marked as in use: it may \
                 have held the record of the last mount. {GIVE_UP}",
                self.view.older_host_slot()
            ),
        ))
    }

    /// A damaged superblock under a header that says clean: one that an unmount tore as it took the
    /// marker away, if that header is the newest there was. A checksum that does not hold only
    /// chooses this way, and proves nothing: by itself it rots as well as any other. So whatever
    /// may say that a mount came later is asked: the other host slot, the backups, which lose their
    /// markers before the primary is written, the Service's epoch, and the log.
    fn check_torn_at_the_end(&self, storage: &Storage) -> Result<()> {
        if self.view.host.seq > 0 || self.view.older_host != OlderHost::Blank {
            self.check_older_slot()?;
        }
        if first_backup(&self.view, &*self.media.area)?.is_some_and(|backup| backup.marker) {
            return Err(corrupt(
                "superblock",
                format!(
                    "it is damaged, and its backup is marked as in use, but the newest host record says \
                     that the log is empty: the record of the last mount may be lost. {GIVE_UP}"
                ),
            ));
        }
        self.check_nothing_newer(storage)
    }

    /// A volume that says of itself that it is clean is, unless the newest host record and the
    /// marker were both lost. A host slot that holds no record may have held that one, or a record
    /// that was torn before anything followed it.
    pub(crate) fn check_clean(&self) -> Result<()> {
        match self.view.older_host {
            OlderHost::Record => Ok(()),
            OlderHost::Blank | OlderHost::Lost => self.check_nothing_newer(&self.storage()?),
        }
    }

    /// Under a header that says clean, nothing lies in the log that a later mount wrote.
    fn check_nothing_newer(&self, storage: &Storage) -> Result<()> {
        let next = Epoch(self.view.host.key.epoch.0 + 1);
        if !self.has_traces(storage, next)? {
            return Ok(());
        }
        Err(corrupt(
            "header",
            format!(
                "its newest host record says that the log is empty, but a later mount wrote to it: the \
                 record of that mount is lost. {GIVE_UP}"
            ),
        ))
    }

    /// The Service writes under epochs that a host record has named before, and what it has given
    /// back when a mount begins is all that lies before the mount's first record.
    fn check_service_record(&self) -> Result<()> {
        let (service, host) = (&self.view.service, &self.view.host);
        if service.epoch > host.key.epoch {
            return Err(corrupt(
                "header",
                format!(
                    "the Service's record is of mount {}, the newest host record of mount {}: a newer one \
                     is lost. {GIVE_UP}",
                    service.epoch.0, host.key.epoch.0
                ),
            ));
        }
        let mut lanes = service.lane_tails.iter().zip(&host.lane_heads);
        if host.state == HostState::Mounted && lanes.any(|(tail, head)| tail < head) {
            return Err(corrupt(
                "header",
                format!("the Service's newest record is lost: an older one is left. {GIVE_UP}"),
            ));
        }
        Ok(())
    }

    /// Does anything claim to be of epoch `from` or a later one, where the log's next records would
    /// lie? What has been given back since is under the Service's epoch.
    fn has_traces(&self, storage: &Storage, from: Epoch) -> Result<bool> {
        let (host, service) = (&self.view.host, &self.view.service);
        let mut block = [0; BLOCK_SIZE];
        for (id, head) in self.lane_ids().zip(&host.lane_heads) {
            let region = storage.staging_reader(id)?;
            for pos in [*head, next_lap(*head, region.len())] {
                let unit = self.view.header.medium_of(id).unit().max(RECORD_HEADER_LEN as u64);
                let at = pos % region.len();
                let len = unit.min(region.len() - at) as usize;
                region.read(Origin::Admin, at, &mut block[..len])?;
                let claimed = RecordHeader::claimed_epoch(&block[..len], id, pos);
                if claimed.is_some_and(|epoch| epoch >= from) {
                    return Ok(true);
                }
            }
        }
        let journal = storage.journal_reader()?;
        for pos in [service.journal_tail, next_lap(service.journal_tail, journal.len())] {
            journal.read(Origin::Admin, pos % journal.len(), &mut block)?;
            let claimed = JournalHeader::claimed_epoch(&block, pos);
            if claimed.is_some_and(|epoch| epoch >= from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Nothing was appended to lanes or journal in the present epoch.
    fn log_is_empty(&self, storage: &Storage) -> Result<bool> {
        let (host, service) = (&self.view.host, &self.view.service);
        for (id, tail) in self.lane_ids().zip(&service.lane_tails) {
            let region = storage.staging_reader(id)?;
            let (key, medium) = (host.lane_key.lane(id), self.view.header.medium_of(id));
            let mut scanner = LaneScanner::new(
                &region,
                (id, medium),
                key,
                *tail,
                OPEN_END,
                ScanData::Verify,
                Origin::Admin,
            )?;
            if scanner.next_record()?.is_some() {
                return Ok(false);
            }
        }
        let (key, tail, seq) = (host.journal_key.journal(), service.journal_tail, service.next_seq);
        let journal = storage.journal_reader()?;
        let mut scanner = JournalScanner::new(&journal, key, tail, seq, Origin::Admin)?;
        Ok(scanner.next_record()?.is_none())
    }

    /// Takes a mount back that wrote its header and no marker: nothing was appended.
    pub(crate) fn cancel_mount(&self) -> Result<()> {
        let storage = self.storage()?;
        let plain = marker::read_primary(&*storage.area_reader()?)?;
        assert!(!has_marker(&plain), "the mount had not begun");
        let mut host = HostSlots::new(storage.take_header(HEADER_HOST)?, &self.view);
        let old = host.newest().clone();
        let record = HostRecord { state: HostState::Clean, superblock: Box::new(plain), ..old };
        host.write(Origin::Admin, &record)
    }

    /// The newest host record, made newer than everything that the area has seen: a clean log that
    /// was put back from an older copy is empty and serves, but no epoch is used twice.
    pub(crate) fn forget_older_log(&self) -> HostRecord {
        let host = self.view.host.clone();
        let whole = self.view.area.filter(|a| a.checksum_ok);
        let linked = whole.and_then(|a| a.link).map_or(Epoch(0), |l| l.epoch);
        let seen = linked.max(self.view.service.epoch);
        if host.key.epoch >= seen {
            return host;
        }
        tracing::warn!("the log is an older copy; it is empty, and starts anew");
        let mut key = host.key;
        key.epoch = seen;
        HostRecord { key, lsn_floor: Lsn(host.lsn_floor.0 + LSN_GAP), ..host }
    }
}
