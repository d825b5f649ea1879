//! Every cut of one run.

use crate::config::Config;
use crate::guard::guarded;
use crate::judge::{ImageKind, Judge};
use crate::record::{Recording, Source, record};
use crate::volume::{VolumeKind, commits_unseen};
use siftfs_model::Oracle;

/// How much was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutReport {
    /// Sequences.
    pub runs: u64,
    /// Places where power was cut.
    pub cuts: u64,
    /// Recoveries that were judged.
    pub recoveries: u64,
}

/// Runs `source` and cuts it at every device operation; the first complaint is the error.
pub fn cut_everywhere(
    kind: VolumeKind,
    source: &Source,
    seed: u64,
    config: &Config,
) -> Result<CutReport, String> {
    cut_recording(&record(kind, source)?, seed, config)
}

/// Cuts a recorded run at every device operation; the first complaint is the error.
pub fn cut_recording(
    recording: &Recording,
    seed: u64,
    config: &Config,
) -> Result<CutReport, String> {
    let mut report = CutReport { runs: 1, ..CutReport::default() };
    let mut oracle = Progress::new(recording);
    let mut failed = None;
    recording.history.each_cut(|cut, cache| {
        if failed.is_some() || config.cut.is_some_and(|only| only != cut) {
            return;
        }
        oracle.advance(cut);
        report.cuts += 1;
        for kind in ImageKind::choose(cache, seed, cut) {
            let at = seed.wrapping_mul(7).wrapping_add(cut);
            let judge = Judge {
                e2fsck: at.is_multiple_of(config.e2fsck_every),
                again: at.is_multiple_of(config.e2fsck_every * 3),
                recut_stride: if at.is_multiple_of(config.recut_every) {
                    config.recut_stride
                } else {
                    0
                },
            };
            let image = cache.image(kind.0);
            let verdict = guarded(|| Ok(judge.verdict(&image, &oracle.oracle, &recording.ids)));
            let (found, recoveries) = verdict.unwrap_or_else(|panic| (vec![panic], 1));
            report.recoveries += recoveries;
            if !found.is_empty() {
                if let Some(dir) = &config.keep {
                    keep(dir, seed, cut, &image);
                }
                let complaints = found.join("\n    ");
                failed = Some(format!(
                    "power cut at device operation {cut} (SIFTFS_CUT={cut}), {kind:?}\n{}    {complaints}",
                    oracle.story()
                ));
                return;
            }
        }
    });
    failed.map_or(Ok(report), Err)
}

/// Saves an image, before and after its recovery, for inspection by hand.
fn keep(dir: &std::path::Path, seed: u64, cut: u64, image: &siftfs_device::Image) {
    let saved = image.save(&dir.join(format!("{seed}-{cut}.img"))).map_err(|e| e.to_string());
    let recovered = crate::judge::recover_image(image).and_then(|image| {
        image.save(&dir.join(format!("{seed}-{cut}.recovered"))).map_err(|e| e.to_string())
    });
    eprintln!("images kept in {}: {saved:?}, {recovered:?}", dir.display());
}

/// The oracle, moved along with the cut.
struct Progress<'a> {
    recording: &'a Recording,
    oracle: Oracle,
    /// Operations that began; the last of them may be under way.
    begun: usize,
    /// Operations that returned.
    returned: usize,
}

impl<'a> Progress<'a> {
    fn new(recording: &'a Recording) -> Self {
        let oracle = Oracle::new(recording.start.clone());
        let oracle = if commits_unseen() { oracle.with_unreported_commits() } else { oracle };
        Self { recording, oracle, begun: 0, returned: 0 }
    }

    /// Everything that ended before device operation `cut` has returned; the next operation is
    /// under way if `cut` is its own.
    fn advance(&mut self, cut: u64) {
        if cut < self.recording.mounted {
            return;
        }
        while let Some(end) = self.recording.ends.get(self.returned) {
            let under_way = *end > cut;
            if self.begun == self.returned {
                let _outcome = self.oracle.begin(&self.recording.ops[self.begun]);
                self.begun += 1;
            }
            if under_way {
                return;
            }
            if self.recording.succeeded[self.returned] {
                self.oracle.returned(&self.recording.ops[self.returned]);
            }
            self.returned += 1;
        }
    }

    /// The operations up to the cut.
    fn story(&self) -> String {
        let from = self.begun.saturating_sub(40);
        let mut text = String::new();
        for (nr, op) in self.recording.ops.iter().enumerate().take(self.begun).skip(from) {
            let state = if nr < self.returned { "" } else { "   <- under way" };
            let failed = if self.recording.succeeded[nr] { "" } else { "   (refused)" };
            text.push_str(&format!("  {op:?}{failed}{state}\n"));
        }
        text
    }
}
