//! What was measured, beside the paper's.

use crate::output::{Output, spread};
use crate::side::{Op, Side};
use serde_json::{Value, json};
use siftfs_status::Dispatch;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a ratio is designed to be: to the disk's file system in the best operation, to the block
/// lanes in each but delete.
const TARGETS: (f64, f64) = (5.9, 1.9);

/// Rates and times by operation and system, a number a round.
#[derive(Default)]
pub struct Report {
    rates: BTreeMap<(Op, Side), Vec<f64>>,
    times: BTreeMap<(Op, Side), Vec<f64>>,
    dispatch: Vec<(Side, Dispatch)>,
    through: &'static str,
}

impl Report {
    /// Of systems that are reached this way.
    pub fn through(through: &'static str) -> Self {
        Self { through, ..Self::default() }
    }

    /// Adds what one round measured.
    pub fn add(&mut self, side: Side, op: Op, rate: f64, us: f64) {
        self.rates.entry((op, side)).or_default().push(rate);
        self.times.entry((op, side)).or_default().push(us);
    }

    /// Adds what a dispatcher did, if there is one.
    pub fn dispatch(&mut self, side: Side, dispatch: Option<Dispatch>) {
        self.dispatch.extend(dispatch.map(|dispatch| (side, dispatch)));
    }

    /// The rounds' ratios of rates.
    fn ratio(&self, op: Op, side: Side, to: Side) -> (f64, f64, f64) {
        let of = |side| self.rates.get(&(op, side)).map(Vec::as_slice).unwrap_or_default();
        let ratios: Vec<f64> = of(side).iter().zip(of(to)).map(|(a, b)| a / b).collect();
        spread(&ratios)
    }

    /// All of it.
    pub fn output(&self) -> Output {
        Output { text: self.text(), json: self.json() }
    }

    /// For people.
    fn text(&self) -> String {
        let mut t = String::new();
        let _ = writeln!(
            t,
            "{:10} {:12} {:>10} {:>9} {:>26} {:>26}",
            "512 B", "system", "per second", "p50 us", "to the disk's", "to the block lanes"
        );
        for ((op, side), rates) in &self.rates {
            let (disk, blocks) =
                (self.ratio(*op, *side, Side::Disk), self.ratio(*op, *side, Side::Blocks));
            let times = self.times.get(&(*op, *side)).map(Vec::as_slice).unwrap_or_default();
            let show = |r: (f64, f64, f64)| format!("{:.2} ({:.2} to {:.2})", r.0, r.1, r.2);
            let _ = writeln!(
                t,
                "{:10} {:12} {:>10.0} {:>9.1} {:>26} {:>26}",
                op.name(),
                side.name(),
                spread(rates).0,
                spread(times).0,
                show(disk),
                show(blocks)
            );
        }
        let _ = writeln!(
            t,
            "designed for: {} to the disk's in the best, {} to the block lanes in each but delete",
            TARGETS.0, TARGETS.1
        );
        let _ = writeln!(
            t,
            "the paper: at most 5.93 times ext4, 32.51 times XFS, 1.89 times F2FS; less than ext4 in \
             delete. What differs: {} here, a module of the kernel there; the disk; SiftFS's block \
             lane in F2FS's place",
            self.through
        );
        self.dispatch.iter().for_each(|(side, d)| table(&mut t, *side, d));
        t
    }

    /// For programs.
    fn json(&self) -> Value {
        let rows = self.rates.iter().map(|((op, side), rates)| {
            let triple = |r: (f64, f64, f64)| json!({"median": r.0, "least": r.1, "most": r.2});
            let times = self.times.get(&(*op, *side)).map(Vec::as_slice).unwrap_or_default();
            json!({
                "operation": op.name(),
                "system": side.name(),
                "rate": triple(spread(rates)),
                "p50_us": triple(spread(times)),
                "to_disk": triple(self.ratio(*op, *side, Side::Disk)),
                "to_blocks": triple(self.ratio(*op, *side, Side::Blocks)),
            })
        });
        let dispatch =
            self.dispatch.iter().map(|(side, d)| json!({"system": side.name(), "counts": d}));
        json!({ "rows": rows.collect::<Vec<_>>(), "dispatch": dispatch.collect::<Vec<_>>(), "through": self.through })
    }
}

/// The paper's table II, of what was measured here.
fn table(t: &mut String, side: Side, d: &Dispatch) {
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let (all, area) = (&d.all, &d.record_area);
    let _ = writeln!(
        t,
        "{}: {} fsyncs, dirty ratio {:.1} %; to the area {} ({:.1} %), dirty ratio {:.1} %, {:.0} bytes a \
         record; elsewhere {:?}",
        side.name(),
        all.records,
        share(all.dirty_bytes, all.page_bytes),
        area.records,
        share(area.records, all.records),
        share(area.dirty_bytes, area.page_bytes),
        d.record_bytes as f64 / area.records.max(1) as f64,
        d.elsewhere
    );
}
