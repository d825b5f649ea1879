//! `siftfs mount`: starts the daemon and waits until the mount is usable.

use crate::command::attach;
use crate::command::closing;
use crate::command::remount;
use crate::command::tune;
use crate::command::volume::warn_of_volatile;
use crate::control::client::{Daemon as Client, ends_abandoned};
use crate::daemon::limits;
use crate::daemon::logging;
use crate::daemon::memory::{self, Arranged};
use crate::daemon::notify;
use crate::daemon::serve::{Daemon, Report};
use crate::options::args::Mount;
use crate::options::keys::confirm;
use crate::options::mount as mount_options;
use crate::options::parsed::{FileLogs, Options};
use crate::options::place::{self, absolute_place, resolve};
use crate::options::served::{self, Served};
use crate::options::target;
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output::{complain, say};
use crate::show::progress::Display;
use serde::{Deserialize, Serialize};
use siftfs_fuse::{Requests, detach_dead, says_dead, top_mount};
use siftfs_placement::{Address, StripePlace, is_at_target, is_rbd, parts_of, principal};
use siftfs_remote::{Trust, transport_to};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest line the daemon sends, in bytes.
const MAX_LINE: u64 = 1 << 16;

/// How long a mount that is being taken away may take to go.
const GOING: Duration = Duration::from_secs(60);

/// How long the kernel may take to say that a removed file is not in use, before there is no space.
pub const LATE_FORGETS: Duration = Duration::from_millis(250);

/// What the daemon tells the command that started it, one JSON document per line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Progress {
        what: String,
        done: u64,
        total: u64,
    },
    /// The record area is here, and promises nothing.
    Volatile {
        place: String,
    },
    Warning {
        text: String,
    },
    Ready {
        pid: u32,
    },
    Failed {
        code: u8,
        message: String,
    },
}

/// `siftfs mount`, in each of its three forms.
pub fn mount(a: &Mount) -> Outcome {
    if remount::is_asked(&a.options) {
        return remount::remount(a);
    }
    let (mut options, memory) = surroundings(a).map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let usage = |e: String| Failure::plain(e).with_code(USAGE);
    let at_target = target::target(&a.volume, &options.service.trust)?;
    // A target's volume is no served one, nor is one on stripes or an image. For a path, `served`
    // refuses the options of one.
    let elsewhere = StripePlace::parse(&a.volume).is_some() || is_rbd(&a.volume);
    let here = at_target.is_none() && !elsewhere;
    let path = if here { &a.volume } else { Path::new("/") };
    if let Some(served) = served::served(path, &options.served).map_err(usage)? {
        return remote(a, (options, memory), served);
    }
    options.open.late_forgets = LATE_FORGETS;
    refuse_logs_beside(a, &options).map_err(usage)?;
    options.open.target = at_target;
    options.open.members = target::members(&a.volume, &options.service.trust)?;
    let given = &mut options.service;
    given.address = a.service.clone().or(given.address.take()).map(absolute).transpose()?;
    if let (Some(target), false) = (&options.open.target, options.open.read_only) {
        // The target does the background work of its volume, unless another process is named.
        given.address.get_or_insert_with(|| target.address.clone());
    }
    let seconds = a.service_fallback.map(Duration::from_secs);
    given.fallback = seconds.or(given.fallback);
    let place = options.service.place(options.open.read_only);
    options.open.service = place.map_err(|e| Failure::plain(e).with_code(USAGE))?;
    if a.fake {
        return Ok(0);
    }
    // The daemon leaves the directory that a relative path starts from.
    if let Some(log) = a.parts.log.as_ref().or(options.open.log.as_ref()) {
        options.open.log = Some(place::log_device(log)?);
    }
    if let Some(spare) = a.parts.log_spare.as_ref().or(options.open.log_spare.as_ref()) {
        options.open.log_spare = Some(place::device(spare)?);
    }
    let area = a.parts.record_area.as_ref().or(options.open.record_area_at.as_ref());
    options.open.record_area_at = area.map(absolute_place).transpose()?;
    let volume = match &options.open.target {
        Some(target) => target.to_string().into(),
        None => place::volume(&a.volume)?,
    };
    let dir = mount_point(&a.dir)?;
    if !a.daemon_child
        && options.open.target.is_none()
        && let Some(code) = attach::attach(a, &volume, &dir, &options)?
    {
        return Ok(code);
    }
    let taken = &options.open;
    limits::check_memory(taken.page_cache + 2 * taken.meta_cache + taken.replay.memory)?;
    limits::check_files(taken.log.as_deref().into_iter().chain([&*volume]))?;
    if !a.daemon_child {
        limits::left().iter().for_each(complain);
    }
    settle_log(a, &mut options);
    serve(a, &Daemon { volume, served: None, dir, options, shown: a.options.join(","), memory })
}

