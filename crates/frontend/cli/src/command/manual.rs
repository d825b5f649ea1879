//! The man pages: one for `siftfs`, one per command, and those of the helpers that mount(8),
//! umount(8) and fsck(8) call.

use crate::options::args::Cli;
use crate::options::table::{OTHERS, options};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// One page.
pub struct Page {
    /// The page's file name.
    pub name: String,
    /// The page's text for man(1).
    pub text: Vec<u8>,
}

/// Exit statuses and what they mean.
type Statuses = &'static [(&'static str, &'static str)];

/// Of the commands that are not like one of the system's.
const COMMAND: Statuses = &[
    ("0", "done"),
    ("1", "failed; one message on standard error says what is wrong and what to do"),
    ("2", "wrong usage: an unknown command or option, a value out of range"),
];
/// Of the command that becomes another program.
const ANOTHER: Statuses = &[
    ("0", "the program's own, as all others that the program may have"),
    ("1", "failed before the program began: its library is missing"),
    ("2", "wrong usage: no program is named"),
    ("126", "the program cannot be run"),
    ("127", "there is no such program"),
];
/// Of the command that runs another one under a hold.
const SNAPSHOT: Statuses = &[
    ("0", "the command's own, as all others that the command may have"),
    ("1", "nothing was held, and the command has not run; one message on standard error says why"),
    ("2", "wrong usage: no command is named, or the term is out of range"),
    (
        "124",
        "the hold ended before the command, or a signal did: what the command made is no snapshot",
    ),
    ("126", "the command cannot be run"),
    ("127", "there is no such command"),
];
/// As fsck(8) has them.
const CHECK: Statuses = &[
    ("0", "clean; for recover: recovered, or clean already; for inspect: readable"),
    ("4", "damaged or incompatible; for fsck also: not unmounted, recovery comes first"),
    (
        "8",
        "could not check: no such file, in use, an I/O error, not a volume; for fsck also: e2fsck was killed, \
         given up or failed and had seen no damage; the ext4 area is clean, and the log was not found",
    ),
    ("16", "wrong usage"),
];
/// As fsck(8) has them, of the helper that may repair.
const REPAIR: Statuses = &[
    ("0", "clean"),
    ("1", "something was put right, and the volume is clean now"),
    ("4", "damaged or incompatible, or not unmounted and nothing may be put right"),
    (
        "8",
        "could not check: no such file, in use, an I/O error, not a volume, or its log was not found; e2fsck \
         was killed, given up or failed and had seen no damage",
    ),
    ("16", "wrong usage"),
];
/// As mount(8) has them.
const HELPER: Statuses = &[
    ("0", "done"),
    ("1", "wrong usage: an unknown option, a value out of range"),
    ("32", "the mount or umount failed; the message says why"),
];
const FILES: &str = "/run/siftfs/*.sock: where the daemons of the mounts listen for commands.";
const ENVIRONMENT: &str = "SIFTFS_LOG filters the log, such as `debug` or `siftfs_runtime=trace`.";

const RINGS: &str = "Linux 6.14 and later can hand requests over by io_uring, to a thread on the processor of \
     the program that asks, which need not wake another one. It is switched off until root says otherwise, with \
     `siftfs tune on` (siftfs-tune(8)); mounts from then on use it (requests=auto). It sets \
     /sys/module/fuse/parameters/enable_uring, and makes that last by a file in /etc/modprobe.d; where fuse is \
     part of the kernel, it says what the kernel's command line needs. Nothing needs it. siftfs-status(8) says \
     which way requests come, and why.";
const SCHEDULING: &str = "A program that waits for a request waits for a thread of the daemon. With \
     priority=realtime these threads, and no others of the daemon, come before every program that is not \
     realtime itself (SCHED_RR, priority 1). They cannot keep a processor: a thread that computes for 0.2 \
     seconds without waiting for anything makes all of them nice (SIGXCPU), and one that goes on for 5 seconds \
     ends the daemon (RLIMIT_RTTIME), after which the next mount recovers the volume. Where the daemon \
     may not have it, it takes nice, or runs as any program.";

