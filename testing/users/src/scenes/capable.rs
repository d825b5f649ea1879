//! Users who write to programs with capabilities and execute them.

use super::thieves::{Way, not_busy};
use super::{Scene, Stage, make_directory};
use rustix::fs::{XattrFlags, setxattr};
use siftfs_base::Rng;
use siftfs_rig::hostile::become_user;
use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const USER: u32 = 64_101;
/// A program that shows what it runs with.
const PROGRAM: &str = "/bin/cat";
/// CAP_NET_RAW, permitted and effective, as `security.capability` of version 2 has it.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// As the thieves, with capabilities instead of set-id bits.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.dir.join(stage.fresh("capable"));
    make_directory(&dir, 0, 0o755)?;
    let plain = dir.join("plain");
    std::fs::copy(PROGRAM, &plain)?;
    while !stage.is_over() {
        let way = *rng.pick(&Way::ALL).expect("there are ways");
        let name = stage.fresh("program");
        let path = dir.join(&name);
        std::fs::copy(PROGRAM, &path)?;
        set_permissions(&path, Permissions::from_mode(0o777))?;
        setxattr(&path, "security.capability", &NET_RAW, XattrFlags::empty())?;
        let stolen = std::thread::scope(|s| s.spawn(|| steal(&dir, (&name, &plain), way)).join());
        match stolen.expect("the thief does not panic") {
            Ok((before, after)) => {
                if before != "0000000000002000" {
                    stage.find(Scene::Capable, &format!("before {way:?} it has {before}"));
                }
                if after != "0000000000000000" {
                    stage.find(Scene::Capable, &format!("after {way:?} it has {after}"));
                }
            }
            Err(error) => stage.find(Scene::Capable, &format!("{way:?}: {error}")),
        }
        stage.has_tried(Scene::Capable);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// The program's effective capabilities before and after the change.
fn steal(dir: &Path, (name, plain): (&str, &Path), way: Way) -> io::Result<(String, String)> {
    become_user(USER)?;
    let effective = || -> io::Result<String> {
        let program = dir.join(name);
        let out = not_busy(|| Command::new(&program).arg("/proc/self/status").output())?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.lines().find_map(|l| l.strip_prefix("CapEff:"));
        line.map(|l| l.trim().to_string()).ok_or_else(|| io::Error::other(format!("{out:?}")))
    };
    let before = effective()?;
    not_busy(|| way.change(dir, name, plain))?;
    Ok((before, effective()?))
}
