use super::*;

const TERMS: Terms = Terms { gid: [9; 16], queue: 0x12_3456, first: MAX_24, lid: 7, mtu: 5 };

/// Terms with a change, their checksum right, and what is made of them.
fn changed(change: impl FnOnce(&mut Raw)) -> Result<Terms> {
    let mut raw = Raw::read_from_bytes(&TERMS.encode()).unwrap();
    change(&mut raw);
    raw.crc = raw.computed_crc().into();
    Terms::decode(&zerocopy::transmute!(raw), "the peer")
}

#[test]
fn terms_read_back_as_they_were_written() {
    assert_eq!(Terms::decode(&TERMS.encode(), "the peer").unwrap(), TERMS);
    assert_eq!(changed(|_| ()).unwrap(), TERMS);
    assert_eq!(TERMS_LEN, 56, "the page has its table of bytes");
}

#[test]
fn each_wrong_field_is_refused_with_its_reason() {
    type Change = fn(&mut Raw);
    let cases: [(Change, &str); 8] = [
        (|r| r.magic = *b"SiftLink", "they are none"),
        (|r| r.version = 2.into(), "in version 2"),
        (|r| r.buffers = u32::MAX.into(), "has 4294967295 buffers of 32768 bytes"),
        (|r| r.buffer_len = 0.into(), "of 0 bytes"),
        (|r| r.queue = (1 << 24).into(), "more than 24 bits"),
        (|r| r.first = u32::MAX.into(), "more than 24 bits"),
        (|r| r.mtu = 0.into(), "no such packet length"),
        (|r| r.mtu = 6.into(), "no such packet length"),
    ];
    for (change, why) in cases {
        let error = changed(change).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("the peer"), "{error}");
    }
}

#[test]
fn terms_that_are_damaged_at_any_byte_are_refused() {
    let good = TERMS.encode();
    for at in 0..TERMS_LEN {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good;
            bytes[at] ^= flip;
            assert!(Terms::decode(&bytes, "the peer").is_err(), "byte {at} ^ {flip}");
        }
    }
}