/// Refuses logs of programs beside what has no path of this machine, and logs that would die with
/// it beside a volume that does not.
fn refuse_logs_beside(a: &Mount, options: &Options) -> Result<(), String> {
    let on_cluster = parts_of(&a.volume).iter().any(|part| is_rbd(part));
    if on_cluster && options.file_logs != FileLogs::None && !options.log_may_die {
        let what = "private logs in files die with this machine, and the newest fsyncs of programs with \
                    them, while the volume lives on the cluster: say private_logs=daemon, or that they may \
                    (log_may_die)";
        return Err(what.into());
    }
    if on_cluster && options.file_logs == FileLogs::Beside {
        let what = "private_logs=on: logs in files lie beside the volume, which is on the cluster: say in \
                    which directory (private_logs=/DIR)";
        return Err(what.into());
    }
    let beside = options.file_logs == FileLogs::Beside && is_at_target(&principal(&a.volume));
    let log = a.parts.log.is_some() || options.open.log.is_some();
    let what = match StripePlace::parse(&a.volume) {
        None => "which is at the target: say private_logs=daemon, or in which directory",
        Some(_) if !log => "or its log, whose place is to be said for that (--log)",
        Some(_) => return Ok(()),
    };
    match beside {
        true => Err(format!("private_logs=on: logs in files lie beside the volume, {what}")),
        false => Ok(()),
    }
}

/// Mounts a volume that another process serves. Each such mount has a daemon of its own.
fn remote(a: &Mount, (mut options, memory): (Options, Arranged), served: Served) -> Outcome {
    let usage = |e: String| Failure::plain(e).with_code(USAGE);
    served::refuse(&a.options, &options).map_err(usage)?;
    served::refuse_logs(&served, &options).map_err(usage)?;
    let flags = [
        ("--log", a.parts.log.is_some()),
        ("--log-spare", a.parts.log_spare.is_some()),
        ("--record-area", a.parts.record_area.is_some()),
        ("--service", a.service.is_some()),
        ("--service-fallback", a.service_fallback.is_some()),
    ];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        let what = "this belongs to the volume, which another process has open and serves";
        return Err(usage(format!("{flag}: {what}: leave it out")));
    }
    // Other sessions of the server may change what the kernel knows.
    options.mount.shared = true;
    if a.fake {
        return Ok(0);
    }
    let address = served::absolute(&a.volume, &served).map_err(Failure::plain)?;
    let served = match served::served(&address, &options.served) {
        Ok(Some(absolute)) if !served.addresses.are_remote() => absolute,
        _ => served,
    };
    let dir = mount_point(&a.dir)?;
    if !a.daemon_child {
        limits::left().iter().for_each(complain);
        confirm_servers(&served, &options.service.trust)?;
    }
    settle_log(a, &mut options);
    let (shown, served) = (a.options.join(","), Some(served));
    serve(a, &Daemon { volume: address, served, dir, options, shown, memory })
}

/// Has servers that are not known yet confirmed, where there may be a person to ask. Of several,
/// those that are away, or refused, are told of and passed by: the mount dials them again when it
/// looks for its server.
fn confirm_servers(served: &Served, trust: &Trust) -> Result<(), Failure> {
    let options = transport_to(&served.addresses);
    let mut unknown = Vec::new();
    for address in served.addresses.all() {
        match trust.secure(address, &options, confirm()) {
            Ok(_) => {}
            Err(error) if served.addresses.are_several() => {
                unknown.push(format!("{address}: {error}"));
            }
            Err(error) => return Err(Failure::plain(error)),
        }
    }
    if unknown.len() == served.addresses.all().len() {
        return Err(Failure::plain(unknown.join("; ")));
    }
    unknown
        .iter()
        .for_each(|why| complain(format_args!("passed by, and dialed again later: {why}")));
    Ok(())
}

