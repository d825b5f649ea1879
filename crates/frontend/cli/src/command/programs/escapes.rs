//! `siftfs accel --count-escapes`: the program runs as a child, and what went past the library is
//! told when it has ended.

use crate::show::output;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use siftfs_client::escapes::{CALLS, LEN, MAGIC, VARIABLE, Word};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Entries of the C library that can be replaced.
const ENTRIES: u32 = 6;

/// Runs the program; answers its exit status, as shells have it.
pub fn counted(command: &mut Command) -> io::Result<u8> {
    if CALLS.is_empty() {
        return Err(io::Error::new(ErrorKind::Unsupported, "calls are counted on x86-64 alone"));
    }
    let memory = memory()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    // What a terminal sends is for the program.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let status = command.env(VARIABLE, path).status()?;
    for line in told(&read(&memory)?) {
        output::complain(line);
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}

/// The memory that all processes share, which none of them can cut.
fn memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("siftfs-escapes", flags)?);
    file.set_len(LEN as u64)?;
    file.write_all_at(&MAGIC.to_le_bytes(), 8 * Word::Magic as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn read(file: &File) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; LEN];
    file.read_exact_at(&mut bytes, 0)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// What the words say, by lines.
fn told(words: &[u64]) -> Vec<String> {
    let word = |what: Word| words.get(what as usize).copied().unwrap_or(0);
    let escaped = words.iter().skip(Word::Calls as usize).zip(CALLS);
    let escaped: Vec<_> = escaped.filter(|(count, _)| **count > 0).collect();
    let mut lines = Vec::new();
    let (processes, refused) = (word(Word::Processes), word(Word::Refused));
    if processes == 0 {
        lines.push(
            "no process counted: each is static, is left alone, or has not the library".into(),
        );
    }
    if refused > 0 {
        lines.push(format!("{refused} processes could not count: the kernel cannot tell of calls"));
    }
    if !escaped.is_empty() {
        lines.push(format!("{:>10} {:<16} {:>6}", "escaped", "call", "number"));
    }
    for (count, call) in escaped {
        lines.push(format!("{count:>10} {:<16} {:>6}", call.name, call.number));
    }
    let replaced = ENTRIES - word(Word::Missing).count_ones().min(ENTRIES);
    lines.push(format!(
        "{processes} processes, {} threads, {} calls looked at; {replaced} of {ENTRIES} entries for \
         streams",
        word(Word::Threads),
        word(Word::Told),
    ));
    lines
}

#[cfg(test)]
#[path = "escapes_tests.rs"]
mod tests;
