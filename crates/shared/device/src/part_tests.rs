use super::*;
use crate::{Cut, Fault, FaultDevice, OpClass};

const HALF: u64 = 64 << 10;

fn halves() -> (Arc<FaultDevice>, Part, Part) {
    let whole = Arc::new(FaultDevice::new(2 * HALF, 1));
    let (a, b) = (Part::new(whole.clone(), 0..HALF), Part::new(whole.clone(), HALF..2 * HALF));
    (whole, a, b)
}

fn byte(whole: &FaultDevice, cut: Cut, at: u64) -> u8 {
    whole.image(cut).bytes(at, 1)[0]
}

#[test]
fn a_flush_covers_its_own_part_alone() {
    let (whole, a, b) = halves();
    a.write(0, &[1; 512], false).unwrap();
    b.write_batch(&[WriteOp { offset: 0, data: &[2; 512] }]).unwrap();
    b.flush().unwrap();
    assert_eq!(byte(&whole, Cut::LoseAll, 0), 0, "the other part's write is still volatile");
    assert_eq!(byte(&whole, Cut::LoseAll, HALF), 2);
    a.flush().unwrap();
    assert_eq!(byte(&whole, Cut::LoseAll, 0), 1);
    a.write(512, &[3; 512], false).unwrap();
    whole.flush().unwrap();
    assert_eq!(byte(&whole, Cut::LoseAll, 512), 3, "a flush of the whole covers both");
}

#[test]
fn one_part_can_keep_what_the_other_loses() {
    let (whole, a, b) = halves();
    a.write(0, &[1; 512], false).unwrap();
    b.write(0, &[2; 512], false).unwrap();
    let left = |cut| (byte(&whole, cut, 0), byte(&whole, cut, HALF));
    assert_eq!(left(Cut::KeepBefore(HALF)), (1, 0));
    assert_eq!(left(Cut::KeepFrom(HALF)), (0, 2));
}

#[test]
fn a_fault_can_hit_the_flushes_of_one_part() {
    let (whole, a, b) = halves();
    whole.inject(Fault::fail(OpClass::Flush, libc::EIO).within(HALF..2 * HALF));
    a.flush().unwrap();
    assert!(b.flush().is_err());
}

#[test]
fn a_part_has_borders() {
    let (_, a, b) = halves();
    assert_eq!((a.size(), b.size()), (HALF, HALF));
    assert!(a.write(HALF - 1, &[0; 2], false).is_err());
    assert!(b.read(HALF, &mut [0]).is_err());
    assert!(a.write_batch(&[WriteOp { offset: HALF, data: &[1] }]).is_err());
}

#[test]
fn hints_reach_the_whole() {
    let (whole, a, b) = halves();
    a.urgent(true);
    b.expect_urgent(Duration::from_millis(7));
    b.give_way(Duration::ZERO);
    let stats = whole.stats();
    assert_eq!((stats.urgent, stats.pauses), (1, 1));
    assert_eq!(stats.expected, Some(Duration::from_millis(7)));
    a.urgent(false);
    assert_eq!(whole.stats().urgent, 0);
}