/// All pages.
pub fn pages() -> Vec<Page> {
    let mut cli = Cli::command();
    cli.build();
    let mut pages = vec![page(&cli)];
    let commands = cli.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    for command in commands {
        pages.push(page(command));
        pages.extend(command.get_subcommands().map(page));
    }
    pages.push(mount_helper());
    pages.push(umount_helper());
    pages.push(fsck_helper());
    pages
}

fn statuses(command: &str) -> Statuses {
    match command {
        "fsck" | "recover" | "inspect" => CHECK,
        "accel" => ANOTHER,
        "freeze" => SNAPSHOT,
        _ => COMMAND,
    }
}

/// The page of a command, or of `siftfs` itself.
fn page(command: &Command) -> Page {
    let title = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let name = format!("{title}.8");
    let top = command.get_name() == "siftfs";
    // What clap prints behind the options comes as sections of its own here.
    let extra = command.get_after_help().map(ToString::to_string).filter(|_| !top);
    let man = Man::new(command.clone())
        .title(title.to_uppercase())
        .section("8")
        .source(concat!("siftfs ", env!("CARGO_PKG_VERSION")))
        .manual("SiftFS");
    let mut text = Vec::new();
    let mut rendered = man.render_title(&mut text);
    rendered = rendered.and_then(|()| man.render_name_section(&mut text));
    rendered = rendered.and_then(|()| man.render_synopsis_section(&mut text));
    rendered = rendered.and_then(|()| man.render_description_section(&mut text));
    rendered = rendered.and_then(|()| man.render_options_section(&mut text));
    if command.has_subcommands() {
        rendered = rendered.and_then(|()| man.render_subcommands_section(&mut text));
    }
    rendered.expect("writing to memory does not fail");
    let mut roff = Roff::new();
    match command.get_name() {
        "mount" => mount_options(&mut roff),
        _ => {
            if let Some(extra) = extra {
                section(&mut roff, "NOTES", &extra);
            }
        }
    }
    exit_status(&mut roff, statuses(command.get_name()));
    if top {
        list(&mut roff, "EXIT STATUS OF FSCK, RECOVER AND INSPECT", CHECK);
        section(&mut roff, "ENVIRONMENT", ENVIRONMENT);
        section(&mut roff, "FILES", FILES);
    }
    see_also(&mut roff, &title);
    text.extend_from_slice(roff.render().as_bytes());
    Page { name, text }
}

fn section(roff: &mut Roff, title: &str, text: &str) {
    roff.control("SH", [title]);
    roff.text([roman(text)]);
}

fn list(roff: &mut Roff, title: &str, rows: Statuses) {
    roff.control("SH", [title]);
    for (status, meaning) in rows {
        roff.control("TP", []);
        roff.text([bold(*status)]);
        roff.text([roman(*meaning)]);
    }
}

fn exit_status(roff: &mut Roff, rows: Statuses) {
    list(roff, "EXIT STATUS", rows);
}

fn see_also(roff: &mut Roff, title: &str) {
    let ours = ["siftfs(8)", "siftfs-mount(8)", "mount.siftfs(8)", "fsck.siftfs(8)"];
    let all = ours.into_iter().chain(["mount(8)", "fsck(8)", "ext4(5)"]);
    let others: Vec<_> = all.filter(|o| *o != format!("{title}(8)")).collect();
    section(roff, "SEE ALSO", &others.join(", "));
}

fn mount_options(roff: &mut Roff) {
    roff.control("SH", ["MOUNT OPTIONS"]);
    for o in options() {
        roff.control("TP", []);
        roff.text([bold(o.usage)]);
        roff.text([roman(format!("{} (default: {})", o.meaning, o.default))]);
    }
    roff.control("PP", []);
    roff.text([roman(OTHERS)]);
    section(roff, "REQUESTS BY RINGS", RINGS);
    section(roff, "SCHEDULING", SCHEDULING);
}

