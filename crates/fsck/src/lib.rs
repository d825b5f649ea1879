//! Checks a volume's header, staging lanes and journal, and the marker in its ext4 superblocks.
//! It only reads. The area's own structures are e2fsck's business.
//!
//! Shares the format's declarations with what it checks, and nothing else: searching, scanning
//! and judging are written here again, from the format's description.

mod digest;
mod header;
mod inspect;
mod journal;
mod lanes;
mod record_area;
mod redo;
mod ring;
mod superblock;

pub use inspect::{
    DigestView, HostView, Inspection, JournalView, LaneView, Marker, RecordAreaView, RecordView,
    Recovery, RedoLaneView, RegistryView, ServiceView, SlotView, TransactionView, inspect,
};

use siftfs_base::Error;
use siftfs_device::Device;
use siftfs_log::{HostRecord, ServiceRecord, StaticHeader};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Something is damaged or out of step, but nothing is lost and the next mount or recovery
    /// puts it right.
    Warning,
    /// State is lost, or the volume cannot be used as it is.
    Error,
}

/// One thing found.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Stable name for scripts, such as `header.copy`.
    pub code: &'static str,
    /// What was found and where, for people.
    pub text: String,
}

/// The devices that a volume lies on.
#[derive(Clone, Copy)]
pub struct Devices<'a> {
    /// Holds the ext4 area, and all else where there is no other device.
    pub area: &'a dyn Device,
    /// Holds header, lanes and journal.
    pub log: Option<&'a dyn Device>,
    /// Holds the record area.
    pub bytes: Option<&'a dyn Device>,
    /// What a spare log has of the log is read as if it lay there.
    pub spare: bool,
}

impl<'a> From<&'a dyn Device> for Devices<'a> {
    fn from(area: &'a dyn Device) -> Self {
        Self { area, log: None, bytes: None, spare: false }
    }
}

/// What the checks know and have found.
pub(crate) struct Check<'a> {
    /// Holds the ext4 area.
    pub area: &'a dyn Device,
    /// Holds header, lanes and journal.
    pub log: &'a dyn Device,
    /// Holds the record area.
    pub bytes: Option<&'a dyn Device>,
    /// What a spare log has of the log is read as if it lay there.
    pub spare: bool,
    pub findings: Vec<Finding>,
    /// What is seen on the way, if the caller asked for it.
    pub seen: Option<inspect::Seen>,
}

/// The header that the rest is checked against.
pub(crate) struct Volume {
    pub header: StaticHeader,
    pub host: HostRecord,
    pub service: ServiceRecord,
    /// The host slot that does not hold the newest record holds an older one.
    pub older_host: bool,
    /// It holds zeroes in both copies, as the volume was made.
    pub older_blank: bool,
}

impl<'a> Check<'a> {
    /// Nothing is known yet.
    fn of(devices: Devices<'a>, seen: Option<inspect::Seen>) -> Self {
        let Devices { area, log, bytes, spare } = devices;
        Self { area, log: log.unwrap_or(area), bytes, spare, findings: Vec::new(), seen }
    }
}

