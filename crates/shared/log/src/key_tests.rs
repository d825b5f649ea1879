use super::*;
use crate::MAX_LANES;
use std::collections::BTreeSet;

/// The vector of eight bytes in SipHash's paper: logs that were written are read with these keys.
#[test]
fn keys_are_of_siphash() {
    let epoch = EpochKey { epoch: Epoch(0x0f0e_0d0c_0b0a_0908), nonce: 0x0706_0504_0302_0100 };
    let key = epoch.of(0x0706_0504_0302_0100);
    assert_eq!(key, LogKey { epoch: epoch.epoch, nonce: 0x93f5_f579_9a93_2462 });
}

#[test]
fn r35_each_log_of_each_epoch_has_its_own() {
    let lanes = |epoch: EpochKey| (0..MAX_LANES as u16).map(move |lane| epoch.lane(LaneId(lane)));
    let mut seen = BTreeSet::new();
    for (epoch, nonce) in [(1, 1), (2, 1), (1, 2)] {
        let epoch = EpochKey { epoch: Epoch(epoch), nonce };
        for key in lanes(epoch).chain([epoch.journal()]) {
            assert!(seen.insert(key.nonce) && key.nonce != nonce, "{key:?}");
        }
    }
}
