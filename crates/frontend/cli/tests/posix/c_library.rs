//! The C library, as a C program uses it: linked with the shared one, under valgrind.

use crate::support::served::Served;
use crate::support::{Ran, SIFTFS, Setup, libraries, run};
use rustix::process::Signal;
use siftfs_rig::device::Device;
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

#[test]
fn its_functions_on_files_at_a_target() {
    let (s, work) = (Setup::of_size("256M"), tempfile::tempdir().expect("a directory"));
    let program = compiled(work.path());
    let socket = |name: &str| format!("unix:{}", work.path().join(name).display());
    let (listen, log) = (socket("target.sock"), work.path().join("target.log"));
    let target = Device::start(Path::new(SIFTFS), Path::new(s.volume()), &listen, &log, &[]);
    let target = target.expect("it listens");
    let place = format!("target:{listen}/volume");
    let (listen, log) = (socket("host.sock"), work.path().join("host.log"));
    let host = Device::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &[]);
    let host = host.expect("it serves");
    under_valgrind(&program, &["direct", host.address()]).ok();
    host.end().expect("in order");
    target.end().expect("in order");
    s.assert_plain_ext4();
    s.mount("");
    let bytes = std::fs::read(s.path("renamed")).expect("it was renamed");
    assert_eq!((bytes.len(), &bytes[12288..12291]), (100_000, &b"one"[..]));
    s.umount().ok();
}

fn holds_what_was_published(s: &Setup) {
    s.mount("");
    let bytes = std::fs::read(s.path("f")).expect("it was published");
    assert_eq!((bytes.len(), &bytes[4096..]), (4101, &b"hello"[..]));
    s.umount().ok();
}
