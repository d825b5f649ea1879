//! `siftfs accel --count-escapes`: what goes past the library is counted, and nothing of programs
//! that people use goes past it but what is known.

use crate::support::{Ran, Setup, run};
use crate::{accel, compiled, mounted, ran, told};
use std::collections::BTreeMap;
use std::fs;

/// The calls that escaped, and what was told last.
fn escaped(said: &Ran) -> (BTreeMap<String, u64>, String) {
    let told: Vec<&str> = said.err.lines().filter_map(|l| l.strip_prefix("siftfs: ")).collect();
    let mut calls = BTreeMap::new();
    for line in &told {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [count, name, number] = words[..]
            && let (Ok(count), Ok(_)) = (count.parse(), number.parse::<u64>())
        {
            calls.insert(name.to_string(), count);
        }
    }
    (calls, told.last().expect("a last line").to_string())
}

/// Each call of a program that makes them by itself is counted once, wherever it does so; calls of
/// the C library are not, nor those on other files.
///
/// Seen to fail when a thread, a child or a handler does not count, and when a signal's mask or a
/// handler's is left as the program says: it ends by SIGSYS.
#[test]
fn calls_past_the_library_are_counted() {
    let s = mounted();
    let program = compiled("escapes", s.tmp.path());
    let path = s.path("f");
    let words = [program.to_str().unwrap(), path.to_str().unwrap()];
    let said = ran(&mut accel(&["--count-escapes"], &words)).ok();
    let (calls, last) = escaped(&said);
    // The stream asks for flags and attributes; a handler that comes in a call is not seen.
    let expected = [("close", 1), ("fcntl", 1), ("fsync", 1), ("newfstatat", 1), ("openat", 1)];
    let expected = expected.into_iter().chain([("pwrite64", 5), ("write", 3)]);
    let expected: BTreeMap<_, _> =
        expected.map(|(name, count)| (name.to_string(), count)).collect();
    assert_eq!(calls, expected, "{}", said.err);
    assert!(last.starts_with("3 processes, 4 threads, "), "{last}");
    assert!(last.ends_with(" 6 of 6 entries for streams"), "{last}");
    let signal = ran(&mut accel(&["--count-escapes"], &["sh", "-c", "kill -9 $$"]));
    assert_eq!(signal.code, 137);
    ran(&mut accel(&["--count-escapes"], &["/nowhere/program"])).fails(127, &["/nowhere"]);
    s.umount();
}

/// A program in a directory of its own; the names of calls that escaped.
#[track_caller]
fn names(s: &Setup, name: &str, options: &[&str], words: &[&str]) -> Vec<String> {
    let dir = s.path(name);
    fs::create_dir(&dir).unwrap();
    let mut command = accel(&[&["--count-escapes"], options].concat(), words);
    let said = ran(command.env("SIFTFS_ACCEL", "eager").current_dir(&dir)).ok();
    escaped(&said).0.into_keys().collect()
}

/// Nothing that reads, writes or makes durable escapes of SQLite, bash, Python and programs that
/// write by streams. Where the entries are left alone the streams do.
#[test]
fn nothing_of_programs_escapes_but_what_is_known() {
    let s = mounted();
    // Locks, and calls that change neither bytes nor sizes.
    let known = [
        "fcntl",
        "flock",
        "fchmod",
        "fchown",
        "newfstatat",
        "fstat",
        "statx",
        "ioctl",
        "fadvise64",
        "fgetxattr",
        "utimensat",
    ];
    let sql = "PRAGMA synchronous=FULL; CREATE TABLE t(x); INSERT INTO t VALUES(1);
        INSERT INTO t VALUES(2); INSERT INTO t VALUES(3); SELECT count(*) FROM t;";
    let [wal, delete] = ["WAL", "DELETE"].map(|mode| format!("PRAGMA journal_mode={mode}; {sql}"));
    let python = "
import os
with open('text', 'w+') as f:
    for n in range(50): f.write('line\\n'); f.flush(); os.fsync(f.fileno())
    f.seek(0); f.read()
";
    let bash = "for n in {1..20}; do echo $n >>list; done; exec 7<>list; read -u7 line; echo $line";
    let streams = compiled("streams", s.tmp.path());
    let streams = [streams.to_str().unwrap(), "loop", "lines", "50"];
    let programs: [(&str, &[&str]); 5] = [
        ("wal", &["sqlite3", "database", &wal]),
        ("delete", &["sqlite3", "database", &delete]),
        ("python", &["python3", "-c", python]),
        ("bash", &["bash", "-c", bash]),
        ("streams", &streams),
    ];
    for (name, words) in programs {
        let mut calls = names(&s, name, &[], words);
        calls.retain(|call| !known.contains(&call.as_str()));
        assert!(calls.is_empty(), "{name}: {calls:?}");
    }
    assert!(told(&s, "records") > 50);
    let off = names(&s, "off", &["--no-streams"], &streams);
    for call in ["openat", "write", "close"] {
        assert!(off.iter().any(|name| name == call), "{off:?}");
    }
    s.umount();
}

/// A program that is linked statically runs, is not accelerated, and a terminal is told so.
#[test]
fn a_static_program_is_told_of() {
    let s = mounted();
    let source = format!("{}/tests/preload/sources/streams.c", env!("CARGO_MANIFEST_DIR"));
    let program = s.tmp.path().join("static");
    let program = program.to_str().unwrap();
    run("cc", &["-static", "-D_GNU_SOURCE", "-pthread", "-o", program, &source]).ok();
    let path = s.path("lines");
    let words = [program, "loop", path.to_str().unwrap(), "50"];
    let said = ran(&mut accel(&[], &words)).ok();
    assert_eq!((said.err.as_str(), told(&s, "records")), ("", 0));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 50);
    let said = escaped(&ran(&mut accel(&["--count-escapes"], &words)).ok());
    assert!(said.0.is_empty() && said.1.starts_with("0 processes"), "{said:?}");
    let on_terminal = |program: &str| {
        let accel = accel(&[], &[program, "loop", path.to_str().unwrap(), "1"]);
        let mut line = vec![accel.get_program().to_str().unwrap()];
        line.extend(accel.get_args().map(|word| word.to_str().unwrap()));
        run("script", &["-qec", &line.join(" "), "/dev/null"]).out
    };
    assert!(on_terminal(program).contains("not accelerated: it is linked statically"));
    let dynamic = compiled("streams", s.tmp.path());
    assert_eq!(on_terminal(dynamic.to_str().unwrap()), "");
    s.umount();
}
