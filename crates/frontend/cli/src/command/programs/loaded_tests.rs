use super::*;
use std::fs;

/// A program's headers, of these kinds.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56 * kinds.len()];
    bytes[..6].copy_from_slice(b"\x7FELF\x02\x01");
    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&(kinds.len() as u16).to_le_bytes());
    for (n, kind) in kinds.iter().enumerate() {
        bytes[64 + 56 * n..][..4].copy_from_slice(&kind.to_le_bytes());
    }
    bytes
}

#[test]
fn a_program_without_a_loader_is_static() {
    assert_eq!(needs_loader(&elf(&[6, 3, 1])), Some(Loader::Own));
    assert_eq!(needs_loader(&elf(&[1, 1])), Some(Loader::None));
    let mut other = elf(&[3]);
    other[4] = 1;
    assert_eq!(needs_loader(&other), Some(Loader::Other));
}

#[test]
fn what_is_no_program_is_not_judged() {
    let whole = elf(&[1, 3]);
    // As far as the kind of the second header.
    for len in 0..64 + 56 + 4 {
        assert_ne!(needs_loader(&whole[..len]), Some(Loader::Own), "{len}");
    }
    assert_eq!(needs_loader(b"#!/bin/sh"), None);
    let mut far = elf(&[1]);
    far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(needs_loader(&far), None);
}

#[test]
fn a_script_is_what_runs_it() {
    let tmp = tempfile::tempdir().unwrap();
    let [program, script] = ["program", "script"].map(|name| tmp.path().join(name));
    fs::write(&program, elf(&[1])).unwrap();
    fs::write(&script, format!("#! {} -x\nmore", program.display())).unwrap();
    assert!(why_not(&program).unwrap().contains("statically"));
    assert!(why_not(&script).unwrap().contains("statically"));
    assert_eq!(why_not(Path::new("sh")), None);
    assert_eq!(why_not(tmp.path()), None);
    assert_eq!(why_not(Path::new("/dev/zero")), None);
    assert_eq!(why_not(Path::new("/nowhere/program")), None);
}
