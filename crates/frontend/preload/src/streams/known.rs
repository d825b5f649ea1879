//! The few instructions with which entries commonly begin, known by their bytes. A decoder of all
//! instructions has tables, and to make these costs every program more than everything else that is
//! done before `main`. What is not known here, that one is asked for.

use super::relocate::JUMP;
use std::ops::Range;

/// Beginnings of a function, as bytes that are the same at any place but for one distance.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// Where the jump goes: behind the mark that indirect calls look for.
    pub skip: usize,
    /// The instructions that the jump overwrites.
    pub bytes: Vec<u8>,
    /// Where in these a distance of 32 bits stands, if one does.
    look: Option<usize>,
}

const MARK: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];

/// The length of an instruction, and where in it a distance of 32 bits stands.
fn length(code: &[u8]) -> Option<(usize, Option<usize>)> {
    let same = |len| Some((len, None));
    match code {
        // cmp byte ptr [rip+distance], n
        [0x80, 0x3D, ..] => Some((7, Some(2))),
        // mov r32, n; push r; sub rsp, n
        [0xB8..=0xBF, ..] => same(5),
        [0x50..=0x57, ..] => same(1),
        [0x41, 0x50..=0x57, ..] => same(2),
        [0x48, 0x83, 0xEC, ..] => same(4),
        // mov or xor of two registers
        [0x31 | 0x89, 0xC0..=0xFF, ..] => same(2),
        [0x40..=0x4F, 0x31 | 0x89, 0xC0..=0xFF, ..] => same(3),
        _ => None,
    }
}

/// The beginning of a function's code, as [`super::relocate::understood`] takes it. None: it has to
/// be looked at more closely.
pub fn begins(code: &[u8], whole: bool) -> Option<Known> {
    let skip = if code.starts_with(&MARK) { MARK.len() } else { 0 };
    let (mut len, mut count, mut look) = (0, 0, None);
    while len < JUMP {
        let (next, distance) = length(code.get(skip + len..)?)?;
        if let Some(at) = distance {
            look = Some(len + at);
        }
        len += next;
        count += 1;
    }
    let bytes = code.get(skip..skip + len)?.to_vec();
    let alone = count == 1 || whole && !may_jump(code, skip + 1..skip + len);
    alone.then_some(Known { skip, bytes, look })
}

/// May any jump of the code lead into this range of it? Each byte is taken for the begin of one.
fn may_jump(code: &[u8], into: Range<usize>) -> bool {
    let near = |at: usize, distance: i32| {
        let to = at.checked_add_signed(distance as isize);
        to.is_some_and(|to| into.contains(&to))
    };
    (0..code.len()).any(|at| match code.get(at..) {
        Some([0x70..=0x7F | 0xEB | 0xE0..=0xE3, by, ..])
            if near(at + 2, (*by).cast_signed().into()) =>
        {
            true
        }
        Some([0xE8 | 0xE9, a, b, c, d, ..]) => near(at + 5, i32::from_le_bytes([*a, *b, *c, *d])),
        Some([0x0F, 0x80..=0x8F, a, b, c, d, ..]) => {
            near(at + 6, i32::from_le_bytes([*a, *b, *c, *d]))
        }
        _ => false,
    })
}

impl Known {
    /// These instructions at the address `to`, where those at `from` are now. None if a distance is
    /// too long.
    pub fn moved(&self, from: u64, to: u64) -> Option<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        if let Some(at) = self.look {
            let place = bytes.get_mut(at..)?.first_chunk_mut()?;
            let target = from.wrapping_add_signed(i32::from_le_bytes(*place).into());
            let distance = target.wrapping_sub(to).cast_signed();
            *place = i32::try_from(distance).ok()?.to_le_bytes();
        }
        Some(bytes)
    }
}