impl Check<'_> {
    /// Notes what is seen on the way, if the caller asked for it.
    fn see(&mut self, note: impl FnOnce(&mut inspect::Seen)) {
        if let Some(seen) = &mut self.seen {
            note(seen);
        }
    }
    fn add(&mut self, severity: Severity, code: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { severity, code, text: text.into() });
    }
    pub fn info(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(Severity::Info, code, text);
    }
    pub fn warn(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(Severity::Warning, code, text);
    }
    pub fn error(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(Severity::Error, code, text);
    }
    /// An error met while reading `what`: the medium's, or a structure's that cannot be.
    pub fn failed(&mut self, code: &'static str, what: &str, e: &Error) {
        let code = match e {
            Error::Io { .. } => "io",
            Error::Incompatible(_) => "incompatible",
            _ => code,
        };
        self.error(code, format!("{what}: {e}"));
    }
    /// `len` bytes at `offset` of the log's device, or a finding.
    pub fn read(&mut self, offset: u64, len: usize, what: &str) -> Option<Vec<u8>> {
        self.read_from(self.log, offset, len, what)
    }
    /// `len` bytes at `offset` of the record area's device, or a finding.
    pub fn read_bytes(&mut self, offset: u64, len: usize, what: &str) -> Option<Vec<u8>> {
        self.read_from(self.bytes?, offset, len, what)
    }
    /// `len` bytes at `offset` of the area's device, or a finding.
    pub fn read_area(&mut self, offset: u64, len: usize, what: &str) -> Option<Vec<u8>> {
        self.read_from(self.area, offset, len, what)
    }
    fn read_from(
        &mut self,
        dev: &dyn Device,
        offset: u64,
        len: usize,
        what: &str,
    ) -> Option<Vec<u8>> {
        if offset.checked_add(len as u64).is_none_or(|e| e > dev.size()) {
            return None;
        }
        let mut buf = vec![0; len];
        match dev.read(offset, &mut buf) {
            Ok(()) => Some(buf),
            Err(e) => {
                self.failed("io", what, &e);
                None
            }
        }
    }
}

/// Checks everything but the ext4 structures; an empty list, or one of [`Severity::Info`]
/// alone, is a sound log. Nothing is written.
pub fn check(dev: &dyn Device) -> Vec<Finding> {
    check_on(dev.into())
}

/// As [`check`], on the devices that there are.
pub fn check_on(devices: Devices<'_>) -> Vec<Finding> {
    run(Check::of(devices, None), devices.log.is_some()).findings
}

/// All checks; `apart` if the log is on a device of its own.
fn run(mut check: Check<'_>, apart: bool) -> Check<'_> {
    let primary = superblock::primary(&mut check);
    check.see(|seen| seen.primary(primary.as_ref()));
    if !apart && check.log_is_missing(primary.as_ref()) {
        return check;
    }
    let volume = header::check(&mut check, primary.as_ref(), apart);
    superblock::judge(&mut check, volume.as_ref(), primary.as_ref());
    if check.spare_is_missing(volume.as_ref(), primary.as_ref()) {
        return check;
    }
    if let Some(volume) = volume {
        record_area::check(&mut check, &volume, primary.as_ref());
        let redo = redo::check(&mut check, &volume, primary.as_ref());
        let order = lanes::check(&mut check, &volume);
        let (base, journaled) = journal::check(&mut check, &volume);
        let held = order.any() || journaled || redo;
        lanes::check_order(&mut check, order, base);
        superblock::check_marker(&mut check, &volume, primary.as_ref(), held);
        check.see(|seen| seen.volume = Some(volume));
    }
    check
}

impl Check<'_> {
    /// The header says that there is a spare log, and none was found: what is read of the log may
    /// be older than what was made durable.
    fn spare_is_missing(
        &mut self,
        volume: Option<&Volume>,
        primary: Option<&superblock::Super>,
    ) -> bool {
        let missing = volume.is_some_and(|volume| volume.header.spare_log()) && !self.spare;
        let unmarked = primary.is_some_and(|p| p.checksum_ok() && !p.marker());
        let text = "the spare log was not found";
        match (missing, unmarked) {
            (false, _) => {}
            (true, true) => self.warn("spare.missing", text),
            (true, false) => self
                .error("spare.missing", format!("{text}; it may hold what was made durable last")),
        }
        missing
    }

    /// The superblock names a log elsewhere, and none was given.
    fn log_is_missing(&mut self, primary: Option<&superblock::Super>) -> bool {
        let Some(primary) = primary else { return false };
        let Some(link) = primary.link() else { return false };
        let uuid = siftfs_log::show_uuid(&link.volume);
        if primary.marker() {
            let text = format!(
                "the log {uuid} lies elsewhere and was not found; it may hold changes that are not \
                 in the file system"
            );
            self.error("log.missing", text);
        } else {
            let text = format!("the log {uuid} lies elsewhere and was not found");
            self.warn("log.missing", text);
        }
        true
    }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
