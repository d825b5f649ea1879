use super::*;
use crate::service_record::RawService;
use crate::spec::{check, fields, says};
use crate::{DecodeError, ServiceRecord};
use siftfs_base::TxnSeq;

pub(crate) fn static_header() -> StaticHeader {
    let lane = |id: u16, offset| LaneEntry {
        id: LaneId(id),
        medium: LaneMedium::Block,
        offset,
        len: 1 << 20,
        owner: 0,
    };
    StaticHeader {
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        volume: *b"volume-uuid-0001",
        area_uuid: *b"area-uuid-000001",
        area_offset: 0,
        area_len: 16 << 20,
        journal_offset: (16 << 20) + HEADER_LEN,
        journal_len: 1 << 20,
        header_offsets: [16 << 20, (19 << 20) + HEADER_LEN],
        lanes: vec![lane(0, (17 << 20) + HEADER_LEN), lane(1, (18 << 20) + HEADER_LEN)],
        redo: None,
    }
}

/// The header of a log with a redo lane behind its lanes.
pub(crate) fn redo_header() -> StaticHeader {
    let redo = RedoRegion { offset: (19 << 20) + HEADER_LEN, len: 1 << 20 };
    StaticHeader {
        incompat: INCOMPAT_REDO_LANE,
        header_offsets: [16 << 20, (20 << 20) + HEADER_LEN],
        redo: Some(redo),
        ..static_header()
    }
}

/// The header of a log whose area lies on another device.
pub(crate) fn external_header() -> StaticHeader {
    let area = 16 << 20;
    let mut header = StaticHeader { incompat: INCOMPAT_EXTERNAL_LOG, ..static_header() };
    header.journal_offset -= area;
    header.header_offsets = header.header_offsets.map(|o| o - area);
    header.lanes.iter_mut().for_each(|l| l.offset -= area);
    header
}

/// The header of a log whose journal repeats staged data.
pub(crate) fn copy_header() -> StaticHeader {
    StaticHeader { incompat: INCOMPAT_JOURNAL_COPY, ..static_header() }
}

pub(crate) fn host_record() -> HostRecord {
    HostRecord {
        seq: 5,
        state: HostState::Mounted,
        key: EpochKey { epoch: Epoch(4), nonce: 1 },
        lane_key: EpochKey { epoch: Epoch(3), nonce: 2 },
        journal_key: EpochKey { epoch: Epoch(4), nonce: 3 },
        lsn_floor: Lsn(99),
        area_crc: 0x1234,
        lane_ends: vec![OPEN_END, 8192],
        lane_heads: vec![4096, 0],
        superblock: Box::new([9; 1024]),
        registry: None,
    }
}

pub(crate) fn service_record() -> ServiceRecord {
    ServiceRecord {
        seq: 6,
        epoch: Epoch(4),
        journal_tail: 12288,
        next_seq: TxnSeq(3),
        ops_cut: Lsn(50),
        staged_cut: Lsn(51),
        lane_tails: vec![4096, 0],
    }
}

#[test]
fn records_come_back() {
    for s in [static_header(), external_header(), copy_header()] {
        assert_eq!(StaticHeader::decode(&s.encode()).unwrap(), s);
    }
    let h = host_record();
    assert_eq!(HostRecord::decode(&h.encode()).unwrap(), h);
    let r = service_record();
    assert_eq!(ServiceRecord::decode(&r.encode()).unwrap(), r);
}

#[test]
fn every_byte_counts() {
    let blocks = [static_header().encode(), host_record().encode(), service_record().encode()];
    for good in blocks {
        for i in 0..BLOCK_SIZE {
            let mut bad = good.clone();
            bad[i] ^= 1;
            assert!(matches!(StaticHeader::decode(&bad), Err(DecodeError::Invalid(_))));
            assert!(matches!(HostRecord::decode(&bad), Err(DecodeError::Invalid(_))));
            assert!(matches!(ServiceRecord::decode(&bad), Err(DecodeError::Invalid(_))));
        }
    }
    assert_eq!(HostRecord::decode(&[0; BLOCK_SIZE]), Err(Invalid("no magic number").into()));
}

