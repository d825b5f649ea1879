//! Users who have the daemon decompress, very many at a time: its memory stays within a bound.

use super::{Scene, Stage};
use siftfs_client::{Access, Codec, Compound, Level};
use siftfs_rig::hostile::callers::Callers;
use std::fs::File;
use std::io;
use std::sync::Arc;

const FIRST: u32 = 66_001;
const USERS: usize = 3;
/// Threads of each user.
const CALLERS: usize = 60;
/// Bytes that each call makes of a few.
const LARGE: usize = 15 << 20;
/// Most that the daemon may have in memory, in bytes: caches with their defaults, and what all
/// compounds together may take.
const MOST: u64 = 900 << 20;

/// Decompresses until the round is over. Refusals for want of room are answers.
pub fn play(stage: &Arc<Stage>) -> io::Result<()> {
    let mut callers = Vec::new();
    for n in 0..USERS {
        let user = FIRST + u32::try_from(n).expect("few");
        let dir = stage.directory(&stage.fresh("hogs"), user, 0o755)?;
        // The users before may leave no memory for it now.
        while let Err(error) = pack(&dir.join("packed")) {
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
            if stage.is_over() {
                return Ok(());
            }
        }
        let own = stage.clone();
        let act = move |_| {
            let Ok(base) = File::open(&dir) else { return };
            while !own.is_over() {
                let _ = unpack(&base);
                own.has_tried(Scene::Hogs);
            }
        };
        callers.push(Callers::start(CALLERS, (user, None), act)?);
    }
    drop(callers);
    Ok(())
}

/// A file whose bytes become [`LARGE`] ones.
fn pack(path: &std::path::Path) -> io::Result<()> {
    let dir = File::open(path.parent().unwrap_or(path))?;
    let large = path.with_extension("large");
    std::fs::write(&large, vec![b'a'; LARGE])?;
    let name =
        |p: &std::path::Path| p.file_name().map(std::ffi::OsStr::to_owned).unwrap_or_default();
    let mut steps = Compound::on(&dir);
    let from = steps.open(name(&large), Access::Read);
    let bytes = steps.read(from, 0, u32::try_from(LARGE).expect("it fits"));
    let packed = steps.compress(Codec::Zstd, bytes);
    let to = steps.create(name(path), 0o644);
    steps.write(to, 0, packed);
    steps.run(Level::Visible).map_err(io::Error::from)?;
    std::fs::remove_file(large)
}

fn unpack(base: &File) -> io::Result<()> {
    let mut steps = Compound::on(base);
    let file = steps.open("packed", Access::Read);
    let bytes = steps.read(file, 0, 1 << 20);
    let large = steps.decompress(Codec::Zstd, bytes, u32::try_from(LARGE).expect("it fits"));
    let sum = steps.checksum(siftfs_client::Checksum::Crc32c, large);
    steps.want(sum);
    steps.run(Level::Visible).map(drop).map_err(io::Error::from)
}

/// The most that a process has had in memory, in bytes.
pub fn resident(pid: Option<u32>) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid?)).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// A finding, if the daemon took too much.
pub fn judge(resident: Option<u64>) -> Option<String> {
    let took = resident.filter(|bytes| *bytes > MOST)?;
    Some(format!("the daemon has had {} MiB in memory, more than {}", took >> 20, MOST >> 20))
}
