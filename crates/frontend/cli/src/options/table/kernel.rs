//! Options for the kernel, and for how its requests are served.

use super::{MountOption, flag, value};
use siftfs_fuse::{Priority, Requests, WriteCache};
use siftfs_grantor::Locate;

pub const OPTIONS: &[MountOption] = &[
    flag(
        "ro",
        "rw",
        "refuse every change; a volume that was not unmounted is recovered first",
        &[("ro", true), ("rw", false)],
        |o, on| (o.mount.read_only, o.open.read_only) = (on, on),
    ),
    flag(
        "nosuid",
        "suid",
        "ignore setuid, setgid and file capabilities",
        &[("nosuid", true), ("suid", false)],
        |o, on| o.mount.nosuid = on,
    ),
    flag("nodev", "dev", "ignore device files", &[("nodev", true), ("dev", false)], |o, on| {
        o.mount.nodev = on
    }),
    flag(
        "noexec",
        "exec",
        "refuse to run programs",
        &[("noexec", true), ("exec", false)],
        |o, on| o.mount.noexec = on,
    ),
    flag(
        "user, users",
        "off",
        "imply nosuid, nodev and noexec, unless a later option differs",
        &[("user", true), ("users", true)],
        |o, _| {
            let m = &mut o.mount;
            (m.nosuid, m.nodev, m.noexec) = (true, true, true);
        },
    ),
    flag(
        "owner, group",
        "off",
        "imply nosuid and nodev, unless a later option differs",
        &[("owner", true), ("group", true)],
        |o, _| (o.mount.nosuid, o.mount.nodev) = (true, true),
    ),
    flag(
        "noatime",
        "relatime",
        "keep no access times; those of directories are not kept in any case",
        &[("noatime", true), ("relatime", false), ("atime", false)],
        |o, on| (o.mount.noatime, o.open.noatime) = (on, on),
    ),
    flag(
        "sync",
        "async",
        "every write as if the file were opened with O_SYNC",
        &[("sync", true), ("async", false)],
        |o, on| o.mount.sync = on,
    ),
    flag(
        "allow_other",
        "on for root",
        "let other users in (the kernel checks permissions)",
        &[("allow_other", true)],
        |o, on| o.mount.allow_other = on,
    ),
    flag(
        "noallow_other",
        "on for others",
        "the mounting user alone may use it",
        &[("noallow_other", false)],
        |o, on| o.mount.allow_other = on,
    ),
    flag(
        "idmap",
        "off",
        "bind mounts of it may map users to others (Linux 6.12); the daemon then knows \
         fewer callers",
        &[("idmap", true)],
        |o, on| o.mount.idmap = on,
    ),
    flag(
        "shared, share",
        "off",
        "other mounts of the volume may be attached while it is mounted; file locks are kept by \
         the daemon; not with write_cache=writeback; mount(8) and fstab keep the word shared for \
         themselves and pass share on",
        &[("shared", true), ("share", true)],
        |o, on| o.mount.shared = on,
    ),
    value(
        "subdir=PATH",
        "all",
        "mount this directory of the volume, from its root, instead of all of it",
        |o, v| v.directory().map(|path| o.subdir = path),
    ),
    value(
        "subtype=NAME",
        "siftfs",
        "the mount's type is `fuse.NAME`; empty: plain `fuse`",
        |o, v| v.subtype().map(|name| o.mount.subtype = name),
    ),
    value(
        "write_cache=MODE",
        "writethrough",
        "where write(2) leaves data: writeback (the kernel's page cache, until fsync, \
         close or age) or writethrough (the daemon)",
        |o, v| {
            let words =
                [("writeback", WriteCache::Writeback), ("writethrough", WriteCache::Writethrough)];
            v.one_of(&words).map(|cache| o.mount.write_cache = cache)
        },
    ),
    value(
        "operations=SWITCH",
        "on",
        "on or off: whether programs have publish, compounds, tickets and atomic sections",
        |o, v| v.switch("on").map(|on| o.mount.operations = on),
    ),
    value(
        "private_logs=WHERE",
        "off",
        "whether programs may keep what they write to a file in a log of their own that the \
         daemon reads, and where it is made durable: off; on (a file of the program's own, beside \
         the volume's); an absolute path of a directory for such files (a volume on a device needs \
         that; persistent memory is mapped); volatile:/DIR (mapped files that a power cut may \
         empty, to measure); daemon (in the volume, by the daemon). Not with write_cache=writeback or \
         operations=off",
        |o, v| {
            let (logs, place) = v.file_logs()?;
            (o.mount.private_logs, o.file_logs) = (logs, place);
            Ok(())
        },
    ),
    flag(
        "log_may_die",
        "off",
        "private logs in files may lie on this machine, in private_logs=/DIR, while the volume lies on \
         a cluster: with the machine dies what programs have synced into them, and the volume is opened \
         by recover --discard-log",
        &[("log_may_die", true)],
        |o, may| o.log_may_die = may,
    ),
    value("threads=N", "2", "threads that stay ready to read a request, 1 to 64", |o, v| {
        let threads = v.number(1, 64)?;
        o.mount.threads = usize::try_from(threads).expect("at most 64");
        Ok(())
    }),
    value(
        "ingest_threads=COUNT",
        "1",
        "threads by which much of a private log is taken in at once, 1 to 4",
        |o, v| {
            let threads = v.number(1, 4)?;
            o.ingest.threads = usize::try_from(threads).expect("at most 4");
            Ok(())
        },
    ),
    flag(
        "no-pipeline",
        "off",
        "the steps by which private logs are taken in take turns, as with ingest_threads=1",
        &[("no-pipeline", true)],
        |o, _| o.ingest.threads = 1,
    ),
    flag(
        "no-index-cache",
        "off",
        "for measurements: where a file's blocks are is asked for each block that a private log \
         changes in part",
        &[("no-index-cache", true)],
        |o, _| o.ingest.locate = Locate::Uncached,
    ),
    flag(
        "fetch-thread",
        "off",
        "for measurements, with ingest_threads=4: one of them fetches headers and does nothing \
         else, and none copies alone",
        &[("fetch-thread", true)],
        |o, _| o.ingest.fold_fetch = false,
    ),
    value(
        "requests=MODE",
        "auto",
        "how the kernel's requests come: ring (FUSE over io_uring, on the program's own \
         processor; root switches it on in the kernel), device (/dev/fuse), or auto: \
         ring where it is switched on",
        |o, v| {
            let words =
                [("auto", Requests::Auto), ("ring", Requests::Ring), ("device", Requests::Device)];
            v.one_of(&words).map(|requests| o.mount.requests = requests)
        },
    ),
    value(
        "priority=HOW",
        "nice",
        "how soon request threads get a busy processor: normal, slice (a short one), \
         nice (that, and nice -10) or realtime (SCHED_RR, for root; a thread that \
         computes for 0.2 s without a wait ends it for all, and after 5 s the kernel \
         ends the daemon)",
        |o, v| {
            let words = [
                ("normal", Priority::Normal),
                ("slice", Priority::Slice),
                ("nice", Priority::Nice),
                ("realtime", Priority::Realtime),
            ];
            v.one_of(&words).map(|priority| o.mount.priority = priority)
        },
    ),
];
