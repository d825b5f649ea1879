//! The harness around a whole volume: power cuts at every write, recoveries cut in turn, and
//! the differential test without any cut.
//!
//! A run is known by its seed. Every failure names seed, cut and image; the environment brings
//! one back (see [`Config::from_env`]).

mod bench;
mod campaign;
mod config;
mod cuts;
mod deaths;
mod ext4;
mod guard;
mod heap;
mod judge;
mod layout;
mod record;
mod sides;
mod volume;

pub use bench::{Back, Bench, Io, NOTHING_DONE, counters, status};
pub use campaign::{Failure, campaign, shortest};
pub use config::Config;
pub use cuts::{CutReport, cut_everywhere, cut_recording};
pub use deaths::{busy, deaths_and_cuts, targets_and_cuts};
pub use ext4::{e2fsck, e2fsck_image};
pub use judge::{ImageKind, Judge, recover_image, walk_image};
pub use layout::Layout;
pub use record::{Recording, Source, differential, generate, record, record_on};
pub use sides::{Death, Road, Town, recorded_device, seeded_deaths};
pub use volume::{
    Driver, RECORD_AREA, SPARE, Split, VolumeKind, base_image, base_image_of, deterministic,
    devices, fault_device, free_at_most, media_of, mem_media, open, open_with, replay_by,
};
