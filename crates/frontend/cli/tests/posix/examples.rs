//! The example programs, one for each language, do the same; and it survives the daemon.

use crate::support::{Setup, libraries, run};
use rustix::process::Signal;

#[path = "../../../client/examples/orders.rs"]
mod orders;

/// Runs a program on a mount, kills the daemon, and looks for what the program had made durable.
fn durable(program: impl FnOnce(&Setup)) {
    let s = Setup::new();
    s.mount("commit=3600");
    program(&s);
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    s.mount("");
    let all: String = (0..64).map(|i| format!("order {i:2}\n")).collect();
    let expected = [
        ("orders", &*all),
        ("buyer", "ten less\n"),
        ("seller", "ten more\n"),
        ("table", "a table\n"),
        ("index", "its index\n"),
    ];
    for (name, text) in expected {
        assert_eq!(std::fs::read_to_string(s.path(name)).expect(name), text, "{name}");
    }
    assert!(!s.path("table.new").exists() && !s.path("index.new").exists());
    s.umount().ok();
    s.assert_plain_ext4();
}

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

#[test]
fn in_rust() {
    durable(|s| orders::orders(&s.path("")).expect("it succeeds"));
}

#[test]
fn in_c() {
    let work = tempfile::tempdir().expect("a directory");
    let (program, link) = (work.path().join("orders"), work.path().join("libsiftfs.so.0"));
    let library = libraries().join("libsiftfs_capi.so");
    std::os::unix::fs::symlink(&library, link).expect("the soname");
    let (program, library) = (program.to_str().expect("text"), library.to_str().expect("text"));
    let capi = format!("{TOP}/crates/frontend/capi");
    let path = format!("-Wl,-rpath,{}", work.path().display());
    let (include, code) = (format!("-I{capi}/include"), format!("{capi}/examples/orders.c"));
    let words = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", &include, &code, library, &path];
    run("cc", &[&words[..], &["-o", program]].concat()).ok();
    durable(|s| drop(run(program, &[s.dir()]).ok()));
}

#[test]
fn in_python() {
    let code = format!("{TOP}/python/examples/orders.py");
    let path = format!("PYTHONPATH={TOP}/python/src");
    let python = ["PYTHONDONTWRITEBYTECODE=1", &path, "python3", "-W", "error", &code];
    durable(|s| drop(run("env", &[&python[..], &[s.dir()]].concat()).ok()));
}

/// What the README shows is in the programs, line by line.
#[test]
fn the_readme_shows_lines_of_them() {
    let read = |name: &str| std::fs::read_to_string(format!("{TOP}/{name}")).expect(name);
    let readme = read("README.md");
    for (language, program) in [
        ("c", "crates/frontend/capi/examples/orders.c"),
        ("python", "python/examples/orders.py"),
        ("rust", "crates/frontend/client/examples/orders.rs"),
    ] {
        let shown = readme.split(&format!("```{language}\n")).nth(1).expect(language);
        let shown = shown.split("```").next().expect("its end");
        let text = read(program);
        assert_eq!(shown.lines().count(), 3);
        for line in shown.lines() {
            assert!(text.lines().any(|l| l.trim() == line), "{program} lacks {line}");
        }
    }
}
