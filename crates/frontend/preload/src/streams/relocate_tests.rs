//! Code that can be moved, and code that cannot.

use super::*;
use crate::streams::{ALL, find};

const AT: u64 = 0x7F00_0000_1000;

/// Where the first instruction looks, as the C library's do for its number of threads.
fn looks_at(code: &[u8], ip: u64) -> u64 {
    decoder(code, ip).decode().ip_rel_memory_address()
}

#[test]
fn every_entry_of_this_c_library_is_understood() {
    let text = find::text().unwrap();
    for (at, entry) in ALL.into_iter().enumerate() {
        let (begin, moved) = find::function(&text, entry).expect("it is found");
        assert!(moved.at >= begin.addr() as u64 && moved.next >= moved.at + JUMP as u64);
        assert!(moved.trampoline(begin.addr() as u64 - (1 << 30)).is_some_and(|c| c.len() < 64));
        assert!(matches!(moved.over, Over::Known(_)), "entry {at}: no tables are needed");
    }
}

/// Beginnings of functions, and their end. The first one jumps into what would be overwritten.
const BEGINNINGS: [&[u8]; 5] = [
    &[0x55, 0x41, 0x89, 0xF2, 0x48, 0x89, 0xFD, 0x75, 0xF8, 0xC3],
    &[0x55, 0x41, 0x89, 0xF2, 0x48, 0x89, 0xFD, 0x75, 0xF7, 0xC3],
    &[0x80, 0x3D, 0, 0x10, 0, 0, 0, 0x74, 2, 0x31, 0xC0, 0xC3],
    &[0xF3, 0x0F, 0x1E, 0xFA, 0xB8, 3, 0, 0, 0, 0x0F, 0x05, 0xC3],
    &[0x41, 0x54, 0x48, 0x83, 0xEC, 0x20, 0x31, 0xC0, 0xC3],
];

#[test]
fn what_is_known_by_its_bytes_is_what_the_decoder_says() {
    for code in BEGINNINGS {
        let known = understood(code, AT, true);
        let decoded = decoded(code, AT, true);
        let words = |moved: &Moved| (moved.at, moved.next, moved.trampoline(AT + 0x12_3450));
        assert_eq!(known.as_ref().map(words), decoded.as_ref().map(words), "{code:x?}");
    }
    assert!(understood(BEGINNINGS[0], AT, true).is_none());
}

#[test]
fn what_is_moved_looks_where_it_looked_and_goes_on() {
    // cmp byte ptr [rip+0x1000], 0; je +2; xor eax, eax; ret
    let code = [0x80, 0x3D, 0, 0x10, 0, 0, 0, 0x74, 2, 0x31, 0xC0, 0xC3];
    for moved in [understood(&code, AT, true).unwrap(), decoded(&code, AT, true).unwrap()] {
        assert_eq!((moved.at, moved.next), (AT, AT + 7));
        for far in [0x10_0000, 0x7000_0000] {
            let trampoline = moved.trampoline(AT + far).unwrap();
            assert_eq!(looks_at(&trampoline, AT + far), looks_at(&code, AT));
            let mut decoder = decoder(&trampoline, AT + far);
            let _ = decoder.decode();
            assert_eq!(decoder.decode().near_branch_target(), AT + 7);
        }
        assert!(moved.trampoline(AT + (3 << 30)).is_none(), "too far to look");
    }
    let moved = understood(&code, AT, true).unwrap();
    assert_eq!(moved.jump(AT + 0x105), Some([0xE9, 0, 1, 0, 0]));
    assert_eq!(moved.jump(AT), Some([0xE9, 0xFB, 0xFF, 0xFF, 0xFF]));
    assert!(moved.jump(AT + (3 << 30)).is_none());
}

#[test]
fn a_mark_for_indirect_calls_stays() {
    // endbr64; push rbp; mov r10d, esi; mov rbp, rdi; ret
    let code = [0xF3, 0x0F, 0x1E, 0xFA, 0x55, 0x41, 0x89, 0xF2, 0x48, 0x89, 0xFD, 0xC3];
    let moved = understood(&code, AT, true).unwrap();
    assert_eq!((moved.at, moved.next), (AT + 4, AT + 11));
}

#[test]
fn code_that_cannot_be_moved_is_left_alone() {
    let refused: [(&str, &[u8]); 8] = [
        ("a call", &[0xE8, 0, 0, 0, 0, 0xC3]),
        ("a jump", &[0xE9, 0, 0, 0, 0, 0xC3]),
        ("a short jump", &[0x31, 0xC0, 0x74, 0x10, 0x31, 0xC0, 0xC3]),
        ("a system call", &[0x31, 0xC0, 0x0F, 0x05, 0x48, 0x89, 0xFD, 0xC3]),
        ("a return", &[0x31, 0xC0, 0xC3, 0x90, 0x90, 0x90]),
        ("no code", &[0x06, 0x06, 0x06, 0x06, 0x06, 0x06]),
        ("its end", &[0x55, 0x53]),
        // push rbp; mov r10d, esi; mov rbp, rdi; jne to the second one
        ("a jump back", &[0x55, 0x41, 0x89, 0xF2, 0x48, 0x89, 0xFD, 0x75, 0xF8, 0xC3]),
    ];
    for (what, code) in refused {
        assert!(understood(code, AT, true).is_none(), "{what}");
    }
    // The same, back to the entry itself, where the jump will be.
    let begin = [0x55, 0x41, 0x89, 0xF2, 0x48, 0x89, 0xFD, 0x75, 0xF7, 0xC3];
    assert!(understood(&begin, AT, true).is_some());
    // Whose length is not known: one instruction has to do.
    assert!(understood(&begin, AT, false).is_none());
    assert!(understood(&[0xB8, 3, 0, 0, 0, 0x0F, 0x05], AT, false).is_some());
}

#[test]
fn a_hidden_function_is_known_by_its_code() {
    // mov edi, [rdi+0x70]; jmp +0x100
    let code = [0x8B, 0x7F, 0x70, 0xE9, 0, 1, 0, 0];
    assert_eq!(goes_on_at(&code, AT), Some(AT + 0x108));
    assert_eq!(goes_on_at(&[0x8B, 0x7F, 0x70, 0xE8, 0, 1, 0, 0], AT), None, "a call");
    let closes = [0xB8, 3, 0, 0, 0, 0x0F, 0x05, 0xC3];
    assert!(calls_the_kernel(&closes, AT, 3) && !calls_the_kernel(&closes, AT, 1));
    assert!(!calls_the_kernel(&[0xB8, 3, 0, 0, 0, 0xC3, 0x0F, 0x05], AT, 3));
    assert!(!calls_the_kernel(&[], AT, 3));
}
