//! New names for several files at once.

use crate::{File, Result, Volume, below_root};
use siftfs_proto::{Level, PublishEntry, PublishSource, ROOT_INO, Request, Rights};

/// Names that are to change together: other callers, and a crash, see all of them or none.
///
/// ```no_run
/// # fn main() -> siftfs::Result<()> {
/// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
/// volume
///     .publish()
///     .replace("/table.new", "/table")
///     .replace("/index.new", "/index")
///     .durable()?; // one write, one flush, data included
/// # Ok(())
/// # }
/// ```
///
/// Nothing happens before one of the three last calls. An error of one entry refuses all of them;
/// `docs/design/operations.md` has the table.
#[must_use = "nothing happens before `visible`, `atomic` or `durable`"]
pub struct Publish<'v> {
    volume: &'v Volume,
    entries: Vec<PublishEntry>,
}

impl<'v> Publish<'v> {
    pub(crate) fn new(volume: &'v Volume) -> Self {
        Self { volume, entries: Vec::new() }
    }

    fn add(mut self, source: PublishSource, to: &str, replace: bool) -> Self {
        let to = below_root(to);
        self.entries.push(PublishEntry { source, to, replace });
        self
    }

    /// The file `from` gets the name `to`, which no file may have.
    pub fn name(self, from: &str, to: &str) -> Self {
        self.add(PublishSource::Path(below_root(from)), to, false)
    }

    /// The file `from` gets the name `to`, in place of the file that has it, if there is one.
    pub fn replace(self, from: &str, to: &str) -> Self {
        self.add(PublishSource::Path(below_root(from)), to, true)
    }

    /// An open file, which may have no name yet, gets the name `to`; with `replace` in place of the
    /// file that has it.
    pub fn open_file(self, file: &File, to: &str, replace: bool) -> Self {
        self.add(PublishSource::Open(file.handle()), to, replace)
    }

    /// Other callers see all of it on return. A crash shows all or nothing.
    ///
    /// # Errors
    /// As of [`Publish`]; nothing has changed then, but for `EIO`, after which other
    /// callers may see the new names, and a crash shows all of them or none.
    pub fn visible(self) -> Result<()> {
        self.carry_out(Level::Visible)
    }

    /// As [`Publish::visible`], and ordered: nothing that is made durable later survives a crash
    /// without it.
    ///
    /// # Errors
    /// As of [`Publish::visible`]; nothing has changed then, but for `EIO`, after which
    /// other callers may see the new names, and a crash shows all of them or none.
    pub fn atomic(self) -> Result<()> {
        self.carry_out(Level::Atomic)
    }

    /// All of it is durable on return.
    ///
    /// # Errors
    /// As of [`Publish::visible`]; nothing has changed then, but for `EIO`, after which
    /// other callers may see the new names, and a crash shows all of them or none.
    pub fn durable(self) -> Result<()> {
        self.carry_out(Level::Durable)
    }

    fn carry_out(self, level: Level) -> Result<()> {
        let Self { volume, entries } = self;
        let rights = Rights::all();
        let req = Request::Publish { base: ROOT_INO, entries, level, rights };
        volume.shared.call(req)?.published().map(drop)
    }
}
