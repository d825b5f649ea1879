//! The C library, as a C program uses it: linked with the shared one, under valgrind.

use crate::support::served::Served;
use crate::support::{Ran, Setup, libraries, run};
use rustix::process::Signal;
use std::path::Path;

/// The program, compiled with every warning an error.
fn compiled(into: &Path) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");
    let program = into.join("library").into_os_string().into_string().expect("text");
    let libraries = libraries().into_os_string().into_string().expect("text");
    let link = into.join("libsiftfs.so.0");
    std::os::unix::fs::symlink(libraries_file(&libraries), link).expect("the soname");
    let (include, code) = (format!("-I{source}/include"), format!("{source}/tests/library.c"));
    let (search, path) = (format!("-L{libraries}"), format!("-Wl,-rpath,{}", into.display()));
    let words = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", &include, &code];
    let link = [&*search, &*path, "-lsiftfs_capi", "-pthread", "-o", &program];
    run("cc", &[&words[..], &link[..]].concat()).ok();
    program
}

fn libraries_file(dir: &str) -> String {
    format!("{dir}/libsiftfs_capi.so")
}

/// Under valgrind, which knows no io_uring and calls every leak and wild access an error.
fn under_valgrind(program: &str, words: &[&str]) -> Ran {
    let known =
        concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/../capi/tests/valgrind.supp");
    let leaks =
        ["--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"];
    run(
        "valgrind",
        &[&["--quiet", "--error-exitcode=99", known], &leaks[..], &[program], words].concat(),
    )
}

#[test]
fn its_functions_on_a_mount() {
    let (s, work) = (Setup::of_size("256M"), tempfile::tempdir().expect("a directory"));
    let program = compiled(work.path());
    s.mount("");
    under_valgrind(&program, &["mount", s.dir()]).ok();
    s.umount().ok();
    s.assert_plain_ext4();
}

#[test]
fn its_functions_on_a_volume_in_the_process() {
    let (s, work) = (Setup::new(), tempfile::tempdir().expect("a directory"));
    let program = compiled(work.path());
    under_valgrind(&program, &["volume", s.volume()]).ok();
    s.assert_plain_ext4();
    holds_what_was_published(&s);
}

#[test]
fn its_functions_on_a_volume_that_is_served() {
    let (s, work) = (Setup::new(), tempfile::tempdir().expect("a directory"));
    let program = compiled(work.path());
    let server = Served::start(&s);
    under_valgrind(&program, &["served", &server.address]).ok();
    assert!(server.end(Signal::TERM).success());
    s.assert_plain_ext4();
    holds_what_was_published(&s);
}

fn holds_what_was_published(s: &Setup) {
    s.mount("");
    let bytes = std::fs::read(s.path("f")).expect("it was published");
    assert_eq!((bytes.len(), &bytes[4096..]), (4101, &b"hello"[..]));
    s.umount().ok();
}
