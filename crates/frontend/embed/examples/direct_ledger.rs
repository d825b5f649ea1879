//! Overwrites blocks of a file at the target, each durably and with a number, and says which: for
//! tests that kill it, its host or the target.
//!
//! `direct_ledger ADDRESS PATH BLOCKS FIRST`: `try BLOCK NUMBER` comes before a write, and
//! `done BLOCK NUMBER WAY` when it is durable, WAY being `direct` or `host`. The numbers begin with
//! FIRST.

use siftfs::{Direct, Error, Result};
use std::io::Write;

/// Bytes of a block.
const BLOCK: u64 = 4096;

fn run(args: &[String]) -> Result<()> {
    let [address, path, blocks, first] = args else {
        return Err(Error::Refused("direct_ledger ADDRESS PATH BLOCKS FIRST".into()));
    };
    let number =
        |text: &String| text.parse::<u64>().map_err(|e| Error::Refused(format!("{text}: {e}")));
    let (blocks, mut number) = (number(blocks)?.max(1), number(first)?);
    let session = Direct::connect(address, "")?;
    let file = session.open_file(path)?;
    loop {
        // Any order that comes back to every block.
        let block = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff_ffff;
        let block = block % blocks;
        say(&format!("try {block} {number}"))?;
        let bytes = number.to_le_bytes().repeat(BLOCK as usize / 8);
        if number.is_multiple_of(3) {
            file.write_at(block * BLOCK, &bytes)?;
            file.sync_data()?;
        } else {
            file.write_durable_at(block * BLOCK, &bytes)?;
        }
        let way = if file.is_direct() { "direct" } else { "host" };
        say(&format!("done {block} {number} {way}"))?;
        number += 1;
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    said.map_err(|e| Error::Refused(format!("nobody listens: {e}")))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&args) {
        eprintln!("direct_ledger: {error}");
        std::process::exit(1);
    }
}
