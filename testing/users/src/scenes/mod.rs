//! What users do to each other.

pub mod capable;
pub mod crowd;
pub mod hogs;
pub mod holders;
pub mod limits;
pub mod ordinary;
pub mod sections;
pub mod strangers;
pub mod thieves;
pub mod views;

use crate::watch::{Calls, Watch};
use siftfs_base::Rng;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A hostile scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scene {
    /// Users keep the locks of their own directories, and change names there.
    Holders,
    /// Very many threads change names of one directory by compounds, others by open(2).
    Crowd,
    /// Users write to set-id programs, by every way, and execute them.
    Thieves,
    /// The same with programs that have capabilities.
    Capable,
    /// Users change what their view of the mount keeps from them.
    Views,
    /// Users publish descriptors that link(2) refuses them.
    Strangers,
    /// Users write beyond their limit of file sizes.
    Limits,
    /// Users have the daemon decompress, many at a time.
    Hogs,
    /// Users leave sections open, on files that others look at.
    Sections,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Holders,
        Self::Crowd,
        Self::Thieves,
        Self::Capable,
        Self::Views,
        Self::Strangers,
        Self::Limits,
        Self::Hogs,
        Self::Sections,
    ];

    /// The scene's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holders => "holders",
            Self::Crowd => "crowd",
            Self::Thieves => "thieves",
            Self::Capable => "capable",
            Self::Views => "views",
            Self::Strangers => "strangers",
            Self::Limits => "limits",
            Self::Hogs => "hogs",
            Self::Sections => "sections",
        }
    }

    /// The option that asks for these scenes; nothing if all may be drawn.
    pub fn as_option(scenes: &[Self]) -> String {
        match scenes {
            [] => String::new(),
            some => {
                format!(" --only {}", some.iter().map(|s| s.name()).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Plays the scene until the round is over.
    ///
    /// # Errors
    /// What the scene needs could not be had: a finding of the harness.
    pub fn play(self, stage: &Arc<Stage>, rng: Rng) -> io::Result<()> {
        match self {
            Self::Holders => holders::play(stage, rng),
            Self::Crowd => crowd::play(stage),
            Self::Thieves => thieves::play(stage, rng),
            Self::Capable => capable::play(stage, rng),
            Self::Views => views::play(stage, rng),
            Self::Strangers => strangers::play(stage, rng),
            Self::Limits => limits::play(stage, rng),
            Self::Hogs => hogs::play(stage),
            Self::Sections => sections::play(stage, rng),
        }
    }
}

/// The number in the next fresh name.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where a round's scenes play.
pub struct Stage {
    /// The mount.
    pub dir: PathBuf,
    /// A directory that is not on it.
    pub own: PathBuf,
    /// Threads of scenes that make many calls at once.
    pub crowd: usize,
    watch: Arc<Watch>,
    tried: Mutex<BTreeMap<String, u64>>,
}

impl Stage {
    /// A stage on the mount `dir`; `own` is made where it is missing.
    ///
    /// # Errors
    /// The directory could not be made.
    pub fn new(dir: &Path, own: &Path, watch: &Arc<Watch>, crowd: usize) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(own)?;
        let (dir, own, tried) = (dir.into(), own.into(), Mutex::default());
        Ok(Arc::new(Self { dir, own, crowd, watch: watch.clone(), tried }))
    }

    /// A place for a thread whose calls must come back.
    pub fn calls(&self, who: impl Into<String>) -> Calls {
        self.watch.calls(who)
    }

    /// Is the round over?
    pub fn is_over(&self) -> bool {
        self.watch.is_over()
    }

    /// May what a scene keeps from others be let go?
    pub fn is_judged(&self) -> bool {
        self.watch.is_judged()
    }

    /// Notes a finding of a scene.
    pub fn find(&self, scene: Scene, what: &str) {
        self.watch.find(format!("{}: {what}", scene.name()));
    }

    /// Notes a finding of an ordinary user.
    pub fn wrong(&self, what: String) {
        self.watch.find(what);
    }

    /// A scene has tried something once more.
    pub fn has_tried(&self, scene: Scene) {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        *tried.entry(scene.name().into()).or_default() += 1;
    }

    /// What each scene has tried.
    pub fn tried(&self) -> BTreeMap<String, u64> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A name that no other caller gets in this process.
    pub fn fresh(&self, what: &str) -> String {
        format!("{what}-{}", NEXT.fetch_add(1, Ordering::SeqCst))
    }

    /// Makes a directory on the mount.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn directory(&self, name: &str, user: u32, mode: u32) -> io::Result<PathBuf> {
        let path = self.dir.join(name);
        make_directory(&path, user, mode)?;
        Ok(path)
    }
}

/// Makes a directory for a user.
///
/// # Errors
/// Those of the calls.
pub fn make_directory(path: &Path, user: u32, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    std::os::unix::fs::chown(path, Some(user), Some(user))?;
    set_permissions(path, Permissions::from_mode(mode))
}
