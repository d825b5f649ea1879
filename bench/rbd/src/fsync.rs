//! One volume on an image of a cluster of three OSDs, and a raw image of the same pool.

use crate::Plan;
use serde_json::Value;
use siftfs_rbd_tests::stage::{Stage, succeed};
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Result, arg, failed};

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(stage: &Stage<'_>, plan: &Plan) -> Result<Output> {
    let volume = stage.volume("fast", "embedded", 512)?;
    stage.rbd(&["create", "--size", "64M", "fast/raw"])?;
    images(stage, plan, &[(&volume, "rbd:fast/raw")])
}

/// Measures these volumes, each beside a raw image, in a process that is a client of the cluster
/// with the product's key.
///
/// # Errors
/// What that process says.
pub fn images(stage: &Stage<'_>, plan: &Plan, pairs: &[(&str, &str)]) -> Result<Output> {
    let own = std::env::current_exe().map_err(failed("own path"))?;
    let (sockets, rounds, time) =
        (stage.cluster.sockets(), plan.rounds.to_string(), plan.time.to_string());
    let mut command = stage.command(own);
    command.args(["images", "--rounds", &rounds, "--time", &time, "--osds", arg(&sockets)?]);
    for (volume, raw) in pairs {
        command.args(["--volume", volume, "--raw", raw]);
    }
    if !plan.json {
        return Ok(Output { text: succeed(&mut command)?, json: Value::Null });
    }
    let said = succeed(command.arg("--json"))?;
    let json: Value = serde_json::from_str(&said).map_err(|e| Failed(format!("{e}: {said}")))?;
    Ok(Output { text: String::new(), json: json["images"].clone() })
}
