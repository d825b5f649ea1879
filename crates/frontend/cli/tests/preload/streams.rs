//! The C library's streams, which call write(2) and its kin by names that no library can take.

use crate::speed::requests;
use crate::support::run;
use crate::{accel, compiled, eager, library, mounted, ran, told};
use std::fs;
use std::process::Command;

/// What a stream writes and fsync(2) makes durable is no request, after the first calls.
///
/// Seen to fail when the entries stay as they are.
#[test]
fn a_streams_writes_are_no_requests() {
    let s = mounted();
    let program = compiled("streams", s.tmp.path());
    let path = s.path("lines");
    let before = (requests(&s, "write"), requests(&s, "fsync"), told(&s, "records"));
    let words = ["loop", path.to_str().unwrap(), "208"];
    ran(Command::new(&program).env("LD_PRELOAD", library()).args(words)).ok();
    let writes = requests(&s, "write") - before.0;
    let syncs = requests(&s, "fsync") - before.1;
    let records = told(&s, "records") - before.2;
    assert!(writes <= 8 && syncs <= 8 && records >= 200, "{writes}, {syncs}, {records}");
    let lines: String = (0..208).map(|n| format!("line {n:08}\n")).collect();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines);
    s.umount();
    s.assert_plain_ext4();
}

/// Streams by names, by known descriptors and anew; their numbers used again; children, pipes,
/// threads, cancellation and errors: all is said and written as without the library, whether the
/// entries are replaced or not.
///
/// Seen to fail, with the entries as they are, when what is known of a descriptor stays while a
/// stream closes it; in both ways, when freopen(3) is not caught.
#[test]
fn streams_do_the_same() {
    let s = mounted();
    let program = compiled("streams", s.tmp.path());
    let steps = |mut command: Command, name: &str| {
        let dir = s.path(name);
        fs::create_dir(&dir).unwrap();
        let before = told(&s, "records");
        let said = ran(command.arg("steps").arg(&dir)).ok();
        assert_eq!(said.err, "", "{name}");
        (said.out, dir, told(&s, "records") - before)
    };
    let (plain, theirs, _) = steps(Command::new(&program), "plain");
    assert!(plain.contains("step 7\n"), "{plain}");
    let replaced = steps(eager(&program), "replaced");
    let mut unseen = eager(&program);
    unseen.env("SIFTFS_ACCEL_STREAMS", "off");
    let unseen = steps(unseen, "unseen");
    for (said, ours, _) in [&replaced, &unseen] {
        for (ours, theirs) in said.lines().zip(plain.lines()) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(said.len(), plain.len());
        run("diff", &["-r", ours.to_str().unwrap(), theirs.to_str().unwrap()]).ok();
    }
    assert!(replaced.2 > unseen.2 + 150, "{} and {} records", replaced.2, unseen.2);
    s.umount();
    s.assert_plain_ext4();
}

/// What a child closes that shares memory until it runs another program stays known to its parent.
///
/// Seen to fail when the entry of close(2) asks no more than the table.
#[test]
fn a_child_closes_its_own() {
    let s = mounted();
    let script = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
close = [(os.POSIX_SPAWN_CLOSE, fd)]
os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=close), 0)
for n in range(100):
    os.pwrite(fd, b'x' * 100, 100 * n); os.fsync(fd)
";
    ran(eager("python3").args(["-c", script, s.path("f").to_str().unwrap()])).ok();
    assert!(told(&s, "records") > 90, "{} records", told(&s, "records"));
    assert_eq!(fs::read(s.path("f")).unwrap(), [b'x'; 10_000]);
    s.umount();
}

/// `siftfs accel --no-streams`.
#[test]
fn streams_are_switched_off() {
    let s = mounted();
    let program = compiled("streams", s.tmp.path());
    let records = |options: &[&str], name: &str| {
        let (path, before) = (s.path(name), told(&s, "records"));
        let words = [program.to_str().unwrap(), "loop", path.to_str().unwrap(), "100"];
        ran(&mut accel(options, &words)).ok();
        told(&s, "records") - before
    };
    assert_eq!(records(&["--no-streams"], "off"), 0);
    assert!(records(&[], "on") > 80);
    s.umount();
}

/// Another library between this one and the C library still gets the calls by name, and all go on
/// to the kernel once.
#[test]
fn other_libraries_are_called() {
    let s = mounted();
    let program = compiled("streams", s.tmp.path());
    let source = s.tmp.path().join("between.c");
    let between = s.tmp.path().join("between.so");
    let code = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <sys/types.h>
        static int calls;
        ssize_t write(int fd, const void *from, size_t len) {
            ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, \"write\");
            calls++;
            return next(fd, from, len);
        }
        __attribute__((destructor)) static void end(void) { fprintf(stderr, \"%d calls\\n\", calls); }
    ";
    fs::write(&source, code).unwrap();
    let words = ["-shared", "-fPIC", "-o", between.to_str().unwrap(), source.to_str().unwrap()];
    run("cc", &words).ok();
    let preload = format!("{}:{}", library().display(), between.display());
    let dir = s.path("between");
    fs::create_dir(&dir).unwrap();
    let mut command = eager(&program);
    let said = ran(command.env("LD_PRELOAD", preload).arg("steps").arg(&dir)).ok();
    assert!(said.err.ends_with(" calls\n") && !said.err.ends_with("\n0 calls\n"), "{}", said.err);
    assert_eq!(fs::read_to_string(dir.join("output")).unwrap().matches("printed").count(), 1);
    s.umount();
}
