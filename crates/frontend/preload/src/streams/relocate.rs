//! The first instructions of a function, to be run elsewhere. Without memory of its own: it is
//! given bytes, and gives bytes.

use super::known::{self, Known};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction,
    InstructionBlock, Mnemonic, OpKind, Register,
};

/// A jump with a distance of 32 bits.
pub const JUMP: usize = 5;

/// The beginning of a function that can be replaced by a jump.
#[derive(Debug)]
pub struct Moved {
    /// Where the jump goes: at the entry, or behind the mark that indirect calls look for.
    pub at: u64,
    /// The instructions that the jump overwrites.
    over: Over,
    /// What comes behind them.
    next: u64,
}

#[derive(Debug)]
enum Over {
    Known(Known),
    Decoded(Vec<Instruction>),
}

fn decoder(code: &[u8], ip: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, ip, DecoderOptions::NONE)
}

fn target(instruction: &Instruction) -> Option<u64> {
    let near =
        (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::NearBranch64);
    near.then(|| instruction.near_branch_target())
}

/// Does the instruction only change registers, flags and memory, at any place the same?
fn goes_on(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Add, And, Cmp, Endbr64, Lea, Mov, Movsxd, Movzx, Nop, Or, Push, Sub, Test, Xor,
    };
    let known = [Add, And, Cmp, Endbr64, Lea, Mov, Movsxd, Movzx, Nop, Or, Push, Sub, Test, Xor];
    known.contains(&instruction.mnemonic())
}

/// Looks at a function's code, which begins at this address. `whole`: the code ends where the
/// function does. Otherwise the jump must fit into one instruction, whose middle nothing jumps to.
/// None if the code is not understood, or cannot be moved.
pub fn understood(code: &[u8], ip: u64, whole: bool) -> Option<Moved> {
    let Some(known) = known::begins(code, whole) else { return decoded(code, ip, whole) };
    let at = ip + known.skip as u64;
    let next = at + known.bytes.len() as u64;
    Some(Moved { at, over: Over::Known(known), next })
}

fn decoded(code: &[u8], ip: u64, whole: bool) -> Option<Moved> {
    let mut decoder = decoder(code, ip);
    let mut at = ip;
    let mut over = Vec::new();
    while decoder.ip() < at + JUMP as u64 {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        if !goes_on(&instruction) {
            return None;
        }
        if over.is_empty() && at == ip && instruction.code() == Code::Endbr64 {
            at = decoder.ip();
            continue;
        }
        over.push(instruction);
    }
    let next = decoder.ip();
    if !whole {
        return (over.len() == 1).then_some(Moved { at, over: Over::Decoded(over), next });
    }
    for instruction in &mut decoder {
        let into = |to: u64| to > at && to < next;
        if instruction.is_invalid() || target(&instruction).is_some_and(into) {
            return None;
        }
    }
    Some(Moved { at, over: Over::Decoded(over), next })
}

/// A jump to an address. None if it cannot reach so far.
fn jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let distance = to.wrapping_sub(from + JUMP as u64).cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xE9, a, b, c, d])
}

impl Moved {
    /// What does at this address the same as the function did. None if it cannot reach from there.
    pub fn trampoline(&self, ip: u64) -> Option<Vec<u8>> {
        let over = match &self.over {
            Over::Decoded(over) => over,
            Over::Known(known) => {
                let mut bytes = known.moved(self.at, ip)?;
                let end = ip + bytes.len() as u64;
                bytes.extend(jump(end, self.next)?);
                return Some(bytes);
            }
        };
        let mut all = over.clone();
        all.push(Instruction::with_branch(Code::Jmp_rel32_64, self.next).ok()?);
        let block = InstructionBlock::new(&all, ip);
        Some(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer)
    }

    /// The jump that goes to the function's begin. None if it cannot reach so far.
    pub fn jump(&self, to: u64) -> Option<[u8; JUMP]> {
        jump(self.at, to)
    }
}

/// Where a function goes whose code is a few moves and then a jump, and nothing else.
pub fn goes_on_at(code: &[u8], ip: u64) -> Option<u64> {
    // mov edi, [rdi+n]; jmp distance
    if let [0x8B, 0x7F, _, 0xE9, a, b, c, d, ..] = code {
        let distance = i32::from_le_bytes([*a, *b, *c, *d]);
        return Some(ip.wrapping_add(8).wrapping_add_signed(distance.into()));
    }
    for instruction in decoder(code, ip).iter().take(4) {
        match instruction.code() {
            Code::Jmp_rel32_64 | Code::Jmp_rel8_64 => return target(&instruction),
            Code::Endbr64 | Code::Mov_r32_rm32 => {}
            _ => return None,
        }
    }
    None
}

/// Does this code do the system call of this number first of all?
pub fn calls_the_kernel(code: &[u8], ip: u64, number: u32) -> bool {
    // mov eax, number; syscall
    if let [0xB8, a, b, c, d, 0x0F, 0x05, ..] = code {
        return u32::from_le_bytes([*a, *b, *c, *d]) == number;
    }
    let mut all = decoder(code, ip).into_iter().skip_while(|i| i.code() == Code::Endbr64);
    let (Some(first), Some(second)) = (all.next(), all.next()) else { return false };
    first.code() == Code::Mov_r32_imm32
        && first.op0_register() == Register::EAX
        && first.immediate32() == number
        && second.code() == Code::Syscall
}

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;
