//! Orders that are paid for, on a SiftFS mount: tickets, a section and a publish.
//! `cargo run --release -p siftfs-client --example orders -- DIR`.

use siftfs_client::{Entry, Level, Publish, Section, Source, barrier, commit_all, publish, stage};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the program does in a directory of a mount.
pub fn orders(dir: &Path) -> io::Result<()> {
    let file = |name| {
        let mut open = File::options();
        open.read(true).write(true).create(true).truncate(false).open(dir.join(name))
    };

    // 64 orders, each in its place in the order of all, and durable with one write and one flush.
    let orders = file("orders")?;
    for i in 0..64 {
        orders.write_all_at(format!("order {i:2}\n").as_bytes(), i * 9)?;
        stage(&orders)?;
    }
    barrier(&orders)?.wait(&orders)?;

    // Two files, and a crash never shows one of them alone.
    let (buyer, seller) = (file("buyer")?, file("seller")?);
    let sections = vec![Section::start(&buyer)?, Section::start(&seller)?];
    buyer.write_all_at(b"ten less\n", 0)?;
    seller.write_all_at(b"ten more\n", 0)?;
    commit_all(sections, Level::Durable)?;

    // And two names.
    file("table.new")?.write_all_at(b"a table\n", 0)?;
    file("index.new")?.write_all_at(b"its index\n", 0)?;
    let name = |from: &str, to: &str| Entry {
        source: Source::Path(from.into()),
        to: to.into(),
        replace: true,
    };
    let entries = vec![name("table.new", "table"), name("index.new", "index")];
    publish(File::open(dir)?.as_fd(), &Publish { entries, level: Level::Durable })
}

#[allow(dead_code)] // a test calls the function above
fn main() -> io::Result<()> {
    orders(&std::env::args_os().nth(1).map_or_else(|| ".".into(), PathBuf::from))
}
