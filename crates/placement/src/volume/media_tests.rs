use super::*;
use crate::options::MkfsOptions;
use crate::volume::mkfs::mkfs_on;
use siftfs_device::MemDevice;

/// A volume as it is made: clean, with an epoch.
fn view() -> HeaderView {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(24 << 20));
    let opts = MkfsOptions { log_size: Some(6 << 20), lanes: 1, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &opts).unwrap();
    Media::from(device).read().unwrap()
}

#[test]
fn a_volume_is_a_hosts_as_long_as_its_epoch_stands() {
    let mut view = view();
    let key = view.host.key;
    still_ours(&view, key).unwrap();
    view.host.state = HostState::Mounted;
    still_ours(&view, key).unwrap();
    let other = EpochKey { nonce: key.nonce ^ 1, ..key };
    let said = still_ours(&view, other).unwrap_err().to_string();
    assert!(said.contains("another host has had the volume"), "{said}");
}

/// The kernel, or e2fsck, may have used what is plain ext4 again; not what carries the marker, nor
/// a superblock that was written in part.
#[test]
fn a_closed_volume_that_was_used_since_is_nobodys() {
    let mut view = view();
    let (key, area) = (view.host.key, view.area.unwrap());
    assert_eq!(view.host.state, HostState::Clean);
    let mut is_ours = |area| {
        view.area = area;
        still_ours(&view, key).is_ok()
    };
    let used = AreaSuper { crc: area.crc ^ 1, ..area };
    assert!(is_ours(Some(area)));
    assert!(!is_ours(Some(used)));
    assert!(!is_ours(None));
    assert!(is_ours(Some(AreaSuper { marker: true, ..used })));
    assert!(is_ours(Some(AreaSuper { checksum_ok: false, ..used })));
}
