//! Images for tests: made by mke2fs, judged by e2fsck.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testing::MemStore;
use crate::{Fs, MKE2FS_ARGS, MKE2FS_CONF};

/// A directory for one image, removed at the end.
pub struct Image {
    dir: PathBuf,
    pub file: PathBuf,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Image {
    pub fn empty() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nr = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("siftfs-ext4-{}-{nr}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self { file: dir.join("image"), dir }
    }

    /// A volume of `mib` MiB under the profile.
    pub fn make(mib: u64) -> Self {
        Self::make_with(mib, MKE2FS_ARGS)
    }

    /// A volume made with these arguments, under our configuration.
    pub fn make_with(mib: u64, args: &[&str]) -> Self {
        let image = Self::empty();
        let conf = image.dir.join("mke2fs.conf");
        std::fs::write(&conf, MKE2FS_CONF).unwrap();
        let out = Command::new("/usr/sbin/mke2fs")
            .env("MKE2FS_CONFIG", &conf)
            .args(args)
            .arg(&image.file)
            .arg(format!("{mib}M"))
            .output()
            .expect("mke2fs runs");
        assert!(out.status.success(), "mke2fs: {}", String::from_utf8_lossy(&out.stderr));
        image
    }

    pub fn load(&self) -> MemStore {
        MemStore::load(&self.file).unwrap()
    }

    /// Writes the store back after the superblock.
    pub fn save(&self, fs: &mut Fs, store: &mut MemStore) {
        fs.sync_super(store).unwrap();
        store.save(&self.file).unwrap();
    }

    /// e2fsck -fn exits 0 and prints its pass lines and summary, nothing else.
    #[track_caller]
    pub fn check(&self) {
        let text = fsck(&self.file);
        let plain = |l: &str| l.starts_with("Pass ") || l.contains(" files (");
        let odd: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !plain(l)).collect();
        assert!(odd.is_empty(), "e2fsck says:\n{}", odd.join("\n"));
    }
}

/// What e2fsck prints, its banner excepted; panics unless it exits 0.
#[track_caller]
pub fn fsck(file: &Path) -> String {
    let out = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(file).output().expect("e2fsck runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "e2fsck: {text}{}", String::from_utf8_lossy(&out.stderr));
    text
}

/// Random numbers from a seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}
