use super::*;

#[test]
fn a_link_comes_back_and_nothing_else_is_one() {
    let link = AreaLink { volume: *b"volume-uuid-0001", epoch: Epoch(7) };
    let mut superblock = [0; 1024];
    assert_eq!(AreaLink::of_super(&superblock), None);
    superblock[LINK_OFFSET..LINK_OFFSET + LINK_LEN].copy_from_slice(&link.encode());
    assert_eq!(AreaLink::of_super(&superblock), Some(link));
    assert_eq!(AreaLink::of_super(&superblock[..1000]), None);
    superblock[LINK_OFFSET] ^= 1;
    assert_eq!(AreaLink::of_super(&superblock), None);
}

#[test]
fn uuids_are_shown_as_usual() {
    let uuid = std::array::from_fn(|i| i as u8 * 17);
    assert_eq!(show_uuid(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
}

#[test]
fn places_are_those_of_the_specification() {
    let all = crate::spec::fields!(RawLink { magic, volume, epoch, reserved });
    crate::spec::check("**The link**", LINK_OFFSET, &all, &[]);
}
