//! Unmounting and mounting, in every state of the daemon (alive, exiting, dead, stopped) and for
//! every kind of mount (the only one, a bind mount, one that another namespace or an open file
//! holds).

use crate::place::script;
use crate::support::{Setup, siftfs};
use std::process::Command;
use std::time::{Duration, Instant};

/// What the scripts share.
const TOOLS: &str = r#"
pid_of() { siftfs status "$1" --json | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p'; }
# Runs a command that has to end soon, with a status, and keeps what it says.
soon() {
    want=$1; shift
    got=0; timeout 20 "$@" > "$T/said" 2>&1 || got=$?
    [ "$got" = "$want" ] || fail "status $got instead of $want: $*: $(cat "$T/said")"
}
says() { [ "$(grep -c "$1" "$T/said")" = 1 ] || fail "no single '$1' in: $(cat "$T/said")"; }
lines() { [ "$(wc -l < "$T/said")" = "$1" ] || fail "not $1 line(s): $(cat "$T/said")"; }
"#;

pub(crate) fn run(s: &Setup, text: &str) {
    script(s, &format!("{TOOLS}{text}")).ok();
}

/// A bind mount of a directory, of a file and of all of it goes by itself, however it is taken
/// away; the volume stays mounted, and the last of all mounts closes it.
#[test]
fn bind_mounts_go_by_themselves() {
    let s = Setup::new();
    run(
        &s,
        r#"
mkdir "$T/bd" "$T/ba"; touch "$T/bf"
mount -t siftfs "$V" "$D"
mkdir "$D/dir"; echo kept > "$D/file"
for umount in "siftfs umount" "siftfs umount --lazy" umount "umount -l" umount.siftfs; do
    mount --bind "$D/dir" "$T/bd"; mount --bind "$D/file" "$T/bf"; mount --bind "$D" "$T/ba"
    for bind in "$T/bd" "$T/bf" "$T/ba"; do
        soon 0 $umount "$bind"
        # umount(8) runs no helper for some of these.
        case $umount in umount|umount\ -l) ;; *) says "stays mounted on $D"; lines 1;; esac
        mountpoint -q "$bind" && fail "$bind is still mounted"
    done
    [ "$(cat "$D/file")" = kept ] || fail 'not usable'
done
mount --bind "$D/dir" "$T/bd"
soon 0 umount "$D"
says "stays mounted on $T/bd"
echo late > "$T/bd/late"
soon 0 siftfs sync "$T/bd"
soon 0 siftfs umount "$T/bd"
lines 0
siftfs fsck "$V" > /dev/null || fail 'not closed'
# On one directory twice.
mount -t siftfs "$V" "$D"
mount --bind "$D" "$D"
soon 0 umount "$D"
soon 0 umount "$D"
siftfs fsck "$V" > /dev/null || fail 'not closed'
"#,
    );
    s.assert_plain_ext4();
}

