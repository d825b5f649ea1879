//! One image after a power cut: recover it, and ask every judge of it.

use crate::guard::guarded;
use crate::volume::{Split, deterministic, devices, fault_device, media_of, mem_media, open};
use siftfs_device::{Cut, Image, VolatileCache};
use siftfs_model::{Caller, Ids, Oracle, Tree};
use siftfs_placement::recover_on;
use siftfs_proto::{ROOT_INO, Request};
use std::fmt;
use std::sync::Arc;

/// What became of the writes that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ImageKind(pub Cut);

impl fmt::Debug for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cut::LoseAll => write!(f, "all unflushed writes lost"),
            Cut::KeepAll => write!(f, "all unflushed writes kept"),
            Cut::KeepBefore(split) => write!(f, "unflushed writes kept before byte {split} alone"),
            Cut::KeepFrom(split) => write!(f, "unflushed writes kept from byte {split} on alone"),
            Cut::Random(seed) => write!(f, "unflushed writes kept, lost or torn by seed {seed}"),
        }
    }
}

impl ImageKind {
    /// The images tried at a cut: the two extremes in turn, and a random one; of two devices, also
    /// those where one lost all and the other nothing. Where nothing was in doubt all are the same.
    pub fn choose(cache: &VolatileCache, seed: u64, cut: u64) -> Vec<Self> {
        if cache.pending().is_empty() {
            return vec![Self(Cut::LoseAll)];
        }
        let extreme = if cut.is_multiple_of(2) { Cut::LoseAll } else { Cut::KeepAll };
        let mut all = vec![Self(extreme), Self(Cut::Random(seed.wrapping_mul(100_003) + cut))];
        let Split { log, bytes, spare } = Split::of(cache.cached());
        for split in [log, bytes, spare].into_iter().flatten() {
            all.extend([Self(Cut::KeepBefore(split)), Self(Cut::KeepFrom(split))]);
        }
        all
    }
}

/// Recovers `image` without a mount; the plain ext4 volume that is left.
pub fn recover_image(image: &Image) -> Result<Image, String> {
    guarded(|| {
        let (device, media) = mem_media(image);
        recover_on(media, &deterministic()).map_err(|e| format!("recovery: {e}"))?;
        Ok(device.snapshot())
    })
}

/// Opens a copy of `image` and walks its tree.
pub fn walk_image(image: &Image) -> Result<Tree, String> {
    guarded(|| walk_unguarded(image))
}

fn walk_unguarded(image: &Image) -> Result<Tree, String> {
    let driver = open(mem_media(image).1).map_err(|e| format!("opening after recovery: {e}"))?;
    let service = driver.volume.endpoint();
    let tree = Caller::root(&*service).walk().map_err(|e| format!("walk: {e}"));
    drop(service);
    driver.volume.abandon();
    tree
}

/// What `siftfs fsck` calls an error in header, lanes, journal or marker. What a cut leaves and
/// recovery puts right is no error, a torn superblock included.
fn fsck(image: &Image) -> Result<(), String> {
    let media = mem_media(image).1.paired(false).map_err(|e| format!("fsck: {e}"))?;
    let found = guarded(|| Ok(siftfs_fsck::check_on(devices(&media))))?;
    let errors: Vec<String> = found
        .iter()
        .filter(|f| f.severity == siftfs_fsck::Severity::Error)
        .map(|f| format!("{f:?}"))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("fsck: {}", errors.join("\n"))) }
}

/// What judges an image, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Run e2fsck.
    pub e2fsck: bool,
    /// Recover the recovered volume again, and use it.
    pub again: bool,
    /// Cut the recovery itself at every n-th boundary; 0: not at all.
    pub recut_stride: u64,
}

impl Judge {
    /// All complaints about `image`; how many recoveries it took.
    pub fn verdict(&self, image: &Image, oracle: &Oracle, ids: &Ids) -> (Vec<String>, u64) {
        let mut recoveries = 1;
        let found = self.try_verdict(image, oracle, ids, &mut recoveries);
        (found.unwrap_or_else(|e| vec![e]), recoveries)
    }

    fn try_verdict(
        &self,
        image: &Image,
        oracle: &Oracle,
        ids: &Ids,
        recoveries: &mut u64,
    ) -> Result<Vec<String>, String> {
        fsck(image).map_err(|e| format!("before recovery: {e}"))?;
        let recovered = recover_image(image)?;
        fsck(&recovered)?;
        let tree = walk_image(&recovered)?;
        let found = oracle.violations(&tree, ids);
        if !found.is_empty() {
            return Ok(found);
        }
        self.others(image, &recovered, &tree, recoveries)?;
        Ok(Vec::new())
    }

