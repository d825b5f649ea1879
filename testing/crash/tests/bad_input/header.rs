//! Headers of other times, and headers that disagree with the file system.

use super::disk::{with_header, with_marker};
use super::{base_image, dirty, refused, serves};
use siftfs_base::Error;
use siftfs_crash::{Bench, VolumeKind};
use siftfs_device::{Image, MemDevice};
use siftfs_fsck::Severity;
use siftfs_log::{FORMAT_VERSION, KNOWN_INCOMPAT, REGISTRY_VERSION};

/// Codes of what `siftfs fsck` finds at least as bad as `severity`.
fn found(image: &Image, severity: Severity) -> Vec<&'static str> {
    let found = siftfs_fsck::check(&MemDevice::from_image(image.clone()));
    found.iter().filter(|f| f.severity >= severity).map(|f| f.code).collect()
}

/// Another format version in the static part, or in the newest records alone: nothing is guessed.
/// One copy is enough: the two copies of a volume are of one version.
#[test]
fn another_format_version() {
    for image in [base_image(), dirty()] {
        for (what, blocks, newest) in [
            ("static part", 0..1, FORMAT_VERSION),
            ("host record", 1..3, REGISTRY_VERSION),
            ("service record", 3..5, FORMAT_VERSION),
        ] {
            for version in [FORMAT_VERSION - 1, newest + 1, u32::MAX] {
                let mut future = image.clone();
                for block in blocks.clone() {
                    if image.bytes(super::layout().header.start + block * 4096, 8) == [0; 8] {
                        continue; // a slot that was never written
                    }
                    for copy in 0..2 {
                        future = with_header(&future, copy, block, 8, &version.to_le_bytes());
                    }
                }
                let error = refused(what, &future);
                let text = error.to_string();
                assert!(matches!(error, Error::Incompatible(_)), "{what}: {text}");
                assert_eq!(error.errno(), libc::EOPNOTSUPP);
                let knows = format!("knows {newest}");
                assert!(text.contains(&version.to_string()) && text.contains(&knows), "{text}");
                assert!(found(&future, Severity::Error).contains(&"incompatible"), "{what}");
            }
        }
    }
}

/// Unknown features: incompatible ones refuse the volume, read-only compatible ones refuse writers,
/// compatible ones have no effect.
#[test]
fn features_from_the_future() {
    let both = |image: &Image, at: usize, bits: u32| {
        let one = with_header(image, 0, 0, at, &bits.to_le_bytes());
        with_header(&one, 1, 0, at, &bits.to_le_bytes())
    };
    for image in [base_image(), dirty()] {
        for bits in [KNOWN_INCOMPAT + 1, 0x8000_0000] {
            let error = refused("an incompatible feature", &both(&image, 20, bits));
            assert!(matches!(error, Error::Incompatible(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("{bits:#x}")), "names the feature: {text}");
            let future = both(&image, 20, bits);
            assert!(found(&future, Severity::Error).contains(&"incompatible"));
        }
        let back = serves("a compatible feature", &both(&image, 12, 4));
        assert!(back.tree.nodes.len() > 1);
    }
}

/// The header says dirty, and the marker is gone: another program changed the area. Never replayed.
#[test]
fn a_dirty_header_without_the_marker() {
    let image = with_marker(&dirty(), false);
    let error = refused("no marker", &image);
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(error.errno(), libc::EUCLEAN);
    let text = error.to_string();
    assert!(text.contains("marker") && text.contains("--discard-log"), "{text}");
    assert!(found(&image, Severity::Error).contains(&"marker.missing"));
}

/// The header says clean, and the marker is there: an unmount or a mount was cut between the two.
/// Recovery ends it; nothing is lost, and nothing is refused.
#[test]
fn a_clean_header_with_the_marker() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", b"once mounted");
    let image = with_marker(&b.close(), true);
    assert_eq!(found(&image, Severity::Error), [""; 0]);
    assert!(found(&image, Severity::Warning).contains(&"marker.stale"));
    let back = serves("a stale marker", &image);
    assert_eq!(back.image.bytes(1024 + 0x63, 1)[0] & 0x20, 0, "the marker is gone");
    assert_eq!(found(&back.image, Severity::Warning), [""; 0]);
}

/// The same where no mount can have been: the other host slot is empty, so it was lost.
#[test]
fn a_clean_header_with_the_marker_and_no_mount() {
    let image = with_marker(&base_image(), true);
    let error = refused("no mount", &image);
    let text = error.to_string();
    assert!(text.contains("host B") && text.contains("--discard-log"), "{text}");
    assert!(found(&image, Severity::Error).contains(&"slot.lost"));
}

/// No superblock at all, under either state of the header: its copy is put back.
#[test]
fn a_superblock_that_is_gone() {
    for image in [base_image(), dirty()] {
        let mut gone = image.clone();
        gone.write(1024, &[0; 1024]);
        assert_eq!(found(&gone, Severity::Error), [""; 0]);
        assert!(found(&gone, Severity::Warning).contains(&"super.missing"));
        let back = serves("no superblock", &gone);
        assert_eq!(back.tree.nodes.len(), serves("whole", &image).tree.nodes.len());
    }
}