/// A mount namespace that holds the mount, and an open file on a mount that was detached before:
/// the unmount is done here, says what keeps the volume, and does not wait for it.
#[test]
fn what_holds_the_volume_is_named() {
    let s = Setup::new();
    run(
        &s,
        r#"
mkdir "$T/b"
for umount in "siftfs umount" "siftfs umount --lazy" umount "umount -l"; do
    mount -t siftfs "$V" "$D"
    daemon=$(pid_of "$D")
    unshare --mount --propagation private sleep 1000 &
    holder=$!
    while [ "$(readlink /proc/$holder/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.05; done
    soon 0 $umount "$D"
    says "another mount namespace, that of process $holder (sleep)"
    lines 1
    mountpoint -q "$D" && fail 'still mounted here'
    soon 1 siftfs mount "$V" "$D"
    lines 1
    kill $holder
    n=0
    while [ -e "/proc/$daemon" ]; do
        n=$((n + 1)); [ "$n" -lt 400 ] || fail 'the daemon stays'
        sleep 0.05
    done
    siftfs fsck "$V" > /dev/null || fail 'not closed'
done
mount -t siftfs "$V" "$D"
daemon=$(pid_of "$D")
mount --bind "$D" "$T/b"
exec 9> "$T/b/open"
umount -l "$T/b" 9>&- 2> /dev/null
soon 0 umount "$D" 9>&-
says 'a program that has a file open'
exec 9>&-
while [ -e "/proc/$daemon" ]; do sleep 0.05; done
"#,
    );
    s.assert_plain_ext4();
}

/// A mount that is attempted while the volume is being unmounted waits for that.
#[test]
fn mounting_waits_for_an_unmount() {
    let s = Setup::new();
    run(
        &s,
        r#"
for mount in "siftfs mount $V" "mount -t siftfs $V"; do
    for round in 1 2 3; do
        mount -t siftfs "$V" "$D" -o commit=3600
        head -c 12000000 /dev/urandom > "$D/large"
        # Whoever comes late is told only that it is mounted.
        siftfs umount "$D" &
        leaving=$!
        while mountpoint -q "$D"; do :; done
        soon 0 $mount "$D"
        wait $leaving
        [ -s "$D/large" ] || fail 'lost'
        soon 0 umount "$D"
    done
done
# Taken away without a helper, and by a signal.
mount -t siftfs "$V" "$D" -o commit=3600
head -c 12000000 /dev/urandom > "$D/large"
umount -i "$D"
soon 0 siftfs mount "$V" "$D" -o commit=3600
head -c 12000000 /dev/urandom > "$D/large"
daemon=$(pid_of "$D")
kill -TERM "$daemon"
while mountpoint -q "$D"; do :; done
soon 0 siftfs mount "$V" "$D" -o commit=3600
# One that takes its time.
head -c 12000000 /dev/urandom > "$D/large"
daemon=$(pid_of "$D")
umount -i "$D"; kill -STOP "$daemon"
(sleep 1.5; kill -CONT "$daemon") &
soon 0 siftfs mount "$V" "$D" -o commit=3600
head -c 12000000 /dev/urandom > "$D/large"
umount -i "$D"
# So do the commands that look at it.
soon 0 siftfs fsck "$V"
mount -t siftfs "$V" "$D" -o commit=3600
head -c 12000000 /dev/urandom > "$D/large"
umount -i "$D"
soon 0 siftfs recover "$V"
"#,
    );
    s.assert_plain_ext4();
}

/// Two unmounts of one mount at once: both return when the volume is closed, or one says that there
/// is no mount.
#[test]
fn two_unmounts_at_once() {
    let s = Setup::new();
    for _ in 0..5 {
        s.mount("commit=3600");
        std::fs::write(s.path("f"), vec![5; 4 << 20]).unwrap();
        let both: Vec<_> = std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| siftfs(&["umount", s.dir()]));
            let both: Vec<_> = (0..2).map(start).collect();
            both.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(both.iter().any(|ran| ran.code == 0), "{both:?}");
        for ran in both {
            let none =
                ran.err.contains("not a SiftFS mount") || ran.err.contains("by another program");
            assert!(ran.code == 0 && ran.err.is_empty() || ran.code == 1 && none, "{ran:?}");
        }
        s.assert_plain_ext4();
    }
}

/// A mount that is in use for a moment is unmounted all the same: the daemon checks its own mount
/// now and then.
#[test]
fn a_moments_use_is_waited_for() {
    let s = Setup::new();
    for round in 0..8u64 {
        s.mount("");
        let f = std::fs::File::create(s.path("f")).unwrap();
        let closes = Duration::from_millis(20 * round);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(closes);
                drop(f);
            });
            siftfs(&["umount", s.dir()]).ok();
        });
    }
    s.assert_plain_ext4();
}

