//! Placement: puts Frontend-facing endpoint, Runtime and Service together, in one process (the
//! `local` profile) or in two, and does what needs both: mkfs, mount, unmount, recovery.

mod device;
mod link;
mod mount;
mod options;
mod storage;
mod volume;

pub use device::calls::DeviceEnd;
pub use device::permissions;
pub use device::programs::queue;
pub use device::replay::Replay;
pub use device::server::{Listener, OpenMedia, Server, ServerOptions};
pub use device::storage::OpenStorage;
pub use device::workers::WorkerOptions;
pub use link::connect::{Connector, Dial, HostEnd};
pub use mount::freeze::{Freezer, Frozen, Held};
pub use mount::local::{LocalVolume, Sessions};
pub use mount::private_logs::PrivateLogs;
pub use mount::recover::{discard_log, discard_log_on, recover, recover_on};
pub use mount::remount::Remounter;
pub use mount::served::ServedVolume;
pub use options::{
    LogsReport, LostLog, MkfsOptions, MkfsReport, OpenOptions, Progress, RecordAreaReport,
    RecoverReport, ServicePlace, Shortage, Threads,
};
pub use siftfs_device::BytePlace;
pub use siftfs_device_rbd::{RbdPlace, RbdPool, Whom, is_rbd};
pub use siftfs_device_stripe::{
    Standing, StripePlace, StripedDevice, is_at_target, parts_of, principal,
};
pub use siftfs_device_target::{TargetPlace, Waits};
pub use siftfs_log::JournalData;
pub use siftfs_registry::LogsPlace;
pub use siftfs_runtime::{Compact, Group, Pools};
pub use siftfs_service::{MIN_MEMORY, ReplayMode};
pub use siftfs_transport::{Address, TransportOptions};
pub use siftfs_volume::Media;
pub use siftfs_wire::Access;
pub use storage::standby::{Ear, PassedOn, Passing, Standby, Turn, pass_on};
pub use volume::adopt::{ReleaseReport, adopt, adopt_on, release, release_on};
pub use volume::child;
pub use volume::directory::{
    ListedVolume, Shelf, VolumeState, create_volume, list_volumes, remove_volume,
};
pub use volume::discard::Discarded;
pub use volume::find::books_of_clients;
pub use volume::grow::{GrowReport, grow, grow_on};
pub use volume::media::{
    OpenedMedia, Places, open_media, open_media_for, open_media_for_host, open_media_for_service,
    open_member,
};
pub use volume::members::{Reached, mkfs_member};

pub use volume::mkfs::{mkfs, mkfs_on};
