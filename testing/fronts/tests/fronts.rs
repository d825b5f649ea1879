//! A slice of each campaign, by each way in which requests come. Each is a process of its own: a
//! mapping that a kernel with an old size is asked for ends its process.

use siftfs_rig::rings::{Offer, has_rings};
use std::process::Command;

fn campaign(args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siftfs-fronts"));
    let out = command.args(args).output().expect("the program can be started");
    let [said, why] = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(out.status.success(), "{args:?}: {}: {said}{why}", out.status);
}

/// By `/dev/fuse`, and by rings where the kernel has them.
fn by_both(args: &[&str]) {
    campaign(args);
    if has_rings() {
        let _on = Offer::new().expect("rings can be switched on");
        campaign(&[args, &["--ring"]].concat());
    }
}

/// How long a campaign goes on: half an hour for all of them with `SIFTFS_LONG=1`.
fn length(daily: u32, long: u32) -> String {
    match std::env::var("SIFTFS_LONG") {
        Ok(_) => long.to_string(),
        Err(_) => daily.to_string(),
    }
}

#[test]
fn front_ends_that_take_turns_see_one_file_system() {
    by_both(&["--seconds", &length(10, 600), "--seed", "1"]);
}

#[test]
fn three_mounts_take_turns() {
    campaign(&["--seconds", &length(5, 600), "--seed", "1000", "--mounts", "3"]);
}

#[test]
fn programs_at_once_never_wait_for_ever() {
    by_both(&["--programs", "12", "--seconds", &length(8, 300), "--seed", "1"]);
}

/// One mount of two goes over a wire, and two of three: by a unix socket, by TCP with keys, and
/// where the server checks each caller. With `SIFTFS_LONG=1` these and the programs below take half
/// an hour together.
#[test]
fn remote_mounts_take_turns_with_others() {
    by_both(&["--seconds", &length(5, 300), "--seed", "2000", "--remote", "1"]);
    let two = ["--mounts", "3", "--remote", "2", "--by", "keys"];
    campaign(&[&["--seconds", &length(6, 450), "--seed", "3000"], &two[..]].concat());
    let checked = ["--remote", "1", "--by", "checked"];
    campaign(&[&["--seconds", &length(4, 150), "--seed", "4000"], &checked[..]].concat());
}

/// The ways to the server are cut, are cut for a while, swallow what is sent, and are slow. All
/// that is answered is as if they had not been; of what is appended nothing is lost, or there
/// twice.
///
/// Seen to lose records when a kernel that comes back is taken to know the end of a file.
#[test]
fn mounts_whose_ways_break_take_turns_with_others() {
    let cuts = ["--remote", "1", "--cuts", "--calls", "120"];
    for (by, seed, long) in [("keys", "5000", 300), ("checked", "6000", 150)] {
        let way = ["--by", by, "--seed", seed, "--seconds", &length(10, long)];
        campaign(&[&cuts[..], &way].concat());
    }
    campaign(&[&cuts[..], &["--by", "keys", "--appenders", "3", "--seed", "5"]].concat());
}

#[test]
fn programs_at_once_never_wait_for_ever_on_remote_mounts() {
    let programs = ["--programs", "12", "--seed", "1"];
    let seconds = length(5, 150);
    by_both(&[&programs[..], &["--seconds", &seconds, "--remote", "1"]].concat());
    let two = ["--mounts", "3", "--remote", "2", "--by", "keys"];
    let seconds = length(5, 200);
    campaign(&[&programs[..], &["--seconds", &seconds], &two[..]].concat());
    let checked = ["--remote", "1", "--by", "checked", "--appenders", "3", "--calls", "300"];
    campaign(&checked);
    let seconds = length(4, 100);
    campaign(&[&programs[..], &["--seconds", &seconds], &checked[..4]].concat());
}

/// On one mount, and on two of one volume.
#[test]
fn programs_with_private_logs_take_turns_with_others() {
    let seconds = length(6, 400);
    for mounts in ["1", "2"] {
        let args = ["--logs", "--mounts", mounts, "--each", "6", "--seed", "1"];
        by_both(&[&args[..], &["--seconds", &seconds]].concat());
    }
}

/// Each record of each kind of program is there once and whole.
#[test]
fn programs_with_private_logs_append_beside_others() {
    let seconds = length(5, 200);
    for mounts in ["1", "2"] {
        let args = ["--logs", "--mounts", mounts, "--programs", "10", "--patience", "120"];
        by_both(&[&args[..], &["--seed", "1", "--seconds", &seconds]].concat());
    }
}

/// Seen to fail when pages of a mount without a place are not dropped by notification.
#[test]
fn a_detached_mount_with_open_files_is_told() {
    by_both(&["--detached"]);
}

#[test]
fn appends_at_once_are_all_there() {
    by_both(&["--appenders", "3", "--calls", "300"]);
}

/// Seen to fail, with EEXIST, when the kernel is told that the name is there.
#[test]
fn opens_that_make_a_file_meet() {
    by_both(&["--creates", "1000"]);
}

#[test]
fn each_recall_brings_what_the_holder_kept() {
    campaign(&["--recall-times", "200", "--mounts", "1"]);
}

#[test]
fn calls_see_what_a_holder_kept_for_itself() {
    by_both(&["--leases"]);
}

/// Rounds on two volumes. Of what the process had acknowledged by any of its front ends nothing is
/// lost.
#[test]
fn what_was_durable_outlives_the_process_with_all_front_ends() {
    by_both(&["--kills", &length(24, 400), "--seed", "1"]);
}
