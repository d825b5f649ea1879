//! `siftfs tune`: what the machine could do for a mount and does not, because it is switched off:
//! the kernel's requests by rings (FUSE over io_uring). Switched on or off for mounts from now on,
//! and for good. What is to be done is a list of steps, which is shown or taken.

use crate::options::args::{Tune, TuneTo};
use crate::show::failure::{Failure, Outcome};
use crate::show::output::{complain, say};
use serde_json::json;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

const PARAMETER: &str = "sys/module/fuse/parameters/enable_uring";
/// Our own file for modprobe(8), and its first line, by which we know it again.
const MODPROBE: &str = "etc/modprobe.d/siftfs.conf";
const MARK: &str = "# Made by `siftfs tune on`; `siftfs tune off` removes it.";
const MODPROBE_DIRS: [&str; 5] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
];
/// The word of the kernel's command line, where FUSE is no module.
const WORD: &str = "fuse.enable_uring=";
/// Our own file for GRUB, where its configuration may lie in several.
const GRUB: &str = "etc/default/grub.d/siftfs.cfg";
/// The command line of kernels that kernel-install(8) puts in place.
const KERNEL: &str = "etc/kernel/cmdline";

/// Where a kernel has FUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fuse {
    Module,
    BuiltIn,
    /// The kernel that runs has FUSE, and no rings.
    WithoutRings,
    /// No kernel is there to be seen.
    Unknown,
}

impl Fuse {
    fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::BuiltIn => "built-in",
            Self::WithoutRings => "without rings",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Write {
        path: PathBuf,
        text: String,
    },
    Remove {
        path: PathBuf,
    },
    /// What is left to the administrator.
    Tell(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { path, text } if text.len() < 3 => {
                write!(f, "write {} to {}", text.trim(), path.display())
            }
            Self::Write { path, .. } => write!(f, "write {}", path.display()),
            Self::Remove { path } => write!(f, "remove {}", path.display()),
            Self::Tell(text) => f.write_str(text),
        }
    }
}

/// The machine whose files are below `root`.
struct Machine {
    root: PathBuf,
}

/// What is set.
struct Setting {
    fuse: Fuse,
    /// For mounts from now on.
    now: Option<bool>,
    /// What the files say that count at a boot, the later one more.
    files: Vec<(PathBuf, bool)>,
}

impl Setting {
    fn after_boot(&self) -> bool {
        self.files.last().is_some_and(|(_, on)| *on)
    }
}

/// `siftfs tune`.
pub fn tune(a: &Tune) -> Outcome {
    let machine = Machine { root: a.root.clone() };
    let setting = machine.setting().map_err(|(path, e)| Failure::about(&path, e))?;
    let to = if a.off { TuneTo::Off } else { a.to };
    if setting.fuse == Fuse::WithoutRings && to == TuneTo::On {
        return Err(Failure::plain(
            "this kernel has no FUSE over io_uring (Linux 6.14 and later have it): nothing can be switched on",
        ));
    }
    let steps = match setting.fuse {
        Fuse::WithoutRings => Vec::new(),
        _ => machine
            .steps(&setting, to != TuneTo::Off, a.edit_command_line)
            .map_err(|(path, e)| Failure::about(&path, e))?,
    };
    if to != TuneTo::Show {
        steps.iter().try_for_each(take)?;
    }
    let setting = machine.setting().map_err(|(path, e)| Failure::about(&path, e))?;
    match a.json {
        true => say(format!("{:#}", document(&setting, &steps)))?,
        false => show(&setting, &steps, to)?,
    }
    Ok(0)
}

fn document(setting: &Setting, steps: &[Step]) -> serde_json::Value {
    let files = setting.files.iter().map(|(path, on)| json!({ "path": path, "on": on }));
    json!({ "rings": {
        "kernel": setting.fuse.name(),
        "now": setting.now,
        "after_boot": setting.after_boot(),
        "files": files.collect::<Vec<_>>(),
        "steps": steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }})
}