/// As the daemon has them, for mounts that are attached later.
fn settle_log(a: &Mount, options: &mut Options) {
    options.daemon.log_level = a.log_level.or(options.daemon.log_level);
    let log_file = a.log_file.as_ref().or(options.daemon.log_file.as_ref());
    options.daemon.log_file =
        log_file.map(|log| std::path::absolute(log).unwrap_or_else(|_| log.clone()));
}

/// Serves the mount in this process, or has another one do it.
fn serve(a: &Mount, daemon: &Daemon) -> Outcome {
    if a.daemon_child {
        // The daemon's standard error is not shown: the parent reports what went wrong.
        start_log(a, &daemon.options).inspect_err(|f| {
            send(&Message::Failed { code: f.code, message: f.message.clone() });
        })?;
        return background(daemon);
    }
    if a.foreground {
        start_log(a, &daemon.options)?;
        let mut report = Terminal(Display::new());
        return daemon.run(&mut report);
    }
    spawn(a, daemon)
}

/// The options, and how the process that is to be the daemon stands to the kernel's memory.
fn surroundings(a: &Mount) -> Result<(Options, Arranged), String> {
    let options = mount_options::parse(&a.options, a.sloppy)?;
    if a.fake || !(a.daemon_child || a.foreground) {
        return Ok((options, Arranged::default()));
    }
    let memory = memory::arrange(options.daemon.memory_group);
    match memory.limit {
        Some(limit) => Ok((mount_options::parse_within(limit, &a.options, a.sloppy)?, memory)),
        None => Ok((options, memory)),
    }
}

/// The daemon leaves the directory that a relative path starts from.
fn absolute(address: Address) -> Result<Address, Failure> {
    match address {
        Address::Unix(path) => {
            let full = std::path::absolute(&path).map_err(|e| Failure::about(&path, e))?;
            Ok(Address::Unix(full))
        }
        network => Ok(network),
    }
}

/// What the command line says about the log counts more than what the options say.
fn start_log(a: &Mount, options: &Options) -> Result<(), Failure> {
    let o = &options.daemon;
    let file = a.log_file.as_deref().or(o.log_file.as_deref());
    logging::start(file, a.foreground, a.log_level.or(o.log_level), o.log_format)
}

/// The directory to mount on: dead mounts taken away, nothing of ours there yet. A mount that is
/// going, by an unmount or because its daemon dies, is waited for.
fn mount_point(given: &Path) -> Result<PathBuf, Failure> {
    let dir = resolve(given).map_err(|e| Failure::about(given, e))?;
    let start = Instant::now();
    loop {
        refuse_stopped(&dir)?;
        let dead = detach_dead(&dir).map_err(|e| Failure::about(&dir, e))?;
        if dead > 0 {
            let what = "detached a mount whose daemon had died";
            complain(format_args!("{}: {what}", dir.display()));
        }
        let top = top_mount(&dir).map_err(|e| Failure::about(&dir, e))?;
        if top.is_some_and(|m| ends_abandoned(&m)) {
            continue;
        }
        match std::fs::metadata(&dir) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(Failure::about(&dir, "not a directory")),
            // Its daemon died after the check above.
            Err(e) if says_dead(&e) && start.elapsed() < GOING => {
                continue;
            }
            Err(e) => return Err(Failure::about(&dir, e)),
        }
        let top = top_mount(&dir).map_err(|e| Failure::about(&dir, e))?;
        let Some(m) = top.filter(|m| m.fs_type == "fuse.siftfs") else { return Ok(dir) };
        if !closing::is_going(&m)? || start.elapsed() >= GOING {
            let what = format!("already mounted (volume {})", m.source.display());
            return Err(Failure::about(&dir, format!("{what}; `siftfs umount` it first")));
        }
    }
}

/// Refuses a mount whose daemon is stopped: every access to it waits until the daemon runs again.
fn refuse_stopped(dir: &Path) -> Result<(), Failure> {
    let top = top_mount(dir).map_err(|e| Failure::about(dir, e))?;
    let ours = top.filter(|m| m.is_fuse());
    let daemon = ours.and_then(|m| Client::of(&m).ok());
    match daemon.filter(Client::is_stopped) {
        Some(daemon) => Err(Failure::about(dir, daemon.stopped())),
        None => Ok(()),
    }
}

