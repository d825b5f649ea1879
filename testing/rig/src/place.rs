//! Where it all happens, and that nothing of it stays.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why it failed, for the user: what happened, to which file, what to do.
#[derive(Clone, Debug)]
pub struct Failed(pub String);

/// Result of a step.
pub type Result<T> = std::result::Result<T, Failed>;

/// Turns any error into a [`Failed`] with context.
pub fn failed(what: impl Display) -> impl FnOnce(std::io::Error) -> Failed {
    move |e| Failed(format!("{what}: {e}"))
}

/// A temporary directory; mounts made in it are taken away before it is.
pub struct Place {
    dir: Option<tempfile::TempDir>,
    mounts: Mutex<Vec<PathBuf>>,
    interrupted: Arc<AtomicBool>,
}

impl Place {
    /// A new directory `NAME-...` in `parent`, else in `$TMPDIR`, else in `/var/tmp`, which lies on
    /// a disk where `/tmp` may not. Fails without root, or with less than `needed` bytes free.
    pub fn new(name: &str, needed: u64, parent: Option<&Path>) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failed("mounting needs root; run as root".into()));
        }
        let temporary = || std::env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from);
        let parent = parent.map_or_else(temporary, Path::to_path_buf);
        let space = rustix::fs::statvfs(&parent)
            .map_err(|e| Failed(format!("{}: {e}", parent.display())))?;
        if space.f_bavail * space.f_frsize < needed {
            return Err(Failed(format!(
                "{}: less than {} MiB free; set TMPDIR to a directory with more",
                parent.display(),
                needed >> 20
            )));
        }
        let dir = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&parent);
        let dir = dir.map_err(failed(parent.display()))?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone()).map_err(failed("signals"))?;
        }
        eprintln!("working in {}", dir.path().display());
        Ok(Self { dir: Some(dir), mounts: Mutex::default(), interrupted })
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.as_ref().map_or_else(PathBuf::new, |d| d.path().join(name))
    }

    /// A directory to mount on, made if it is not there; it will be unmounted at the end, whatever
    /// happens.
    pub fn mount_point(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path).map_err(failed(path.display()))?;
        if let Ok(mut mounts) = self.mounts.lock() {
            mounts.push(path.clone());
        }
        Ok(path)
    }

    /// Fails when a signal asked for the end.
    pub fn go_on(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failed("interrupted".into()));
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mounts = self.mounts.lock().map(|m| m.clone()).unwrap_or_default();
        for dir in mounts.iter().rev() {
            while rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH).is_ok() {}
        }
        if let Some(dir) = self.dir.take() {
            let path = dir.path().to_path_buf();
            if let Err(e) = dir.close() {
                eprintln!("{}: cannot remove: {e}", path.display());
            }
        }
    }
}

/// Runs a step with its name, and how long it took, on one line.
pub fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work()?;
    println!("  {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(result)
}

/// Runs a program to its end.
pub fn output(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Result<Output> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    Command::new(program).args(args).env("PATH", path).output().map_err(failed(name))
}

/// Runs a program that must succeed, and returns what it printed.
pub fn run(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let out = output(program, args)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&out.stderr);
    Err(Failed(format!("{name} {}: {}\n{text}{errors}", args.join(" "), out.status)))
}

/// A path as an argument.
pub fn arg(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Failed(format!("{}: not UTF-8", path.display())))
}

/// Progress on a terminal; nothing elsewhere.
pub fn bar(total: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("  {prefix} {wide_bar} {percent}% {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