fn show(setting: &Setting, steps: &[Step], to: TuneTo) -> Result<(), Failure> {
    let word = |on| if on { "on" } else { "off" };
    say("requests by rings: programs need not wake another processor for a request")?;
    say(match (setting.fuse, setting.now) {
        (Fuse::WithoutRings, _) => {
            "now         not in this kernel (Linux 6.14 and later have it)".into()
        }
        (_, Some(on)) => format!("now         {}, for mounts from now on", word(on)),
        (_, None) => "now         fuse is not loaded".into(),
    })?;
    say(match setting.files.last() {
        Some((path, on)) => format!("after boot  {}, by {}", word(*on), path.display()),
        None => "after boot  off: nothing sets it".into(),
    })?;
    for step in steps {
        match (to, step) {
            (TuneTo::Show, step) => say(format!("to do       {step}"))?,
            (_, Step::Tell(text)) => say(format!("left to do  {text}"))?,
            (_, step) => say(format!("done        {step}"))?,
        }
    }
    match to == TuneTo::Show && !steps.is_empty() {
        true => say("`siftfs tune on` does it, `siftfs tune off` takes it back"),
        false => Ok(()),
    }
}

fn take(step: &Step) -> Result<(), Failure> {
    let about = |path: &Path, e: io::Error| match e.kind() {
        io::ErrorKind::PermissionDenied => Failure::about(path, "only root may change it"),
        _ => Failure::about(path, e),
    };
    match step {
        Step::Write { path, text } => {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).map_err(|e| about(dir, e))?;
            }
            fs::write(path, text).map_err(|e| about(path, e))
        }
        Step::Remove { path } => fs::remove_file(path).map_err(|e| about(path, e)),
        Step::Tell(_) => Ok(()),
    }
}

/// The file that could not be read, and why.
type Unread = (PathBuf, io::Error);

/// The text of a file; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, Unread> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind()) => {
            Ok(None)
        }
        Err(e) => Err((path.to_path_buf(), e)),
    }
}

fn is_on(value: &str) -> bool {
    ["1", "y", "Y"].contains(&value.trim())
}

/// The names in a directory, in order; none if it cannot be read.
fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    all.sort();
    all
}

impl Machine {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn setting(&self) -> Result<Setting, Unread> {
        let fuse = self.fuse()?;
        let now = read(&self.at(PARAMETER))?.map(|text| is_on(&text));
        let files = match fuse {
            Fuse::BuiltIn => self.command_lines()?,
            _ => self.modprobe_files()?,
        };
        Ok(Setting { fuse, now, files })
    }

    fn fuse(&self) -> Result<Fuse, Unread> {
        let loaded = self.at("sys/module/fuse");
        if loaded.exists() {
            return Ok(match (self.at(PARAMETER).exists(), loaded.join("initstate").exists()) {
                (false, _) => Fuse::WithoutRings,
                (true, true) => Fuse::Module,
                (true, false) => Fuse::BuiltIn,
            });
        }
        let mut found = Fuse::Unknown;
        for kernel in
            ["lib/modules", "usr/lib/modules"].into_iter().flat_map(|d| names(&self.at(d)))
        {
            let built_in = read(&kernel.join("modules.builtin"))?.unwrap_or_default();
            if built_in.lines().any(|line| line.ends_with("/fuse.ko")) {
                return Ok(Fuse::BuiltIn);
            }
            let is_fuse = |path: &PathBuf| path.to_string_lossy().contains("/fuse.ko");
            if names(&kernel.join("kernel/fs/fuse")).iter().any(is_fuse) {
                found = Fuse::Module;
            }
        }
        Ok(found)
    }

    /// Files for modprobe(8) that set it, in the order in which they count: by their names, and of
    /// two with one name the first is taken alone.
    fn modprobe_files(&self) -> Result<Vec<(PathBuf, bool)>, Unread> {
        let mut files: Vec<PathBuf> = Vec::new();
        for path in MODPROBE_DIRS.into_iter().flat_map(|dir| names(&self.at(dir))) {
            let known = files.iter().any(|f| f.file_name() == path.file_name());
            if !known && path.extension().is_some_and(|e| e == "conf") {
                files.push(path);
            }
        }
        files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
        let mut set = Vec::new();
        for path in files {
            let text = read(&path)?.unwrap_or_default();
            let values = text.lines().filter_map(|line| line.trim().strip_prefix("options fuse "));
            let values = values.flat_map(str::split_whitespace);
            if let Some(value) = values.filter_map(|w| w.strip_prefix("enable_uring=")).next_back()
            {
                set.push((path, is_on(value)));
            }
        }
        Ok(set)
    }

