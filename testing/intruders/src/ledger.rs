//! The honest: what they were told is there, and every call of theirs comes back soon.

use siftfs::Volume;
use siftfs_base::Rng;
use siftfs_proto::{RenameMode, SetAttr};
use siftfs_users::watch::Calls;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Names of each of them.
const NAMES: u64 = 24;
/// Bytes of a file, at most.
const LARGEST: u64 = 40_000;

/// Files as their calls have left them.
pub type Book = BTreeMap<String, Vec<u8>>;

/// What an honest program does with files.
pub trait Works {
    /// Makes a file with these bytes, or has it have them. Durable.
    ///
    /// # Errors
    /// Of the call.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// # Errors
    /// Of the call.
    fn get(&self, name: &str) -> io::Result<Vec<u8>>;
    /// # Errors
    /// Of the call.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// # Errors
    /// Of the call.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Changes a file that hostile clients know of.
    ///
    /// # Errors
    /// Of the call.
    fn share(&self, name: &str, byte: u8) -> io::Result<()>;
}

/// By a mount.
pub struct Mounted(pub PathBuf);

impl Works for Mounted {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = std::fs::File::create(self.0.join("honest").join(name))?;
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?;
        file.sync_all()
    }
    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join("honest").join(name))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let dir = self.0.join("honest");
        std::fs::rename(dir.join(from), dir.join(to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join("honest").join(name))
    }
    fn share(&self, name: &str, byte: u8) -> io::Result<()> {
        std::fs::write(self.0.join("pen/shared").join(name), [byte; 5000])
    }
}

/// By a program's own session.
pub struct Connected(pub Arc<Volume>);

fn errno(error: siftfs::Error) -> io::Error {
    eprintln!("an honest client: {error}");
    io::Error::from_raw_os_error(error.errno())
}

impl Works for Connected {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = format!("/client/{name}");
        let file = self.0.open_or_create(&path, 0o644).map_err(errno)?;
        file.set_len(bytes.len() as u64).map_err(errno)?;
        file.write_at(0, bytes).map_err(errno)?;
        file.sync_all().map_err(errno)
    }
    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.0.open_file(&format!("/client/{name}")).map_err(errno)?;
        file.read_at(0, 2 * LARGEST as usize).map_err(errno)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let [from, to] = [from, to].map(|name| format!("/client/{name}"));
        self.0.rename(&from, &to, RenameMode::Replace).map_err(errno)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove_file(&format!("/client/{name}")).map_err(errno)
    }
    fn share(&self, name: &str, byte: u8) -> io::Result<()> {
        let path = format!("/pen/shared/{name}");
        // The mount's honest program makes the same names.
        let file = self.0.open_or_create(&path, 0o644).map_err(errno)?;
        file.write_at(0, &[byte; 5000]).map_err(errno)?;
        let perm = Some(if byte.is_multiple_of(2) { 0o644 } else { 0o664 });
        self.0.set_attr(&path, SetAttr { perm, ..SetAttr::default() }).map(drop).map_err(errno)
    }
}

/// Works until it is over. Returns the book.
///
/// # Errors
/// A call failed, or a file is not as its calls left it.
pub fn work(works: &dyn Works, seed: u64, calls: &Calls) -> Result<Book, String> {
    let (mut rng, mut book) = (Rng::new(seed), Book::new());
    while !calls.is_over() {
        let name = format!("f{}", rng.below(NAMES));
        step(works, (&mut rng, &mut book), &name, calls).map_err(|e| format!("{name}: {e}"))?;
    }
    for (name, bytes) in &book {
        let found = works.get(name).map_err(|e| format!("{name}: {e}"))?;
        if found != *bytes {
            return Err(format!("{name}: it has {} bytes of {}", found.len(), bytes.len()));
        }
    }
    Ok(book)
}

fn step(
    works: &dyn Works,
    (rng, book): (&mut Rng, &mut Book),
    name: &str,
    calls: &Calls,
) -> io::Result<()> {
    match (rng.below(10), book.contains_key(name)) {
        (0..=3, _) | (_, false) => {
            let bytes = vec![rng.bits() as u8; rng.below(LARGEST) as usize];
            calls.call("put", || works.put(name, &bytes))?;
            book.insert(name.into(), bytes);
        }
        (4 | 5, true) => {
            let found = calls.call("get", || works.get(name))?;
            if Some(&found) != book.get(name) {
                return Err(io::Error::other("it has other bytes than were acknowledged"));
            }
        }
        (6, true) => {
            let to = format!("f{}", rng.below(NAMES));
            calls.call("rename", || works.rename(name, &to))?;
            let bytes = book.remove(name).unwrap_or_default();
            book.insert(to, bytes);
        }
        (7, true) => {
            calls.call("remove", || works.remove(name))?;
            book.remove(name);
        }
        _ => {
            let name = format!("s{}", rng.below(6));
            let byte = rng.bits() as u8;
            let shared = calls.call("share", || works.share(&name, byte));
            shared.map_err(|e| io::Error::other(format!("the shared file {name}: {e}")))?;
        }
    }
    Ok(())
}
