//! tar: a tree is unpacked again and again, with attributes, owners and sparse files.

use crate::copies::{Copies, no_difference};
use crate::program::guarded;
use crate::source;
use crate::work::{App, Site};
use siftfs_rig::place::{Result, arg, failed, run};
use std::fs;
use std::path::{Path, PathBuf};

/// The application.
#[derive(Default)]
pub struct Tar {
    copies: Copies,
}

fn archive(at: &Site) -> PathBuf {
    at.scratch.join("source.tar")
}

fn tar(at: &Site, action: &str, dir: &Path) -> Result<String> {
    let archive = archive(at);
    let options = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-p"];
    let args = [&[action, "-f", arg(&archive)?, "-C", arg(dir)?], &options[..]].concat();
    at.run("tar", guarded("tar", &args))
}

fn unpack(at: &Site, dir: &Path) -> Result<()> {
    fs::create_dir(dir).map_err(failed(dir.display()))?;
    tar(at, "--extract", dir).map(drop)
}

fn compare(at: &Site, dir: &Path) -> Result<()> {
    no_difference("tar --compare", &tar(at, "--compare", dir)?)
}

impl App for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let root = at.scratch.join("source");
        source::generate(&root)?;
        let options = ["--create", "--format=posix", "--sparse", "--xattrs", "--acls"];
        let archive = archive(at);
        run("tar", &[&options[..], &["-f", arg(&archive)?, "-C", arg(&root)?, "."]].concat())?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        self.copies.work(at, |dir| unpack(at, dir))
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        self.copies.check(at, |dir| unpack(at, dir), |dir| compare(at, dir))
    }

    fn acknowledged(&self) -> String {
        format!("{} trees", self.copies.total())
    }
}
