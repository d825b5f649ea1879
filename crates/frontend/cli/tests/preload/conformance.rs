//! Random calls beside the same calls without the library.

use crate::support::run;
use crate::{compiled, eager, mounted, ran, told};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Each call answers the same with and without the library: numbers, errors, bytes, sizes and
/// offsets; and the files are the same in the end. Odd seeds have no other processes.
///
/// Seen to fail when a write or a read does not move the offset; when a write by O_APPEND goes to
/// the offset, or leaves it; when O_APPEND is switched unnoticed; when memory is copied without a
/// look whether it is there; when the program may close the library's descriptors.
#[test]
fn calls_answer_the_same() {
    let s = mounted();
    let program = compiled("calls", s.tmp.path());
    let (rounds, calls) = match std::env::var_os("SIFTFS_LONG") {
        Some(_) => (60, "20000"),
        None => (8, "4000"),
    };
    let before = told(&s, "records");
    for seed in 1..=rounds {
        let [ours, theirs] = ["ours", "theirs"].map(|kind| s.path(&format!("{kind}{seed}")));
        let mut said = Vec::new();
        for (dir, mut command) in [(&ours, eager(&program)), (&theirs, Command::new(&program))] {
            fs::create_dir(dir).unwrap();
            said.push(ran(command.arg(dir).args([&seed.to_string(), calls])).ok().out);
        }
        let lines = said[0].lines().zip(said[1].lines()).zip(1..);
        for ((one, other), line) in lines {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(said[0].len(), said[1].len(), "seed {seed}");
        run("diff", &["-r", ours.to_str().unwrap(), theirs.to_str().unwrap()]).ok();
    }
    let by_lease = told(&s, "records") - before;
    assert!(by_lease > 1000, "{by_lease} writes by leases");
    s.umount();
    s.assert_plain_ext4();
}

/// Threads and handlers of signals write lines by one descriptor; each is there once and whole.
///
/// Seen to fail when the offset moves after the write: a handler's line goes to the same place.
#[test]
fn threads_and_handlers_share_a_descriptor() {
    let s = mounted();
    let program = compiled("threads", s.tmp.path());
    for how in ["offset", "append"] {
        let path = s.path(how);
        let signals = ran(eager(&program).arg(&path).args([how, "a", "1500"])).ok().out;
        let text = fs::read_to_string(&path).unwrap();
        let lines: BTreeSet<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 11), "{lines:?}");
        assert_eq!(lines.len(), 4500 + signals.trim().parse::<usize>().unwrap(), "{how}");
        assert_eq!(text.len(), 12 * lines.len(), "{how}");
    }
    assert!(told(&s, "records") > 100);
    s.umount();
}

/// Two programs append to one file, one of them under the library, or both.
#[test]
fn two_programs_append_to_one_file() {
    let s = mounted();
    let program = compiled("threads", s.tmp.path());
    for (name, both) in [("one", false), ("both", true)] {
        let path = s.path(name);
        let words =
            |letter| [path.to_str().unwrap().to_string(), "append".into(), letter, "300".into()];
        let mut other = if both { eager(&program) } else { Command::new(&program) };
        let other =
            other.args(words("b".into())).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let own = ran(eager(&program).args(words("a".into()))).ok().out;
        let other = crate::support::Ran::from(other.wait_with_output().unwrap()).ok().out;
        let signals: usize = [own, other].iter().map(|n| n.trim().parse::<usize>().unwrap()).sum();
        let text = fs::read_to_string(&path).unwrap();
        let lines: BTreeSet<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 11), "{lines:?}");
        assert_eq!((text.len(), lines.len()), (12 * (1800 + signals), 1800 + signals), "{name}");
    }
    s.umount();
    s.assert_plain_ext4();
}
