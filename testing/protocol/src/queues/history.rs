//! Is there an order of the calls that explains what the program was told? Each call takes effect
//! at one moment, as a whole, between its begin and its answer.

use super::config::Config;
use super::state::{BLOCKS, Id, Stage, Traffic};

/// Something that has its place in the order.
struct Effect {
    call: usize,
    from: usize,
    len: usize,
    /// What a read has shown; a write has nothing here.
    shown: Option<[Id; 2]>,
    /// It has happened: its call was answered.
    must: bool,
}

/// Is there such an order of the calls so far, after which the file is as `last` says?
pub(crate) fn explains(config: &Config, s: &Traffic, last: Option<[Id; BLOCKS]>) -> bool {
    let effects = effects(config, s);
    let order = Order { effects: &effects, before: &s.ghost.before, last };
    order.goes_on(0, [0; BLOCKS])
}

/// What was answered has happened. A write that was not answered has or has not. If it is given
/// up (its thread has stopped, or it was refused) one of its requests may be there without the
/// other.
fn effects(config: &Config, s: &Traffic) -> Vec<Effect> {
    let mut all = Vec::new();
    for (call, (what, thread)) in config.calls.iter().zip(&s.program.calls).enumerate() {
        let must = thread.stage == Stage::Done;
        let begun = s.ghost.begun & 1 << call != 0;
        let counts = must || (begun && what.writes && !what.denied);
        if !counts {
            continue;
        }
        let shown = (!what.writes).then_some(thread.seen);
        let given_up = matches!(thread.stage, Stage::Stopped | Stage::Failed);
        let pieces = if given_up { what.parts } else { 1 };
        all.extend((0..pieces).map(|piece| {
            let (from, len) = if pieces == 1 { (what.from, what.len) } else { what.part(piece) };
            Effect { call, from, len, shown, must }
        }));
    }
    all
}

struct Order<'a> {
    effects: &'a [Effect],
    before: &'a [u8],
    last: Option<[Id; BLOCKS]>,
}

impl Order<'_> {
    /// Can the effects that are not `used` follow when the file is like this?
    fn goes_on(&self, used: u16, blocks: [Id; BLOCKS]) -> bool {
        let all = self.effects.iter().enumerate();
        let left = || all.clone().filter(|(place, _)| used & 1 << place == 0);
        if left().all(|(_, effect)| !effect.must) && self.last.is_none_or(|last| last == blocks) {
            return true;
        }
        left().any(|(place, effect)| {
            let waits = left().any(|(_, other)| self.before[effect.call] & 1 << other.call != 0);
            let next = if waits { None } else { effect.apply(blocks) };
            next.is_some_and(|blocks| self.goes_on(used | 1 << place, blocks))
        })
    }
}

impl Effect {
    /// The file after it; nothing, if it cannot happen here.
    fn apply(&self, mut blocks: [Id; BLOCKS]) -> Option<[Id; BLOCKS]> {
        let range = &mut blocks[self.from..self.from + self.len];
        match self.shown {
            Some(shown) => (*range == shown[..self.len]).then_some(blocks),
            None => {
                range.fill(Id::try_from(self.call + 1).expect("few calls"));
                Some(blocks)
            }
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
