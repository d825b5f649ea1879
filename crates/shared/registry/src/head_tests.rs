use super::*;

const HEAD: Head = Head { registry: [1; 16], volume: [2; 16] };

#[test]
fn a_head_is_that_of_one_registry_of_one_volume() {
    assert_eq!(HEAD.check(&HEAD.encode()), Ok(()));
    let others = [Head { registry: [3; 16], ..HEAD }, Head { volume: [3; 16], ..HEAD }];
    for other in others {
        assert!(matches!(other.check(&HEAD.encode()), Err(Error::Refused(_))));
    }
    assert!(matches!(HEAD.check(&[0; SLOT]), Err(Error::Refused(_))));
}

#[test]
fn every_byte_counts() {
    for at in 0..SLOT {
        let mut bad = HEAD.encode();
        bad[at] ^= 1;
        assert!(matches!(HEAD.check(&bad), Err(Error::Refused(_))), "byte {at}");
    }
    for at in [8, 12] {
        let mut newer = HEAD.encode();
        newer[at] += 1;
        seal(&mut newer);
        assert!(matches!(HEAD.check(&newer), Err(Error::Incompatible(_))), "byte {at}");
    }
}
