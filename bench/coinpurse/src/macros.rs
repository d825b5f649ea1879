//! Figures 1 and 6 and table II: programs on mounted systems.

use crate::mounts::{Mounted, Site};
use crate::output::{Output, spread};
use crate::programs::{self, Program};
use crate::side::Side;
use serde_json::{Value, json};
use siftfs_rig::place::{Result, failed};
use siftfs_status::{Dispatch, Dispatched, Kept, Pages};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

/// The paper's table II: of all writes and of those to its byte interface, dirty ratios in percent;
/// and what share of the bytes the latter are.
const PAPER_TABLE_2: [(f64, f64, f64); 4] =
    [(54.22, 34.09, 9.34), (23.18, 80.07, 9.56), (8.75, 51.50, 3.43), (61.31, 38.83, 25.93)];

/// How to measure.
pub struct Plan<'a> {
    /// Where.
    pub site: &'a Site<'a>,
    /// Rounds.
    pub rounds: u32,
    /// Of each program on each system in a round.
    pub time: Duration,
    /// Only programs whose names contain one of these words; all, if there is none.
    pub only: &'a [String],
}

impl Plan<'_> {
    fn chosen(&self, all: &[Program]) -> Vec<Program> {
        let named = |p: &Program| self.only.iter().any(|word| p.name().contains(word.as_str()));
        all.iter().copied().filter(|p| self.only.is_empty() || named(p)).collect()
    }
}

/// Rates by program and system, a number a round; and what the dispatcher did with each program.
struct Measured {
    rates: BTreeMap<(Program, Side), Vec<f64>>,
    dispatch: BTreeMap<Program, Dispatch>,
}

fn measure(plan: &Plan<'_>, sides: &[Side], all: &[Program]) -> Result<Measured> {
    let (place, all) = (plan.site.place, plan.chosen(all));
    programs::missing(&all)?;
    let systems = sides.iter().map(|side| Mounted::new(*side, plan.site));
    let systems = systems.collect::<Result<Vec<_>>>()?;
    let mut measured = Measured { rates: BTreeMap::new(), dispatch: BTreeMap::new() };
    for (n, program) in all.iter().enumerate() {
        eprintln!("{}", program.name());
        let dirs: Vec<_> = systems.iter().map(|s| s.dir.join(n.to_string())).collect();
        for dir in &dirs {
            fs::create_dir(dir).map_err(failed(dir.display()))?;
            program.prepare(place, dir)?;
        }
        for round in 0..plan.rounds as usize {
            for i in 0..systems.len() {
                // Each round begins with another system.
                let at = (i + round) % systems.len();
                place.go_on()?;
                systems[at].settle()?;
                let before = systems[at].dispatch()?;
                let rate = program.measure(place, &dirs[at], plan.time)?;
                let key = (*program, systems[at].side);
                measured.rates.entry(key).or_default().push(rate);
                if systems[at].side == Side::Area {
                    let (before, after) =
                        (before.unwrap_or_default(), systems[at].dispatch()?.unwrap_or_default());
                    let sum = measured.dispatch.remove(program).unwrap_or_default();
                    measured.dispatch.insert(*program, plus(&sum, &before, &after));
                }
            }
        }
        for dir in &dirs {
            fs::remove_dir_all(dir).map_err(failed(dir.display()))?;
        }
    }
    systems.into_iter().try_for_each(Mounted::close)?;
    Ok(measured)
}

/// A sum, and what came to it between two readings.
fn plus(sum: &Dispatch, before: &Dispatch, after: &Dispatch) -> Dispatch {
    let add = |s: u64, b: u64, a: u64| s + a.saturating_sub(b);
    let records = |of: fn(&Dispatch) -> &Dispatched| {
        let (s, b, a) = (of(sum), of(before), of(after));
        Dispatched {
            records: add(s.records, b.records, a.records),
            dirty_bytes: add(s.dirty_bytes, b.dirty_bytes, a.dirty_bytes),
            page_bytes: add(s.page_bytes, b.page_bytes, a.page_bytes),
        }
    };
    let of = |d: &Dispatch, reason: &String| d.elsewhere.get(reason).copied().unwrap_or(0);
    let elsewhere = after.elsewhere.keys().chain(sum.elsewhere.keys());
    let elsewhere = elsewhere.map(|reason| {
        (reason.clone(), add(of(sum, reason), of(before, reason), of(after, reason)))
    });
    let up_to = std::array::from_fn(|i| {
        add(sum.pages.up_to[i], before.pages.up_to[i], after.pages.up_to[i])
    });
    let kept = |of: fn(&Kept) -> u64| add(of(&sum.kept), of(&before.kept), of(&after.kept));
    Dispatch {
        all: records(|d| &d.all),
        record_area: records(|d| &d.record_area),
        record_bytes: add(sum.record_bytes, before.record_bytes, after.record_bytes),
        physical: add(sum.physical, before.physical, after.physical),
        elsewhere: elsewhere.filter(|(_, n)| *n > 0).collect(),
        pages: Pages { up_to },
        kept: Kept {
            one: kept(|k| k.one),
            three: kept(|k| k.three),
            all: kept(|k| k.all),
            by_cost: kept(|k| k.by_cost),
        },
    }
}