/// Starts the daemon as a process of its own and relays what it says until it is ready.
fn spawn(a: &Mount, daemon: &Daemon) -> Outcome {
    let exe = std::env::current_exe().map_err(Failure::plain)?;
    let mut command = Command::new(exe);
    command.arg("mount").arg("--daemon-child").arg(&daemon.volume).arg(&daemon.dir);
    for list in &a.options {
        command.arg("-o").arg(list);
    }
    if let Some(log) = &daemon.options.open.log {
        command.arg("--log").arg(log);
    }
    if let Some(spare) = &daemon.options.open.log_spare {
        command.arg("--log-spare").arg(spare);
    }
    if let Some(area) = &daemon.options.open.record_area_at {
        command.arg("--record-area").arg(area.to_string());
    }
    let service = &daemon.options.service;
    if let Some(address) = &service.address {
        command.arg("--service").arg(address.to_string());
    }
    if let Some(patience) = service.fallback {
        command.arg(format!("--service-fallback={}", patience.as_secs()));
    }
    if let Some(level) = a.log_level {
        command.args(["--log-level", level.name()]);
    }
    if a.sloppy {
        command.arg("--sloppy");
    }
    if let Some(log) = &a.log_file {
        let log = std::path::absolute(log).map_err(|e| Failure::about(log, e))?;
        command.arg("--log-file").arg(log);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| Failure::plain(format!("cannot start: {e}")))?;
    let code = relay(&mut child, &daemon.volume)?;
    if a.verbose {
        let (volume, dir) = (daemon.volume.display(), daemon.dir.display());
        say(format_args!("siftfs: {volume} mounted on {dir}"))?;
    }
    if !a.helper && daemon.options.mount.requests == Requests::Auto {
        tune::hint();
    }
    Ok(code)
}

fn relay(child: &mut Child, volume: &Path) -> Outcome {
    let mut display = Display::new();
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| Failure::plain("no pipe"))?);
    loop {
        let mut line = String::new();
        let n = lines.by_ref().take(MAX_LINE).read_line(&mut line).map_err(Failure::plain)?;
        match serde_json::from_str(&line) {
            Ok(Message::Progress { what, done, total }) => display.update(&what, done, total),
            Ok(Message::Volatile { place }) => warn_of_volatile(&place),
            Ok(Message::Warning { text }) => warn(volume, &text),
            Ok(Message::Ready { .. }) => return Ok(0),
            Ok(Message::Failed { code, message }) => {
                let _ = child.wait();
                return Err(Failure { code, message });
            }
            Err(_) if n > 0 => {}
            Err(_) => {
                let how = child.wait().map_or_else(|e| e.to_string(), ended);
                return Err(Failure::about(
                    volume,
                    format!("the daemon {how} before it was ready"),
                ));
            }
        }
    }
}

fn warn(volume: &Path, text: &str) {
    complain(format_args!("{}: {text}", volume.display()));
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or(-1)),
    }
}

/// The daemon process: leaves the caller's terminal and session, then runs.
fn background(daemon: &Daemon) -> Outcome {
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(Failure::plain)?;
    let mut report = Pipe { ready: false };
    let outcome = daemon.run(&mut report);
    if let Err(Failure { code, message }) = &outcome
        && !report.ready
    {
        send(&Message::Failed { code: *code, message: message.clone() });
    }
    outcome
}

fn send(message: &Message) {
    if let Ok(text) = serde_json::to_string(message) {
        // The parent may have been interrupted, so that no process reads this.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }
}

/// Reports to the parent through standard output.
struct Pipe {
    ready: bool,
}

impl Report for Pipe {
    fn progress(&mut self, what: &str, done: u64, total: u64) {
        send(&Message::Progress { what: what.to_string(), done, total });
    }

    fn volatile(&mut self, place: &str) {
        send(&Message::Volatile { place: place.into() });
    }

    fn warning(&mut self, _: &Path, text: &str) {
        send(&Message::Warning { text: text.into() });
    }

    fn ready(&mut self) {
        send(&Message::Ready { pid: std::process::id() });
        self.ready = true;
        // The parent's pipe must end, and nothing may go to a terminal any more.
        if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }
}

/// Reports to a terminal.
struct Terminal(Display);

impl Report for Terminal {
    fn progress(&mut self, what: &str, done: u64, total: u64) {
        self.0.update(what, done, total);
    }

    fn volatile(&mut self, place: &str) {
        warn_of_volatile(place);
    }

    fn warning(&mut self, volume: &Path, text: &str) {
        warn(volume, text);
    }

    fn ready(&mut self) {
        notify::ready();
        self.0 = Display::new();
    }
}