pub(crate) fn resealed(
    mut block: Box<[u8; BLOCK_SIZE]>,
    at: usize,
    bytes: &[u8],
) -> Box<[u8; BLOCK_SIZE]> {
    block[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crate::checksum(0, &block[..BLOCK_SIZE - 4]);
    block[BLOCK_SIZE - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

#[test]
fn other_versions_are_refused() {
    let gone = |e| matches!(e, Err(DecodeError::Stop(Error::Incompatible(_))));
    for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
        let other = |b| resealed(b, 8, &version.to_le_bytes());
        assert!(gone(StaticHeader::decode(&other(static_header().encode())).map(|_| ())));
        assert!(gone(ServiceRecord::decode(&other(service_record().encode())).map(|_| ())));
    }
    for version in [FORMAT_VERSION - 1, REGISTRY_VERSION + 1] {
        let other = resealed(host_record().encode(), 8, &version.to_le_bytes());
        assert!(gone(HostRecord::decode(&other).map(|_| ())));
    }
    let mut feature = static_header();
    feature.incompat = 1 << 31;
    assert!(gone(StaticHeader::decode(&feature.encode_unchecked()).map(|_| ())));
    feature = StaticHeader { compat: 1 << 31, ro_compat: 2, ..static_header() };
    let read = StaticHeader::decode(&feature.encode()).unwrap();
    assert_eq!(read.unknown_ro_compat(), 2);
}

#[test]
fn the_header_says_what_the_journal_holds() {
    assert_eq!(static_header().journal_data(), JournalData::Ref);
    assert_eq!(external_header().journal_data(), JournalData::Ref);
    assert_eq!(copy_header().journal_data(), JournalData::Copy);
    for form in [JournalData::Ref, JournalData::Copy] {
        assert_eq!(form.to_string().parse::<JournalData>().unwrap(), form);
    }
    assert!("copies".parse::<JournalData>().is_err());
}

#[test]
fn impossible_geometry_is_refused() {
    let overlap = StaticHeader { journal_len: 2 << 20, ..static_header() };
    let unaligned = StaticHeader { area_len: 1000, ..static_header() };
    let empty = StaticHeader { journal_len: 0, ..static_header() };
    let huge = StaticHeader { area_len: u64::MAX - 4095, ..static_header() };
    let far = StaticHeader { area_offset: 4096, ..external_header() };
    for bad in [overlap, unaligned, empty, huge, far] {
        assert!(matches!(
            StaticHeader::decode(&bad.encode_unchecked()),
            Err(DecodeError::Stop(Error::Corrupt { .. }))
        ));
        let written = std::panic::catch_unwind(|| bad.encode());
        assert!(written.is_err(), "a header that no reader takes was written");
    }
}

/// A superblock carries its own crc32c, so that any two of them differ by a multiple of the
/// polynomial: a record torn between them must be seen all the same.
#[test]
fn a_tear_between_two_valid_superblocks_is_seen() {
    let superblock = |fill: u8| {
        let mut bytes = [fill; 1024];
        let crc = !siftfs_base::crc32c(&bytes[..1020]);
        bytes[1020..].copy_from_slice(&crc.to_le_bytes());
        Box::new(bytes)
    };
    let old = HostRecord { superblock: superblock(1), ..host_record() };
    let new = HostRecord { superblock: superblock(2), ..host_record() };
    let (old, mut torn) = (old.encode(), new.encode());
    let range = (0..BLOCK_SIZE - 1024).find(|at| torn[*at..at + 1024] == *superblock(2));
    let at = range.expect("the superblock is in the record");
    torn[at..at + 1024].copy_from_slice(&old[at..at + 1024]);
    assert!(
        matches!(HostRecord::decode(&torn), Err(DecodeError::Invalid(_))),
        "a torn record passed"
    );
}

/// The static part is that of the specification, byte by byte.
#[test]
fn the_static_part_is_the_specifications() {
    let words = [
        ("compat", "compatible features"),
        ("ro_compat", "read-only compatible"),
        ("incompat", "incompatible"),
        ("lane_count", "number of lanes"),
        ("area_len", "area length"),
        ("journal_len", "journal length"),
        ("header_offsets", "offsets of header copies"),
        ("lanes", "lane table"),
    ];
    let all = fields!(RawStatic {
        magic,
        version,
        compat,
        ro_compat,
        incompat,
        lane_count,
        reserved0,
        volume,
        area_uuid,
        area_offset,
        area_len,
        journal_offset,
        journal_len,
        header_offsets,
        reserved1,
        lanes,
        reserved2,
        crc,
    });
    check("Static part:", 0, &all, &words);
    let all = fields!(RawLane { id, medium, kind, state, offset, len, owner, reserved });
    check("Lane table row:", 0, &all, &[("kind", "type"), ("len", "length")]);
}

/// So is the host record ...
#[test]
fn the_host_record_is_the_specifications() {
    let words = [
        ("lane_epoch", "epoch and nonce of the lanes'"),
        ("lane_nonce", "epoch and nonce of the lanes'"),
        ("journal_epoch", "epoch and nonce of the journal's"),
        ("journal_nonce", "epoch and nonce of the journal's"),
        ("area_crc", "crc32c of the first 1020 bytes"),
        ("lane_count", "number of lanes"),
        ("lane_ends", "per lane, the end"),
        ("lane_heads", "per lane, its head"),
    ];
    let all = fields!(RawHost {
        magic,
        version,
        state,
        seq,
        epoch,
        nonce,
        lane_epoch,
        lane_nonce,
        journal_epoch,
        journal_nonce,
        lsn_floor,
        area_crc,
        lane_count,
        lane_ends,
        lane_heads,
        reserved0,
        superblock,
        registry,
        reserved1,
        crc,
    });
    check("Host record:", 0, &all, &words);
}

/// ... and the service record.
#[test]
fn the_service_record_is_the_specifications() {
    let words = [
        ("lane_count", "number of lanes"),
        ("next_seq", "sequence number"),
        ("staged_cut", "staged cut"),
        ("lane_tails", "per lane, tail"),
    ];
    let all = fields!(RawService {
        magic,
        version,
        lane_count,
        seq,
        epoch,
        journal_tail,
        next_seq,
        ops_cut,
        staged_cut,
        lane_tails,
        reserved,
        crc,
    });
    check("Service record:", 0, &all, &words);
}

#[test]
fn versions_are_those_of_the_specification() {
    for heading in ["Static part:", "Service record:"] {
        says(heading, 8, &format!("version, {FORMAT_VERSION}"));
    }
    let host = format!("version, {FORMAT_VERSION}; {REGISTRY_VERSION} if it names a registry");
    says("Host record:", 8, &host);
    says("### With a record area", 8, &format!("format version, {FORMAT_VERSION}"));
}

/// A volume's own flag is told, and does not stand for any other.
#[test]
fn reserved_blocks_are_a_compatible_feature() {
    let header = StaticHeader { compat: COMPAT_RESERVED, ..static_header() };
    let read = StaticHeader::decode(&header.encode()).expect("valid");
    assert!(read.reserved() && !static_header().reserved());
    let other = StaticHeader { compat: !COMPAT_RESERVED, ..static_header() };
    let read = StaticHeader::decode(&other.encode()).expect("valid");
    assert!(!read.reserved());
}

#[test]
fn a_redo_lane_is_a_region_of_its_own() {
    let header = redo_header();
    assert_eq!(StaticHeader::decode(&header.encode()), Ok(header.clone()));
    assert!(header.regions().iter().any(|(name, _, len)| name == "redo lane" && *len == 1 << 20));
    let redo = |offset, len| Some(RedoRegion { offset, len });
    let lane = header.lanes[1].offset;
    let sixteen = (0..16).map(|id| LaneEntry { id: LaneId(id), ..header.lanes[0] }).collect();
    let wrong = [
        StaticHeader { redo: None, ..header.clone() },
        StaticHeader { incompat: 0, ..header.clone() },
        StaticHeader { redo: redo(lane, 1 << 20), ..header.clone() },
        StaticHeader { redo: redo((19 << 20) + HEADER_LEN, 64 << 10), ..header.clone() },
        StaticHeader { redo: redo((19 << 20) + HEADER_LEN + 1, 1 << 20), ..header.clone() },
        StaticHeader { lanes: sixteen, ..header.clone() },
    ];
    for header in wrong {
        assert!(matches!(header.check(), Err(Error::Corrupt { .. })), "{header:?}");
    }
    for header in [StaticHeader { redo: None, ..redo_header() }, header] {
        let whole = header.redo.is_some();
        let read = StaticHeader::decode(&header.encode_unchecked());
        assert_eq!(read.is_ok(), whole, "{read:?}");
    }
}
