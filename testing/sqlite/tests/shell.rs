//! The shell that tests and benchmarks run, as they do. That it has tests of its own has it built
//! with all others.

use std::process::{Command, Output, Stdio};
use std::{fs, io::Write};

/// Runs the shell with these arguments, and with these lines as its standard input.
fn shell(args: &[&str], lines: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siftfs-sqlite"));
    let pipes = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    // A shell that has ended with an error reads no more.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

fn printed(args: &[&str], lines: &str) -> String {
    let out = shell(args, lines);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn rows_are_printed_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (database, file) = (dir.path().join("db"), dir.path().join("rows"));
    let (database, file) = (database.to_str().unwrap(), file.to_str().unwrap());
    let made = "CREATE TABLE t(a, b);\nINSERT INTO t VALUES (1, 'x'), (2.5, NULL);\n";
    assert_eq!(printed(&["-batch", database], made), "");
    let first = ["-cmd", ".timeout 100", "-cmd", "PRAGMA journal_mode=WAL;"];
    let read = [&first[..], &[database, "SELECT a, b FROM t ORDER BY a; SELECT count(*) FROM t;"]];
    assert_eq!(printed(&read.concat(), ""), "wal\n1|x\n2.5|\n2\n");
    fs::write(file, "").unwrap();
    let lines = format!(".output {file}\nSELECT a FROM t;\n.output stdout\nSELECT 7;\n");
    assert_eq!(printed(&["-no-sections", database], &lines), "7\n");
    assert_eq!(fs::read_to_string(file).unwrap(), "1\n2.5\n");
}

#[test]
fn the_first_error_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("db");
    let database = database.to_str().unwrap();
    for (args, lines, part) in [
        (&[database][..], "SELECT 1;\nSELECT nonsense;\nCREATE TABLE late(a);\n", "nonsense"),
        (&["-what", database], "", "unknown option -what"),
        (&[], "", "which database?"),
        (&[database, "SELECT 1;", "more"], "", "what is more?"),
    ] {
        let out = shell(args, lines);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(part), "{args:?}: {said}");
    }
    assert_eq!(printed(&[database, "SELECT count(*) FROM sqlite_master;"], ""), "0\n");
}
