use super::*;

const OFFER: (u32, u32) = (abi::FUSE_INIT_EXT, abi::FUSE2_OVER_IO_URING);

#[test]
fn what_is_wanted_and_what_is_offered() {
    let choose = |wanted, (flags, flags2)| Transport::choose(wanted, flags, flags2);
    let offered = choose(Requests::Auto, OFFER).unwrap();
    assert!(offered.is_ring());
    let report = offered.state().report();
    assert_eq!((report.kind, report.queues), ("ring", 0), "none is there yet");
    assert!(choose(Requests::Ring, OFFER).unwrap().is_ring());
    let device = choose(Requests::Device, OFFER).unwrap();
    assert!(!device.is_ring());
    assert_eq!(device.state().report().why, "the option requests=device");
    // The second word counts only if the first says that it is there.
    for offer in [(0, 0), (0, OFFER.1), (OFFER.0, 0)] {
        let auto = choose(Requests::Auto, offer).unwrap();
        assert!(!auto.is_ring());
        assert!(!auto.state().report().why.is_empty());
        let error = choose(Requests::Ring, offer).err().unwrap();
        assert!(error.starts_with("requests=ring: "), "{error}");
    }
}
