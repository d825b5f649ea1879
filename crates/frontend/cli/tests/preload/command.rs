//! `siftfs accel` itself.

use crate::support::{Ran, SIFTFS, Setup, run};
use crate::{accel, library, ran};
use std::fs;
use std::process::Command;

#[test]
fn the_exit_status_is_the_programs() {
    for code in [0, 1, 42] {
        assert_eq!(ran(&mut accel(&[], &["sh", "-c", &format!("exit {code}")])).code, code);
    }
    ran(&mut accel(&[], &["/nowhere/program"])).fails(127, &["/nowhere/program"]);
    let s = Setup::empty();
    let file = s.tmp.path().join("file");
    fs::write(&file, "text").unwrap();
    ran(&mut accel(&[], &[file.to_str().unwrap()])).fails(126, &[file.to_str().unwrap()]);
    let none = Ran::from(Command::new(SIFTFS).arg("accel").output().unwrap());
    assert_eq!(none.code, 2);
    // Words behind the program are the program's.
    assert_eq!(ran(&mut accel(&[], &["echo", "--help", "-x"])).ok().out, "--help -x\n");
}

#[test]
fn other_libraries_stay() {
    let print = ["sh", "-c", "echo $LD_PRELOAD"];
    let said = ran(&mut accel(&[], &print)).ok().out;
    assert!(said.trim().ends_with("/libsiftfs_preload.so"), "{said}");
    let twice = ran(accel(&[], &print).env("LD_PRELOAD", library())).ok().out;
    assert_eq!(twice.matches("libsiftfs_preload").count(), 1 + usize::from(twice.contains(':')));
    let other = ran(accel(&[], &print).env("LD_PRELOAD", "libm.so.6")).ok().out;
    assert!(other.trim().ends_with("/libsiftfs_preload.so:libm.so.6"), "{other}");
}

#[test]
fn a_missing_library_is_told() {
    let s = Setup::empty();
    let alone = s.tmp.path().join("siftfs");
    // By another process: one that a test starts meanwhile would have the copy open to be written.
    run("cp", &[SIFTFS, alone.to_str().unwrap()]).ok();
    let said = Ran::from(Command::new(&alone).args(["accel", "true"]).output().unwrap());
    said.fails(1, &["libsiftfs_preload.so", "missing", "make install"]);
}
