//! Functions of the test's own are replaced.

use super::*;
use crate::streams::relocate::understood;

const APART: usize = 64;

/// Six functions, each of which answers its number: `mov eax, N; ret`.
fn functions() -> (Text, Found) {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping.
    let page = unsafe { mmap_anonymous(null_mut(), 4096, prot, MapFlags::PRIVATE) }.unwrap();
    let found = ALL.map(|entry| {
        let begin = page.wrapping_byte_add(entry as usize * APART);
        let code = [0xB8, entry as u8, 0, 0, 0, 0xC3];
        // SAFETY: it is within the page.
        unsafe { copy(&code, begin.cast()) };
        Some((begin, understood(&code, begin.addr() as u64, true).unwrap()))
    });
    // SAFETY: nobody writes there any more.
    unsafe { mprotect(page, 4096, MprotectFlags::READ | MprotectFlags::EXEC) }.unwrap();
    (Text { range: page.addr()..page.addr() + 4096, handle: null_mut() }, found)
}

extern "C" fn hook() -> i32 {
    4711
}

fn call(function: *mut c_void) -> i32 {
    // SAFETY: there is a function without parameters.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(function)() }
}

#[test]
fn a_replaced_function_is_the_librarys_and_the_trampoline_is_the_function() {
    let (_, found) = functions();
    let prepared = prepare(&found, [hook as *const c_void; ALL.len()]).unwrap();
    for place in &prepared.places {
        assert_eq!(call(place.begin), place.entry as i32);
        assert_eq!(call(place.trampoline), place.entry as i32);
    }
    assert!(prepared.put(prepared.pages().unwrap()));
    assert_eq!(prepared.places.len(), ALL.len());
    for place in &prepared.places {
        assert_eq!(call(place.begin), 4711);
        assert_eq!(call(place.trampoline), place.entry as i32);
    }
}

#[test]
fn nothing_is_replaced_beside_other_threads_or_outside_of_the_text() {
    let (text, found) = functions();
    let prepared = prepare(&found, [hook as *const c_void; ALL.len()]).unwrap();
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || stopped.recv());
        assert!(!is_alone());
        assert!(!prepared.replace(&text));
        drop(stop);
    });
    let elsewhere = Text { range: 0..4096, handle: null_mut() };
    assert!(!prepare(&found, [hook as *const c_void; ALL.len()]).unwrap().replace(&elsewhere));
    for (begin, _) in found.iter().flatten() {
        assert!(call(*begin) < 6);
    }
}

#[test]
fn nothing_is_prepared_without_both_ways_to_close() {
    for missing in [Entry::Close, Entry::CloseNocancel] {
        let (_, mut found) = functions();
        found[missing as usize] = None;
        assert!(prepare(&found, [hook as *const c_void; ALL.len()]).is_none());
    }
}