    /// Files with the kernel's command line that set it. Where there is no such file, the boot
    /// loader has it from elsewhere, and what the kernel was booted with counts.
    fn command_lines(&self) -> Result<Vec<(PathBuf, bool)>, Unread> {
        let mut files = vec![self.at("etc/default/grub")];
        files.extend(names(&self.at("etc/default/grub.d")));
        files.push(self.at(KERNEL));
        if !files.iter().any(|path| path.is_file()) {
            files.push(self.at("proc/cmdline"));
        }
        let mut set = Vec::new();
        for path in files {
            let text = read(&path)?.unwrap_or_default();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let words = lines.flat_map(|line| line.split([' ', '\t', '"', '\'']));
            if let Some(value) = words.filter_map(|w| w.strip_prefix(WORD)).next_back() {
                set.push((path, is_on(value)));
            }
        }
        Ok(set)
    }

    /// What makes it so, now and after a boot.
    fn steps(&self, setting: &Setting, on: bool, edit: bool) -> Result<Vec<Step>, Unread> {
        let mut steps = Vec::new();
        if setting.now.is_some_and(|now| now != on) {
            let value = if on { "1\n" } else { "0\n" };
            steps.push(Step::Write { path: self.at(PARAMETER), text: value.into() });
        }
        if setting.after_boot() != on {
            match setting.fuse {
                Fuse::BuiltIn => self.command_line_steps(setting, on, edit, &mut steps)?,
                _ => self.modprobe_steps(setting, on, &mut steps)?,
            }
        }
        Ok(steps)
    }

    fn modprobe_steps(
        &self,
        setting: &Setting,
        on: bool,
        steps: &mut Vec<Step>,
    ) -> Result<(), Unread> {
        let path = self.at(MODPROBE);
        let before = read(&path)?;
        let ours = before.as_ref().is_none_or(|text| text.starts_with(MARK));
        let others =
            setting.files.iter().filter(|(file, says)| *says != on && (*file != path || !ours));
        steps.extend(others.map(|(file, _)| {
            Step::Tell(format!("change the line of {} that says otherwise", file.display()))
        }));
        if !ours {
            return Ok(());
        }
        match on {
            true => steps
                .push(Step::Write { path, text: format!("{MARK}\noptions fuse enable_uring=1\n") }),
            false if before.is_some() => steps.push(Step::Remove { path }),
            false => {}
        }
        Ok(())
    }

    fn command_line_steps(
        &self,
        setting: &Setting,
        on: bool,
        edit: bool,
        steps: &mut Vec<Step>,
    ) -> Result<(), Unread> {
        let (verb, word) =
            if on { ("add", format!("{WORD}1")) } else { ("take away", format!("{WORD}1")) };
        if !edit {
            steps.push(Step::Tell(format!(
                "{verb} {word} in the kernel's command line, for this kernel has FUSE built in (or say \
                 --edit-command-line)"
            )));
            return Ok(());
        }
        let (grub, kernel) = (self.at(GRUB), self.at(KERNEL));
        if on && grub.parent().is_some_and(Path::is_dir) {
            let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {word}\"");
            steps.push(Step::Write { path: grub, text: format!("{MARK}\n{line}\n") });
            steps.push(Step::Tell("run update-grub".into()));
        } else if !on && read(&grub)?.is_some_and(|text| text.starts_with(MARK)) {
            steps.push(Step::Remove { path: grub });
            steps.push(Step::Tell("run update-grub".into()));
        } else if let Some(text) = read(&kernel)? {
            let others = text.split_whitespace().filter(|w| !w.starts_with(WORD));
            let words: Vec<&str> = others.chain(on.then_some(&*word)).collect();
            steps.push(Step::Write { path: kernel, text: format!("{}\n", words.join(" ")) });
            steps.push(Step::Tell("run kernel-install for the kernels that are there".into()));
        } else {
            let named = setting.files.iter().map(|(path, _)| path.display().to_string());
            let places = named.collect::<Vec<_>>().join(", ");
            let places =
                if places.is_empty() { "your boot loader's configuration".into() } else { places };
            steps.push(Step::Tell(format!(
                "{verb} {word} in {places}: there is no file that this command edits"
            )));
        }
        Ok(())
    }
}

/// A mount by hand on a terminal, which got no rings although the kernel has them: what is lost,
/// and what to do.
pub fn hint() {
    let machine = Machine { root: "/".into() };
    let off = machine.setting().is_ok_and(|s| s.now == Some(false));
    if off && io::stderr().is_terminal() {
        complain(
            "each request wakes another processor, because this kernel's rings are switched off: \
             `siftfs tune on` switches them on",
        );
    }
}

#[cfg(test)]
#[path = "tune_tests.rs"]
mod tests;
