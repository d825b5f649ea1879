//! Cases, one after the other, on both.

use crate::draw::{Ask, Who, ask, who};
use crate::kernel;
use crate::session::{Program, Speaks, brought, opening};
use crate::tree::{Node, Plan, Tree, clear, here, there};
use siftfs_base::Rng;
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::flags;
use siftfs_rig::ext4;
use siftfs_rig::place::{Failed, Place, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Cases on one tree.
const ROUND: u64 = 25;

/// Where the kernel says whether files are protected against links.
const PROTECTED_HARDLINKS: &str = "/proc/sys/fs/protected_hardlinks";

/// Both file systems.
pub struct Pair {
    root: PathBuf,
    volume: LocalVolume,
    links_all: bool,
    _place: Place,
}

/// What was asked for, and how it went.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases.
    pub cases: u64,
    /// Calls that were carried out.
    pub done: u64,
    /// Refusals by errno.
    pub refused: BTreeMap<i32, u64>,
}

fn said(e: impl std::fmt::Display) -> Failed {
    Failed(e.to_string())
}

impl Drop for Pair {
    /// An immutable file would stay.
    fn drop(&mut self) {
        if let Err(error) = clear(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}

impl Pair {
    /// A directory on the kernel's ext4, and a volume in memory.
    ///
    /// # Errors
    /// Without root, or without room.
    pub fn new() -> Result<Self> {
        let place = Place::new("siftfs-access", 256 << 20, None)?;
        let (root, _) = ext4::directory(&place, 128 << 20)?;
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone() as Arc<dyn siftfs_device::Device>, &MkfsOptions::default())
            .map_err(said)?;
        let clock = Arc::new(siftfs_base::ManualClock::new(1_700_000_000));
        let volume = LocalVolume::open_on(device, clock, &OpenOptions::default(), Threads::None)
            .map_err(said)?;
        let protected = std::fs::read_to_string(PROTECTED_HARDLINKS).map_err(said)?;
        Ok(Self { root, volume, links_all: protected.trim() == "0", _place: place })
    }

    /// Runs `cases` cases.
    ///
    /// # Errors
    /// The first one that differs.
    pub fn run(&self, speaks: Speaks, seed: u64, cases: u64) -> Result<Report> {
        let mut report = Report::default();
        let mut round = 0;
        while report.cases < cases {
            let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(round));
            let plan = Plan::draw(&mut rng);
            plan.make_there(&self.root).map_err(said)?;
            plan.make_here(&*self.volume.endpoint());
            for case in 0..ROUND {
                let (caller, call) = (who(&mut rng), ask(&mut rng));
                self.one((&caller, speaks), &call, &mut report).map_err(|Failed(text)| {
                    Failed(format!("seed {seed}, round {round}, case {case}: {text}"))
                })?;
            }
            round += 1;
        }
        Ok(report)
    }

    fn one(&self, (caller, speaks): (&Who, Speaks), call: &Ask, report: &mut Report) -> Result<()> {
        let before = there(&self.root).map_err(said)?;
        if is_the_kernels_alone(call, &before) || is_a_machines_alone(call, &before, speaks) {
            return Ok(());
        }
        let wanted = kernel::call(&self.root, caller, call);
        let opening = opening(caller, speaks, self.links_all);
        let session = self.volume.session(opening).map_err(said)?;
        let cred = brought(caller, speaks, self.links_all);
        let by_number = speaks == Speaks::ForAll;
        let got = Program { service: &*session, cred, by_number }.call(call);
        drop(session);
        report.cases += 1;
        match wanted {
            Ok(()) => report.done += 1,
            Err(errno) => *report.refused.entry(errno).or_default() += 1,
        }
        if wanted != got {
            return Err(Failed(format!(
                "{caller:?} {call:?}: the kernel says {wanted:?}, the session {got:?}; of {}",
                shown(&before)
            )));
        }
        let (there, here) = (there(&self.root).map_err(said)?, here(&*self.volume.endpoint()));
        if there == here {
            return Ok(());
        }
        let differ: Vec<_> = there
            .iter()
            .filter(|(path, node)| here.get(*path) != Some(node))
            .map(|(path, node)| (path, node, here.get(path), before.get(path)))
            .collect();
        Err(Failed(format!(
            "{caller:?} {call:?}: {wanted:?}; path, the kernel's, the volume's, before: {differ:#?}"
        )))
    }
}

/// Pipes and devices are opened by the kernel alone, and it follows symbolic links. It refuses to
/// open an append-only file to write elsewhere, and a session such a write.
fn is_the_kernels_alone(call: &Ask, tree: &Tree) -> bool {
    let is = |path: &str, kinds: &str| tree.get(path).is_some_and(|n| kinds.contains(n.kind));
    let through_a_link = |path: &str| path.match_indices('/').any(|(at, _)| is(&path[..at], "l"));
    if call.paths().into_iter().any(through_a_link) {
        return true;
    }
    match call {
        Ask::Open { path, .. } | Ask::Write(path) => {
            let appended = tree.get(path).is_some_and(|node| node.flags & flags::APPEND != 0);
            is(path, "pc") || appended
        }
        Ask::SetFlags(path, _) => is(path, "lpc"),
        Ask::Chmod(path, _) | Ask::Truncate(path, _) | Ask::Unnamed(path) => is(path, "l"),
        _ => false,
    }
}

/// Another machine reads what its users may execute, whether they may read it or not, and its
/// kernel takes capabilities away in the name of a file's owner before a chown(2).
fn is_a_machines_alone(call: &Ask, tree: &Tree, speaks: Speaks) -> bool {
    if speaks == Speaks::ForOne {
        return false;
    }
    match call {
        Ask::Open { path, read: true, write: false, truncate: false } => {
            let executable = |node: &Node| node.perm & 0o111 != 0 || !node.xattrs.is_empty();
            tree.get(path).is_some_and(executable)
        }
        Ask::RemoveXattr(_, name) => *name == "security.capability",
        _ => false,
    }
}

/// A tree on a line each.
fn shown(tree: &Tree) -> String {
    let line = |(path, node): (&String, &Node)| {
        let Node { kind, perm, ids: (uid, gid), flags, xattrs, .. } = node;
        let lists: Vec<_> =
            xattrs.iter().map(|(name, value)| format!("{name} {value:02x?}")).collect();
        format!("\n  {path} {kind} {perm:o} {uid}:{gid} {flags:x} {}", lists.join(" "))
    };
    tree.iter().map(line).collect()
}