    /// All judges but the oracle.
    fn others(
        &self,
        image: &Image,
        recovered: &Image,
        tree: &Tree,
        recoveries: &mut u64,
    ) -> Result<(), String> {
        if self.e2fsck {
            crate::ext4::e2fsck_image(recovered)?;
        }
        if self.again {
            again(recovered)?;
            use_it(recovered)?;
        }
        if self.recut_stride > 0 {
            self.recut(image, recovered, tree, recoveries)?;
        }
        Ok(())
    }

    /// As [`Judge::verdict`], without an oracle: only the recovery itself is judged.
    pub fn recovery_alone(&self, image: &Image) -> (Vec<String>, u64) {
        let mut recoveries = 1;
        let found = recover_image(image).and_then(|recovered| {
            let tree = walk_image(&recovered)?;
            self.others(image, &recovered, &tree, &mut recoveries)
        });
        (found.err().into_iter().collect(), recoveries)
    }

    /// Cuts the recovery of `image` and recovers again: the result is the uncut recovery's.
    fn recut(
        &self,
        image: &Image,
        recovered: &Image,
        want: &Tree,
        recoveries: &mut u64,
    ) -> Result<(), String> {
        let device = Arc::new(fault_device(image.clone(), 0));
        device.record_history();
        recover_on(media_of(&device, image), &deterministic())
            .map_err(|e| format!("recovery: {e}"))?;
        let history = device.take_history().ok_or("the history is gone")?;
        let mut failed = None;
        history.each_cut(|cut, cache| {
            if failed.is_some() || !cut.is_multiple_of(self.recut_stride) {
                return;
            }
            for kind in ImageKind::choose(cache, recovered.size(), cut) {
                *recoveries += 1;
                let again = recover_image(&cache.image(kind.0));
                if let Err(e) = again.and_then(|image| same(&image, want, self.e2fsck)) {
                    failed = Some(format!("recovery cut at {cut}, {kind:?}: {e}"));
                    return;
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

/// The tree in `image` is `want`.
fn same(image: &Image, want: &Tree, e2fsck: bool) -> Result<(), String> {
    let tree = walk_image(image)?;
    let found = siftfs_model::tree::differences(want, &tree, true);
    if !found.is_empty() {
        return Err(format!("not what the uncut recovery gave: {}", found.join("\n")));
    }
    if e2fsck { crate::ext4::e2fsck_image(image) } else { Ok(()) }
}

/// A second recovery finds nothing to do and writes nothing.
fn again(recovered: &Image) -> Result<(), String> {
    let device = Arc::new(fault_device(recovered.clone(), 0));
    let report = recover_on(media_of(&device, recovered), &deterministic())
        .map_err(|e| format!("second recovery: {e}"))?;
    if !report.clean || device.stats().writes > 0 {
        let stats = device.stats();
        return Err(format!("the second recovery was not idle: {report:?}, {stats:?}"));
    }
    Ok(())
}

/// The recovered volume can be used: files grow by zeros only, and something new survives an
/// unmount.
fn use_it(recovered: &Image) -> Result<(), String> {
    let (device, media) = mem_media(recovered);
    let driver = open(media).map_err(|e| format!("open: {e}"))?;
    let service = driver.volume.endpoint();
    let caller = Caller::root(&*service);
    let before = caller.walk().map_err(|e| format!("walk: {e}"))?;
    for (ino, seen) in &before.nodes {
        if seen.attr.kind == siftfs_proto::FileKind::Regular {
            grows_by_zeros(&caller, *ino, seen.attr.size)?;
        }
    }
    let name = b"made after recovery".to_vec();
    caller
        .call(Request::Create { parent: ROOT_INO, name, perm: 0o600 })
        .map_err(|e| format!("create after recovery: {e}"))?;
    let after = caller.walk().map_err(|e| format!("walk: {e}"))?;
    drop(service);
    driver.volume.close().map_err(|e| format!("close: {e}"))?;
    crate::ext4::e2fsck_image(&device.snapshot())?;
    same(&device.snapshot(), &after, false)
}

fn grows_by_zeros(caller: &Caller<'_>, ino: u32, size: u64) -> Result<(), String> {
    let set = siftfs_proto::SetAttr { size: Some(size + 9000), ..Default::default() };
    caller
        .call(Request::SetAttr { file: ino.into(), set, times: true })
        .map_err(|e| format!("growing inode {ino}: {e}"))?;
    let tail = caller.read(ino, size, 9000).map_err(|e| format!("reading inode {ino}: {e}"))?;
    match tail.iter().position(|b| *b != 0) {
        None if tail.len() == 9000 => Ok(()),
        at => Err(format!(
            "inode {ino} of {size} bytes grew by {} bytes, not zero at {at:?}",
            tail.len()
        )),
    }
}
