//! What OSDs say of themselves, by their sockets for administrators: a judge that shares no code
//! with the device that is judged.

use serde_json::Value;
use siftfs_rig::place::{Failed, Result, failed};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The request, which ends with a zero.
const ASK: &[u8] = b"{\"prefix\": \"perf dump\", \"logger\": \"osd\"}\0";
/// Bytes in front of an answer, which are its length.
const LENGTH: usize = 4;
/// Longest answer that is read, in bytes.
const MOST: u64 = 4 << 20;
/// How long an OSD may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many writes of clients the OSDs have carried out since they were started, over all sockets
/// `osd.*.asok` in `dir`. A write is counted once, by the OSD that hands it to the replicas; what a
/// client keeps alive (a watch of an image) is one write in some seconds.
///
/// # Errors
/// There is no such socket, or an OSD does not answer with its counts.
pub fn writes(dir: &Path) -> Result<u64> {
    let (mut all, mut osds) = (0, 0);
    for entry in fs::read_dir(dir).map_err(failed(dir.display()))? {
        let path = entry.map_err(failed(dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("osd.") && name.ends_with(".asok") {
            all += writes_of(&path)?;
            osds += 1;
        }
    }
    match osds {
        0 => Err(Failed(format!("{}: there is no socket of an OSD", dir.display()))),
        _ => Ok(all),
    }
}

fn writes_of(socket: &Path) -> Result<u64> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(ASK)?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(failed(socket.display()))?;
    let said: Option<Value> =
        answer.get(LENGTH..).and_then(|text| serde_json::from_slice(text).ok());
    let counts = said.as_ref().map(|said| &said["osd"]);
    let count = |name: &str| counts.and_then(|counts| counts[name].as_u64());
    match (count("op_w"), count("op_rw")) {
        (Some(writes), Some(both)) => Ok(writes + both),
        _ => Err(Failed(format!("{}: an answer without counts", socket.display()))),
    }
}

#[cfg(test)]
#[path = "osd_counts_tests.rs"]
mod tests;