/// Two mounts of one volume at once: one is made, the other says in one message that it is in use.
#[test]
fn two_mounts_at_once() {
    let s = Setup::new();
    let other = s.tmp.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let dirs = [s.dir(), other.to_str().unwrap()];
    for _ in 0..3 {
        let both: Vec<_> = std::thread::scope(|scope| {
            let volume = s.volume();
            let start = |dir| scope.spawn(move || siftfs(&["mount", volume, dir]));
            let both: Vec<_> = dirs.map(start).into_iter().collect();
            both.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(both.iter().filter(|ran| ran.code == 0).count(), 1, "{both:?}");
        let lost = both.iter().find(|ran| ran.code == 1).unwrap();
        assert!(lost.err.contains("in use") && lost.err.lines().count() == 1, "{lost:?}");
        for dir in dirs {
            siftfs(&["umount", dir]);
        }
        s.assert_plain_ext4();
    }
}

/// A daemon that is killed and still exits: one message, of what has happened, from every command.
#[test]
fn a_daemon_that_is_being_killed() {
    let s = Setup::new();
    let commands: [&[&str]; 5] = [
        &["umount", s.dir()],
        &["umount", "--lazy", s.dir()],
        &["status", s.dir()],
        &["sync", s.dir()],
        &["mount", s.volume(), s.dir()],
    ];
    for round in 0..15 {
        s.mount("commit=3600");
        // Memory takes its time to be given back.
        std::fs::write(s.path("f"), vec![7; 24 << 20]).unwrap();
        let daemon = s.daemon();
        let args = commands[round % commands.len()];
        daemon.signal(rustix::process::Signal::KILL);
        let ran = siftfs(args);
        let known = ["daemon has died", "daemon had died"];
        let taken = ran.code == 0 && args[0] == "mount";
        assert!(taken || known.iter().any(|k| ran.err.contains(k)), "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {ran:?}");
        for never in ["reset", "os error", "roken pipe"] {
            assert!(!ran.err.contains(never), "{args:?}: {ran:?}");
        }
        daemon.wait();
        siftfs(&["umount", s.dir()]);
        siftfs(&["recover", s.volume()]).ok();
    }
    s.assert_plain_ext4();
}

/// A daemon that is stopped gives no answer, and no command waits for it for ever.
#[test]
fn a_daemon_that_is_stopped() {
    let s = Setup::new();
    s.mount("");
    let other = s.tmp.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let daemon = s.daemon();
    daemon.stop();
    for args in [
        &["umount", s.dir()][..],
        &["umount", "--lazy", s.dir()],
        &["status", s.dir()],
        &["sync", s.dir()],
        &["checkpoint", s.dir()],
        &["mount", s.volume(), s.dir()],
        &["mount", s.volume(), s.dir(), "-o", "remount,ro"],
        &["mount", s.volume(), other.to_str().unwrap()],
    ] {
        let start = Instant::now();
        let ran = siftfs(args);
        assert!(start.elapsed() < Duration::from_secs(20), "{args:?}: {:?}", start.elapsed());
        assert_eq!((ran.code, ran.err.lines().count()), (1, 1), "{args:?}: {ran:?}");
        assert!(
            ran.err.contains("is stopped") && ran.err.contains("kill -CONT"),
            "{args:?}: {ran:?}"
        );
    }
    daemon.signal(rustix::process::Signal::CONT);
    s.umount();
    s.assert_plain_ext4();
}

/// What is mounted below is named, and unmounting works once it has gone.
#[test]
fn a_mount_below_is_named() {
    let s = Setup::new();
    run(
        &s,
        r#"
mount -t siftfs "$V" "$D"
mkdir "$D/below"
mount -t tmpfs tmpfs "$D/below"
soon 1 siftfs umount "$D"
says "$D/below is mounted below it"
lines 1
umount "$D/below"
soon 0 siftfs umount "$D"
"#,
    );
}

/// SIGTERM takes away every mount of the volume that can be reached.
#[test]
fn a_signal_takes_all_mounts_away() {
    let s = Setup::new();
    run(
        &s,
        r#"
mkdir "$T/b"
mount -t siftfs "$V" "$D"
mount --bind "$D" "$T/b"
umount -i "$D"
daemon=$(pid_of "$T/b")
kill -TERM "$daemon"
for i in $(seq 40); do [ -e "/proc/$daemon" ] || break; sleep 0.1; done
[ -e "/proc/$daemon" ] && fail 'only force ends it'
mountpoint -q "$T/b" && fail 'still mounted'
"#,
    );
    s.assert_plain_ext4();
}

/// Paths that a shell or a table of mounts would have to quote.
#[test]
fn odd_paths() {
    let s = Setup::empty();
    for name in ["a b", "tab\tand\nnewline", "back\\slash", "-dash", "é", &"x".repeat(200)] {
        let base = s.tmp.path().join(name);
        std::fs::create_dir(&base).unwrap();
        let volume = base.join("v ol\nume");
        let volume = volume.to_str().unwrap();
        let dir = base.join("m nt\t");
        std::fs::create_dir(&dir).unwrap();
        let slashed = format!("{}//", dir.display());
        siftfs(&["mkfs", volume, "--size", "32M"]).ok();
        siftfs(&["mount", volume, &slashed]).ok();
        std::fs::write(dir.join("f"), b"x").unwrap();
        siftfs(&["sync", &slashed]).ok();
        siftfs(&["mount", volume, &slashed, "-o", "remount,ro"]).ok();
        siftfs(&["umount", &slashed]).ok();
        siftfs(&["mount", volume, dir.to_str().unwrap()]).ok();
        siftfs(&["umount", volume]).ok();
        siftfs(&["fsck", volume]).ok();
        // Relative, and through a link.
        std::os::unix::fs::symlink(&dir, base.join("link")).unwrap();
        let within = |args: &[&str]| {
            let out = Command::new(crate::support::SIFTFS).args(args).current_dir(&base).output();
            crate::support::Ran::from(out.unwrap()).ok()
        };
        within(&["mount", "v ol\nume", "link/"]);
        within(&["umount", "./link"]);
        within(&["fsck", "v ol\nume"]);
    }
}
