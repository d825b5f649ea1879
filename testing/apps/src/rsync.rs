//! `rsync -aAXH`, again and again, each file fsynced before it gets its name.

use crate::copies::{Copies, no_difference};
use crate::program::guarded;
use crate::source;
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Result, arg};
use std::path::Path;

/// The application.
#[derive(Default)]
pub struct Rsync {
    copies: Copies,
}

fn rsync(at: &Site, more: &[&str], to: &Path) -> Result<String> {
    let from = format!("{}/", at.scratch.join("source").display());
    let to = format!("{}/", arg(to)?);
    let mut args = vec!["-aAXH", "--numeric-ids", "--fsync"];
    args.extend(more);
    args.extend([from.as_str(), to.as_str()]);
    at.run("rsync", guarded("rsync", &args))
}

/// With `--delete`, which takes away the temporary files of an rsync that was killed.
fn copy(at: &Site, to: &Path) -> Result<()> {
    rsync(at, &["--delete"], to).map(drop)
}

fn compare(at: &Site, to: &Path) -> Result<()> {
    let printed = rsync(at, &["-n", "--checksum", "--delete", "--itemize-changes"], to)?;
    no_difference("rsync --checksum", &printed)
}

/// Files whose name is there with other content, from `--itemize-changes`: a `c` for the checksum
/// beside a name that is not new.
pub fn wrong_content(itemized: &str) -> Vec<&str> {
    let wrong = |l: &&str| l.starts_with(">fc");
    itemized.lines().filter(wrong).collect()
}

impl App for Rsync {
    fn name(&self) -> &'static str {
        "rsync"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        source::generate(&at.scratch.join("source"))?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        self.copies.work(at, |dir| copy(at, dir))
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        if let Some(dir) = self.copies.unfinished(at) {
            let printed = rsync(at, &["-n", "--checksum", "--itemize-changes"], &dir)?;
            let wrong = wrong_content(&printed);
            if !wrong.is_empty() {
                return Err(Failed(format!(
                    "fsynced before they were named, and yet without their content:\n{}",
                    wrong.join("\n")
                )));
            }
            copy(at, &dir)?;
            compare(at, &dir)?;
        }
        self.copies.check(at, |dir| copy(at, dir), |dir| compare(at, dir))
    }

    fn acknowledged(&self) -> String {
        format!("{} trees", self.copies.total())
    }
}

#[cfg(test)]
#[path = "rsync_tests.rs"]
mod tests;
