//! Images for tests: made by mke2fs, judged by e2fsck.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testing::MemStore;
use crate::{Fs, MKE2FS_ARGS, MKE2FS_CONF};

/// Inode of the first file that [`Image::with_files`] makes.
pub const FIRST_FILE: u32 = 12;

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

    /// A volume under the profile with `files` empty files in its root, inodes from
    /// [`FIRST_FILE`] on.
    pub fn with_files(mib: u64, files: u32) -> Self {
        Self::files_with(mib, files, MKE2FS_ARGS)
    }

    /// The same with other arguments.
    pub fn files_with(mib: u64, files: u32, args: &[&str]) -> Self {
        let names = Self::empty();
        let source = names.dir.join("files");
        std::fs::create_dir_all(&source).unwrap();
        for i in 0..files {
            std::fs::write(source.join(format!("f{i}")), b"").unwrap();
        }
        let mut args = args.to_vec();
        args.extend(["-d", source.to_str().unwrap()]);
        Self::make_with(mib, &args)
    }

    /// An image whose file is yet to be made.
    pub fn empty_with(build: impl FnOnce(&Path, &Path)) -> Self {
        let image = Self::empty();
        build(&image.dir, &image.file);
        image
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

    /// The name in the root of one of [`Image::with_files`]' inodes.
    pub fn name_of(&self, ino: u32) -> String {
        let out = Command::new("/usr/sbin/debugfs")
            .args(["-R", &format!("ncheck {ino}")])
            .arg(&self.file)
            .output()
            .expect("debugfs runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split('/').next_back().expect("a path").trim().to_string()
    }

    /// Runs `work` while the kernel has the image mounted.
    pub fn mounted(&self, work: impl FnOnce(&Path)) {
        let dir = self.dir.join("mount");
        std::fs::create_dir_all(&dir).unwrap();
        let run = |cmd: &mut Command| {
            let out = cmd.output().expect("mount and umount run");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.file).arg(&dir));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&dir)));
        run(Command::new("umount").arg(&dir));
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
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

/// Runs one of e2fsprogs' tools on an image; it must succeed.
#[track_caller]
pub fn tool(name: &str, args: &[&str], file: &Path) -> String {
    let path = format!("/usr/sbin/{name}");
    let out = Command::new(path).args(args).arg(file).output().expect("the tool runs");
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Mounts an image with the kernel's ext4, runs `f` on its root, and unmounts. False, and `f`
/// not run, where this user may not mount.
#[track_caller]
pub fn with_kernel(file: &Path, read_only: bool, f: impl FnOnce(&Path)) -> bool {
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    assert!(rustix::process::geteuid().is_root(), "asking the kernel's ext4 needs root");
    let root = file.with_extension("mnt");
    std::fs::create_dir_all(&root).unwrap();
    let options = if read_only { "loop,ro" } else { "loop" };
    let mut mount = Command::new("mount");
    mount.args(["-t", "ext4", "-o", options]).arg(file).arg(&root);
    assert!(mount.status().expect("mount runs").success(), "the kernel does not mount it");
    let mounted = Mounted(root);
    f(&mounted.0);
    true
}