/// Figure 6: rates to the block lane, and to the disk's own file system.
pub fn figure_6(plan: &Plan<'_>) -> Result<Output> {
    let measured = measure(plan, &Side::ALL, &Program::ALL)?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:22} {:>8} {:>8} {:>8} {:>8} {:>22} {:>8} {:>6}  {:14} {:12}",
        "per second",
        "ext4",
        "blocks",
        "area",
        "1 us",
        "area to blocks",
        "to ext4",
        "target",
        "paper: to F2FS",
        "to ext4"
    );
    for program in plan.chosen(&Program::ALL) {
        let rates = |side| measured.rates.get(&(program, side)).cloned().unwrap_or_default();
        let ratio = |side, to| {
            spread(&rates(side).iter().zip(rates(to)).map(|(a, b)| a / b).collect::<Vec<_>>())
        };
        let [disk, blocks, area, slow] = Side::ALL.map(|side| spread(&rates(side)).0);
        let (gain, slow_gain, ext4) = (
            ratio(Side::Area, Side::Blocks),
            ratio(Side::ReadBack, Side::Blocks),
            ratio(Side::Area, Side::Disk),
        );
        let paper = program.paper();
        let _ = writeln!(
            text,
            "{:22} {disk:>8.0} {blocks:>8.0} {area:>8.0} {slow:>8.0} {:>22} {:>8.2} {:>6.2}  {:14} {:12}",
            program.name(),
            format!("{:.2} ({:.2} to {:.2})", gain.0, gain.1, gain.2),
            ext4.0,
            program.target(),
            paper.0,
            paper.1
        );
        rows.push(json!({
            "program": program.name(), "ext4": disk, "blocks": blocks, "area": area,
            "area_1_us": slow, "area_to_blocks": [gain.0, gain.1, gain.2],
            "area_1_us_to_blocks": slow_gain.0, "area_to_ext4": ext4.0,
            "target": program.target(), "paper_to_f2fs": paper.0, "paper_to_ext4": paper.1,
        }));
    }
    let _ = writeln!(
        text,
        "what differs: FUSE here, a module of the kernel there; MariaDB {} for MySQL; SQLite's shell \
         for Mobibench; Varmail of our own; SiftFS's block lane in F2FS's place",
        crate::mariadb::version()
    );
    let (more, table) = table_2(&measured, &Program::ALL);
    Ok(Output { text: text + &more, json: json!({"figure_6": rows, "table_2": table}) })
}

/// Table II: what the dispatcher did.
pub fn table(plan: &Plan<'_>) -> Result<Output> {
    let measured = measure(plan, &[Side::Area], &Program::TABLE_2)?;
    let (text, rows) = table_2(&measured, &Program::TABLE_2);
    Ok(Output { text, json: json!({"table_2": rows}) })
}

fn table_2(measured: &Measured, programs: &[Program]) -> (String, Vec<Value>) {
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:22} {:>9} {:>7} {:>7} | {:>9} {:>7} {:>7} {:>7}  elsewhere (paper: dirty of all, bytes to \
         the area, dirty of those)",
        "table II", "MB", "dirty", "KB each", "MB there", "bytes", "dirty", "fsyncs"
    );
    for program in programs {
        let Some(d) = measured.dispatch.get(program) else { continue };
        let percent = |a: u64, b: u64| a as f64 * 100.0 / b.max(1) as f64;
        let (all, area) = (&d.all, &d.record_area);
        let at = Program::TABLE_2.iter().position(|p| p == program);
        let paper = at.map_or_else(String::new, |at| {
            let (all, there, dirty) = PAPER_TABLE_2[at];
            format!("({all} %, {there} %, {dirty} %)")
        });
        let _ = writeln!(
            text,
            "{:22} {:>9.1} {:>5.1} % {:>7.2} | {:>9.1} {:>5.1} % {:>5.1} % {:>5.1} %  {:?} {paper}",
            program.name(),
            all.page_bytes as f64 / 1e6,
            percent(all.dirty_bytes, all.page_bytes),
            all.page_bytes as f64 / 1e3 / all.records.max(1) as f64,
            area.page_bytes as f64 / 1e6,
            percent(area.page_bytes, all.page_bytes),
            percent(area.dirty_bytes, area.page_bytes),
            percent(area.records, all.records),
            d.elsewhere
        );
        rows.push(json!({"program": program.name(), "counts": d, "paper": paper}));
    }
    (text, rows)
}

/// Figure 1: pages that fsyncs write, by their dirty bytes; and what records would carry of them
/// with other limits of ranges for each page.
pub fn figure_1(plan: &Plan<'_>) -> Result<Output> {
    let measured = measure(plan, &[Side::Area], &Program::TABLE_2)?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = write!(text, "{:22}", "pages, dirty up to");
    Pages::CLASSES.iter().for_each(|most| text += &format!(" {most:>7}"));
    let _ = writeln!(text, "   bytes with one range a page, three, all; by cost = 1");
    for (program, d) in &measured.dispatch {
        let total: u64 = d.pages.up_to.iter().sum();
        let mut sum = 0;
        let _ = write!(text, "{:22}", program.name());
        for pages in d.pages.up_to {
            sum += pages;
            let _ = write!(text, " {:>5.1} %", sum as f64 * 100.0 / total.max(1) as f64);
        }
        let to = |bytes: u64| bytes as f64 / d.kept.by_cost.max(1) as f64;
        let (one, three, every) = (to(d.kept.one), to(d.kept.three), to(d.kept.all));
        let _ = writeln!(text, "   {one:.3} {three:.3} {every:.3}");
        rows.push(json!({"program": program.name(), "pages": d.pages, "kept": d.kept}));
    }
    let _ = writeln!(
        text,
        "the paper's figure 1 is a picture taken from another paper, of synchronous writes of phones; \
         here it is what fsyncs of these programs carry"
    );
    Ok(Output { text, json: json!({"classes": Pages::CLASSES, "figure_1": rows}) })
}
