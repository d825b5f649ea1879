//! Reading attributes; none of the bytes is trusted.

use siftfs_base::{BLOCK_SIZE, BlockNr, Error, Result, corrupt};

use super::{BLOCK_HEADER, ENTRY, INODE_HEADER, MAGIC, Xattr};

fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    four.try_into().ok().map(u32::from_le_bytes)
}

/// The attributes in an inode; `area` is what follows the inode's known fields. Without the
/// magic number there are none.
pub fn parse_inode(area: &[u8]) -> Result<Vec<Xattr>> {
    match area.split_first_chunk::<INODE_HEADER>() {
        Some((magic, region)) if *magic == MAGIC.to_le_bytes() => {
            entries(region, 0, "attributes in an inode")
        }
        _ => Ok(Vec::new()),
    }
}

/// Checks an attribute block's header, and its checksum where the volume has one (`seed`).
pub(super) fn check_block(block: &[u8; BLOCK_SIZE], nr: BlockNr, seed: Option<u32>) -> Result<()> {
    let what = || format!("attribute block {nr}");
    let field = |at| get32(block, at).unwrap_or(0);
    if field(0) != MAGIC {
        return Err(corrupt(what(), "no magic number"));
    }
    if field(4) == 0 || field(8) != 1 {
        return Err(corrupt(what(), "bad count of references or blocks"));
    }
    if let Some(seed) = seed
        && field(16) != super::encode::block_csum(block, nr, seed)
    {
        return Err(corrupt(what(), "checksum mismatch"));
    }
    Ok(())
}

/// The attributes in block `nr`, whose `seed` is the volume's where it has checksums.
pub fn parse_block(block: &[u8; BLOCK_SIZE], nr: BlockNr, seed: Option<u32>) -> Result<Vec<Xattr>> {
    check_block(block, nr, seed)?;
    entries(block, BLOCK_HEADER, &format!("attribute block {nr}"))
}

/// The entries from `start` on, whose values' offsets count from the start of `region`.
fn entries(region: &[u8], start: usize, what: &str) -> Result<Vec<Xattr>> {
    let bad = |detail: &str| corrupt(what, detail);
    let mut all: Vec<Xattr> = Vec::new();
    let mut lowest_value = region.len();
    let mut at = start;
    loop {
        match get32(region, at) {
            None => return Err(bad("no end of the entries")),
            Some(0) if at > lowest_value => return Err(bad("values overlap the entries")),
            Some(0) => return Ok(all),
            Some(_) => {}
        }
        let fixed = region.get(at..).and_then(|rest| rest.first_chunk::<ENTRY>());
        let fixed = fixed.ok_or_else(|| bad("an entry is cut off"))?;
        let (name_len, index) = (usize::from(fixed[0]), fixed[1]);
        let name = region.get(at + ENTRY..at + ENTRY + name_len);
        let name = name.ok_or_else(|| bad("a name is cut off"))?;
        if get32(fixed, 4) != Some(0) {
            let detail = "holds a value in an inode of its own, which is not supported";
            return Err(Error::Incompatible(format!("{what} {detail}")));
        }
        let size = get32(fixed, 8).and_then(|s| usize::try_from(s).ok()).unwrap_or(usize::MAX);
        let offset = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let value = match size {
            0 => &[][..],
            _ => offset
                .checked_add(size)
                .and_then(|end| region.get(offset..end))
                .ok_or_else(|| bad("a value is outside"))?,
        };
        if size > 0 {
            lowest_value = lowest_value.min(offset);
        }
        if all.iter().any(|x| x.index == index && x.name == name) {
            return Err(bad("a name is there twice"));
        }
        all.push(Xattr { index, name: name.to_vec(), value: value.to_vec() });
        at += (ENTRY + name_len + 3) & !3;
    }
}
