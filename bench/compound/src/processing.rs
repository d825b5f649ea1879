//! What the paper has and never measured: compounds that compress, and that open or close.

use crate::Plan;
use crate::job::Op;
use crate::stage::Stage;
use crate::table::{Row, measure as measure_rows, show};
use serde_json::json;
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;

const OPS: [(Op, &str); 5] = [
    (Op::CompressWrite, "compress (zstd) and write"),
    (Op::ReadDecompress, "read and decompress"),
    (Op::OpenRead, "open and read"),
    (Op::OpenWrite, "open and write"),
    (Op::WriteClose, "open; write and close"),
];

/// Measures them.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let served = stage.serve("volume", &[])?;
    let mut rows = Vec::new();
    for (op, name) in OPS {
        for bytes in [4096, 65_536] {
            let job = |compound| stage.job(&served.address, op, bytes, compound);
            let ext4 = ("ext4", stage.job(&stage.ext4, op, bytes, false));
            let sides = vec![("compound", job(true)), ("single", job(false)), ext4];
            rows.push(Row { name: format!("{name}, {bytes} bytes"), sides, target: None });
        }
    }
    let all = measure_rows(plan, &stage, rows)?;
    let (mut text, rows) = show(&all);
    text += &format!(
        "{}\nsingle calls compress at the client, a compound at the server; two of three bytes repeat\n",
        plan.pin.label()
    );
    served.end()?;
    Ok(Output { text, json: json!({"rows": rows, "pinned": plan.pin.label()}) })
}