/// Title, name and synopsis of a page that no command of clap's stands behind.
fn helper_page(name: &str, about: &str, synopsis: &[Inline]) -> Roff {
    let mut roff = Roff::new();
    let source = concat!("siftfs ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name.to_uppercase().as_str(), "8", "", source, "SiftFS"]);
    section(&mut roff, "NAME", &format!("{name} - {about}"));
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(synopsis);
    roff
}

/// How a volume is named that another process serves.
fn served_lines(roff: &mut Roff) {
    roff.control("PP", []);
    roff.text([roman(
        "In the volume's place may stand where another process serves it (siftfs-serve(8)): unix:PATH, \
         tcp:HOST:PORT, rdma:HOST:PORT or HOST:/VOLUME. Of several servers one has the volume at a time: \
         HOST,HOST:PORT:/VOLUME, or addresses with commas between them.",
    )]);
    roff.control("PP", []);
    roff.text([bold("unix:/run/data.sock /srv/data siftfs rw,nofail,_netdev 0 0")]);
}

fn mount_helper() -> Page {
    let mut roff = helper_page(
        "mount.siftfs",
        "mount a SiftFS volume, called by mount(8)",
        &[
            bold("mount -t siftfs"),
            roman(" [-sfnvrw] [-o "),
            italic("OPTIONS"),
            roman("] "),
            italic("VOLUME DIR"),
        ],
    );
    section(
        &mut roff,
        "DESCRIPTION",
        "mount(8) runs it for the type siftfs, from the command line, from fstab(5) and from systemd's \
         mount units. It recovers the volume if that is needed, mounts it and returns when it is usable; \
         a daemon of its own serves the mount from then on. A mount of the same directory whose daemon \
         has died is taken away first.",
    );
    roff.control("PP", []);
    roff.text([roman(
        "A line of fstab(5); the last field may be 2 for a volume on a block device, see fsck.siftfs(8):",
    )]);
    roff.control("PP", []);
    roff.text([bold("/var/lib/data.sift /srv/data siftfs rw,nosuid,nodev,nofail 0 0")]);
    served_lines(&mut roff);
    roff.control("SH", ["OPTIONS"]);
    for (option, meaning) in [
        ("-o OPTIONS", "mount options, see below"),
        ("-r, -w", "as -o ro and -o rw"),
        ("-f", "fake: check the options, mount nothing"),
        ("-s", "sloppy: pass over unknown options"),
        ("-v", "say what was mounted"),
        ("-n", "accepted; no mtab is written in any case"),
        ("-N NAMESPACE", "mount in another mount namespace: a process number or its file"),
        ("-t TYPE", "siftfs, fuse.siftfs, or siftfs.NAME, which is -o subtype=NAME"),
    ] {
        roff.control("TP", []);
        roff.text([bold(option)]);
        roff.text([roman(meaning)]);
    }
    mount_options(&mut roff);
    section(
        &mut roff,
        "REMOUNT",
        "mount -o remount,OPTIONS DIR changes ro, rw, nosuid, nodev, noexec, noatime, commit=, cache=, \
         meta_cache=, group_wait=, low_watermark=, record_max=, record_share=, record_physical=, operations= and log_level= of a volume that is mounted; the others are \
         refused by name where they differ from what holds. As with other file systems, ro is refused while a \
         file is open for writing, or was removed and is open. When it returns, everything is in the ext4 area \
         and nothing is written any more; the volume stays marked as in use until it is unmounted. A volume that \
         was mounted read-only can be made writable, unless it is write-protected. mount(8) given both volume and \
         directory needs -t siftfs as well: without it, it asks the kernel alone.",
    );
    section(
        &mut roff,
        "NOT OFFERED",
        "strictatime, diratime, lazytime: the kernel answers repeated reads from its cache, access times of \
         directories are not kept, and times are journaled with everything else.",
    );
    roff.control("PP", []);
    roff.text([roman(
        "noload, norecovery: the ext4 area of a volume that was not unmounted may be half of a checkpoint, and \
         is not read without its log. ro recovers the volume first; siftfs-inspect(8) only reads.",
    )]);
    exit_status(&mut roff, HELPER);
    see_also(&mut roff, "mount.siftfs");
    Page { name: "mount.siftfs.8".into(), text: roff.render().into_bytes() }
}

fn umount_helper() -> Page {
    let mut roff = helper_page(
        "umount.siftfs",
        "unmount a SiftFS volume, called by umount(8)",
        &[bold("umount"), roman(" [-flnrv] "), italic("DIR"), roman(" | "), italic("VOLUME")],
    );
    section(
        &mut roff,
        "DESCRIPTION",
        "umount(8) runs it for mounts of type fuse.siftfs. It returns when everything is in the ext4 area, \
         the volume is plain ext4 and the daemon has gone. With -l the mount is detached even if it is in \
         use, and the command returns when the last user has gone. The other options change nothing.",
    );
    section(
        &mut roff,
        "SEVERAL MOUNTS OF ONE VOLUME",
        "Where another mount shows the same volume (mount --bind), or another mount namespace does, the \
         mount is taken away, a message says where the volume stays mounted, and the status is 0: the volume is \
         closed after its last mount. umount(8) runs no helper for a bind mount, and does not wait where that is \
         the last one.",
    );
    exit_status(&mut roff, HELPER);
    see_also(&mut roff, "umount.siftfs");
    Page { name: "umount.siftfs.8".into(), text: roff.render().into_bytes() }
}

fn fsck_helper() -> Page {
    let mut roff = helper_page(
        "fsck.siftfs",
        "check and repair a SiftFS volume, called by fsck(8)",
        &[bold("fsck.siftfs"), roman(" [-a|-p|-y|-n] [-f] [-C[FD]] "), italic("VOLUME")],
    );
    section(
        &mut roff,
        "DESCRIPTION",
        "fsck(8) and the boot run it for volumes that fstab(5) lists with the type siftfs; others look like \
         ext4 to fsck(8), which they are while they are clean. It checks header, \
         lanes and journal, as siftfs-fsck(8) does, and then the ext4 area by e2fsck(8). It never asks. A \
         log elsewhere is found as mount(8) finds it. What is in a log that is damaged or lost is given up \
         by `siftfs recover --discard-log` alone.",
    );
    roff.control("SH", ["OPTIONS"]);
    for (option, meaning) in [
        ("-n, or none of -a, -p, -y", "only check; nothing is written"),
        (
            "-a, -p",
            "put right what the next mount would put right (a volume that was not unmounted is recovered, \
             and nothing that was fsynced is lost), then run e2fsck -p",
        ),
        ("-y", "the same, then run e2fsck -y: it repairs whatever it finds in the ext4 area"),
        ("-f", "check the ext4 area even if it says that it is clean"),
        (
            "-C[FD]",
            "write e2fsck's lines of progress to this descriptor; without one, or 0: show it",
        ),
        ("-r, -v, -V, -s, -l, -M, -P, -R, -T", "accepted; they change nothing"),
        ("-t TYPE", "siftfs or fuse.siftfs"),
    ] {
        roff.control("TP", []);
        roff.text([bold(option)]);
        roff.text([roman(meaning)]);
    }
    exit_status(&mut roff, REPAIR);
    see_also(&mut roff, "fsck.siftfs");
    Page { name: "fsck.siftfs.8".into(), text: roff.render().into_bytes() }
}

#[cfg(test)]
#[path = "manual_tests.rs"]
mod tests;
