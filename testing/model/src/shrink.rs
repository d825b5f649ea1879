//! Makes a failing sequence shorter.

use crate::op::Op;

/// The shortest sequence that this search finds for which `fails` still holds: parts are taken
/// out, halves first, until no single operation can go. `fails(&ops)` must hold at the start.
pub fn shrink(mut ops: Vec<Op>, mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut part = ops.len().div_ceil(2).max(1);
    loop {
        let before = ops.len();
        let mut at = 0;
        while at < ops.len() {
            let end = (at + part).min(ops.len());
            let mut less = ops.clone();
            less.drain(at..end);
            if fails(&less) {
                ops = less;
            } else {
                at = end;
            }
        }
        match (part, ops.len() < before) {
            (1, false) => return ops,
            (_, true) => {}
            (_, false) => part = part.div_ceil(2),
        }
    }
}
