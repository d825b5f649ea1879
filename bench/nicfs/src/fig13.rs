//! Figure 13: the back end without its index cache, and without its pipeline.

use crate::Plan;
use crate::back::work;
use crate::job::Op;
use crate::stage::Stage;
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The paper's lengths, and one that changes blocks in part: of others no index is asked here.
const LENGTHS: [usize; 4] = [512, 4 << 10, 8 << 10, 16 << 10];
/// Switches of the mount.
const WAYS: [(&str, &str); 4] = [
    ("all", "ingest_threads=4"),
    ("no cache", "ingest_threads=4,no-index-cache"),
    ("no pipeline", "no-pipeline"),
    ("two threads", "ingest_threads=2"),
];

const PAPER: &str = "the paper (figure 13): \"the performance slumped when there was no cache\", whose index lies \
                     beyond PCIe; \"without the pipeline\" less than half";

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    let mut asked: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let stage = Stage::new(plan, 1)?;
    for _ in 0..plan.rounds {
        for (way, (_, options)) in WAYS.into_iter().enumerate() {
            // Nothing of the file is in memory after that.
            stage.mount_again(options)?;
            for bytes in LENGTHS {
                let work = work(&stage, plan, (Op::RandWrite, bytes))?;
                rates.entry((bytes, way)).or_default().push(work.back());
                asked.insert((bytes, way), work.asked / work.records);
            }
        }
    }
    stage.close()?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let head = ("bytes", "", "MiB/s", "to all", "questions per record");
    let _ =
        writeln!(text, "{:>6} {:<12} {:>8} {:>22} {:>22}", head.0, head.1, head.2, head.3, head.4);
    for ((bytes, way), all) in &rates {
        let (name, _) = WAYS.get(*way).copied().unwrap_or_default();
        let whole = rates.get(&(*bytes, 0)).map(Vec::as_slice).unwrap_or_default();
        let (rate, to_all) = (Spread::of(all), Spread::of_ratios(all, whole));
        let asked = asked.get(&(*bytes, *way)).copied().unwrap_or_default();
        let mib = rate.median / f64::from(1 << 20);
        let _ =
            writeln!(text, "{bytes:>6} {name:<12} {mib:>8.0} {:>22} {asked:>22.3}", to_all.show());
        rows.push(json!({
            "bytes": bytes,
            "way": name,
            "bytes_per_second": rate.json(),
            "to_all": to_all.json(),
            "questions_per_record": asked,
        }));
    }
    let _ = writeln!(
        text,
        "{PAPER}\nwhat differs: the index is the Runtime's, in its memory, and is asked only for blocks that are \
         changed in part (512 bytes); the pipeline's threads share this machine's processors with the front end"
    );
    Ok(Output { text, json: json!({"rows": rows, "paper": PAPER}) })
}
