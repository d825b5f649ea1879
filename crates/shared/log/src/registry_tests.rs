use super::*;
use crate::header::tests::{host_record, resealed};
use crate::spec::{check, fields};
use crate::{DecodeError, FORMAT_VERSION, HostRecord, HostState, REGISTRY_VERSION};

pub(crate) fn name() -> RegistryName {
    RegistryName::new([5; 16], Path::new("/var/lib/logs")).unwrap()
}

pub(crate) fn naming() -> HostRecord {
    HostRecord { registry: Some(name()), ..host_record() }
}

/// A record that names none is the bytes that it was before there were any.
#[test]
fn a_record_that_names_one_has_a_version_of_its_own() {
    let version = |record: &HostRecord| record.encode()[8..12].to_vec();
    assert_eq!(version(&host_record()), FORMAT_VERSION.to_le_bytes());
    assert_eq!(version(&naming()), REGISTRY_VERSION.to_le_bytes());
    assert_eq!(HostRecord::decode(&naming().encode()).unwrap(), naming());
}

#[test]
fn a_path_that_cannot_be_is_refused() {
    let long = |len| format!("/{}", "x".repeat(len - 1));
    let new = |path: &str| RegistryName::new([1; 16], Path::new(path));
    assert_eq!(new(&long(MAX_REGISTRY_PATH)).unwrap().dir(), Path::new(&long(MAX_REGISTRY_PATH)));
    for bad in ["", "relative/dir", "/a\0b", &long(MAX_REGISTRY_PATH + 1)] {
        assert!(matches!(new(bad), Err(Error::Refused(_))), "{bad:?}");
    }
    let longest = HostRecord { registry: Some(new(&long(1000)).unwrap()), ..host_record() };
    assert_eq!(HostRecord::decode(&longest.encode()).unwrap(), longest);
    let stops = |at: usize, bytes: &[u8]| {
        let decoded = HostRecord::decode(&resealed(naming().encode(), at, bytes));
        assert!(
            matches!(decoded, Err(DecodeError::Stop(Error::Corrupt { .. }))),
            "{at} {bytes:?}: {decoded:?}"
        );
    };
    for len in [0u32, MAX_REGISTRY_PATH as u32 + 1, u32::MAX] {
        stops(2064, &len.to_le_bytes());
    }
    stops(2068, b"r");
    stops(2070, b"\0");
}

/// Clean means that nothing is missing in the area (rule R36): neither reader nor writer takes it.
#[test]
fn r36_a_clean_record_names_none() {
    let clean = 1u32.to_le_bytes();
    let decoded = HostRecord::decode(&resealed(naming().encode(), 12, &clean));
    assert!(matches!(decoded, Err(DecodeError::Stop(Error::Corrupt { .. }))), "{decoded:?}");
    let clean = HostRecord { state: HostState::Clean, ..naming() };
    assert!(std::panic::catch_unwind(|| clean.encode()).is_err());
}

#[test]
fn the_name_is_the_specifications() {
    let all = fields!(RawRegistry { uuid, path_len, path });
    check("Registry of a host record:", 2048, &all, &[("path_len", "length")]);
}
