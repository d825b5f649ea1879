use super::*;

#[test]
fn sources_are_what_they_were_made_of() {
    let s = Src::staged(7, u32::MAX - 5);
    assert_eq!(s.origin(), Origin::Staged { record: 7, offset: u32::MAX - 5 });
    assert_eq!(s.skip(5).origin(), Origin::Staged { record: 7, offset: u32::MAX });
    let i = Src::image(u32::MAX);
    assert_eq!(i.skip(4095).origin(), Origin::Image { slot: u32::MAX, offset: 4095 });
    assert_eq!(Src::zero(9).skip(1 << 40).origin(), Origin::Zero { txn: 9 });
    assert!(s < i && i < Src::zero(0), "staged before journaled");
}

#[test]
fn only_what_goes_on_is_joined() {
    let s = Src::staged(7, 100);
    assert_eq!(s.join(50, Src::staged(7, 150)), Some(s));
    assert_eq!(s.join(50, Src::staged(7, 151)), None);
    assert_eq!(s.join(50, Src::staged(8, 150)), None);
    assert_eq!(Src::image(3).join(4096, Src::image(4)), None);
    // The older transaction's space returns first, so its zeroes are written first.
    assert_eq!(Src::zero(4).join(50, Src::zero(2)), Some(Src::zero(2)));
}
