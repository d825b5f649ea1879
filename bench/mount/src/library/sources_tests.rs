use super::*;
use siftfs_rig::program::run_whole;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_compiler_makes_a_program_of_them() {
    let tmp = tempfile::tempdir().expect("a directory");
    write(tmp.path()).expect("files");
    let mut shell = Command::new("sh");
    shell.args(["-c", BUILD]).current_dir(tmp.path());
    let ended = run_whole(&mut shell, Duration::from_secs(120), &[0]).expect("a program");
    assert_eq!(ended.printed.trim(), FILES.to_string());
    let objects = fs::read_dir(tmp.path()).expect("a directory").flatten();
    let objects = objects.filter(|e| e.path().extension().is_some_and(|e| e == "o"));
    assert_eq!(objects.count(), FILES + 1);
}
