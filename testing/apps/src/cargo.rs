//! `cargo build` of a generated crate, changed and built again and again.

use crate::program::guarded;
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const MODULES: u64 = 12;

/// The application.
#[derive(Default)]
pub struct Cargo {
    builds: AtomicU64,
}

fn crate_dir(at: &Site) -> PathBuf {
    at.dir.join("crate")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(failed(path.display()))
}

fn module(n: u64) -> String {
    format!("pub fn value() -> u64 {{\n    {n}\n}}\n")
}

/// The program prints its modules' values.
fn generate(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("src")).map_err(failed(dir.display()))?;
    write(
        &dir.join("Cargo.toml"),
        "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n",
    )?;
    let mut main = String::new();
    for m in 0..MODULES {
        write(&dir.join(format!("src/part_{m}.rs")), &module(0))?;
        let _ = writeln!(main, "mod part_{m};");
    }
    let calls: Vec<String> = (0..MODULES).map(|m| format!("part_{m}::value()")).collect();
    let _ = writeln!(main, "fn main() {{\n    println!(\"{{:?}}\", [{}]);\n}}", calls.join(", "));
    write(&dir.join("src/main.rs"), &main)
}

fn build(at: &Site) -> Result<()> {
    let manifest = crate_dir(at).join("Cargo.toml");
    let args = ["build", "--quiet", "--offline", "--manifest-path", arg(&manifest)?];
    let mut command: Command = guarded("cargo", &args);
    command.env("CARGO_HOME", at.scratch.join("cargo")).env_remove("CARGO_TARGET_DIR");
    for unwanted in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET"]
    {
        command.env_remove(unwanted);
    }
    at.run("cargo-build", command).map(drop)
}

/// What the program prints.
fn values(at: &Site) -> Result<String> {
    let program = crate_dir(at).join("target/debug/sample");
    Ok(at.run("sample", guarded::<&str>(arg(&program)?, &[]))?.trim().to_string())
}

/// What the program must print after this many changes: each change gives the next module its
/// number.
fn expected(changes: u64) -> String {
    let value = |m: u64| (1..=changes).rev().find(|n| n % MODULES == m).unwrap_or(0);
    format!("{:?}", (0..MODULES).map(value).collect::<Vec<_>>())
}

fn change(at: &Site, n: u64) -> Result<()> {
    write(&crate_dir(at).join(format!("src/part_{}.rs", n % MODULES)), &module(n))
}

impl App for Cargo {
    fn name(&self) -> &'static str {
        "cargo"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        generate(&crate_dir(at))?;
        build(at)?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        while !at.stopped() {
            let n = self.builds.load(Ordering::Relaxed) + 1;
            let one = || {
                change(at, n)?;
                build(at)?;
                let printed = values(at)?;
                if printed != expected(n) {
                    return Err(Failed(format!("built {}, but it prints {printed}", expected(n))));
                }
                at.sync()
            };
            match one() {
                Ok(()) => self.builds.store(n, Ordering::Relaxed),
                Err(_) if at.stopped() || !at.alive() => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The change under way at a crash is made again; all others were synced.
    fn check(&mut self, at: &Site) -> Result<()> {
        let n = self.builds.load(Ordering::Relaxed);
        change(at, n + 1)?;
        build(at)?;
        let printed = values(at)?;
        if printed != expected(n + 1) {
            return Err(Failed(format!("should print {}, prints {printed}", expected(n + 1))));
        }
        self.builds.store(n + 1, Ordering::Relaxed);
        at.sync()
    }

    fn acknowledged(&self) -> String {
        format!("{} builds", self.builds.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "cargo_tests.rs"]
mod tests;
