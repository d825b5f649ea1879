use super::*;
use siftfs_device::URGENT_MAX;

#[test]
fn pauses_get_longer_as_less_is_free() {
    let (took, small, bulk) = (Duration::from_millis(1), 8192, URGENT_MAX as u64 + 4096);
    let [least, most] = BULK_PAUSES.map(|n| took.mul_f64(n));
    let pauses =
        |fill: f64| (Pause::at(fill, bulk).after(took), Pause::at(fill, small).after(took));
    assert_eq!(pauses(0.0), (least, Duration::ZERO));
    assert_eq!(pauses(0.5), (least, Duration::ZERO), "half of it is free");
    assert_eq!(pauses(0.625), (least + (most - least) / 4, Duration::ZERO));
    assert_eq!(pauses(0.875), (most, SMALL_PAUSE / 4));
    assert_eq!(pauses(1.0), (most, SMALL_PAUSE));
    assert_eq!(pauses(1.5), pauses(1.0), "an estimate may say more than there is");
}

#[test]
fn short_pauses_are_slept_together() {
    let (owed, part) = (PauseDebt::default(), PauseDebt::LEAST / 4);
    assert_eq!(owed.add(Duration::ZERO), Duration::ZERO);
    for _ in 0..3 {
        assert_eq!(owed.add(part), Duration::ZERO);
    }
    assert_eq!(owed.add(part), PauseDebt::LEAST);
    assert_eq!(owed.add(part), Duration::ZERO, "what was slept is owed no more");
    assert_eq!(owed.add(SMALL_PAUSE), part + SMALL_PAUSE);
}

#[test]
fn several_bulk_callers_take_together_what_one_would() {
    let company = BulkCallers::default();
    let one = company.join();
    assert_eq!(Pause::Times(2.0).among(one.count()), Pause::Times(2.0));
    let other = company.join();
    assert_eq!(Pause::Times(2.0).among(other.count()), Pause::Times(5.0), "a sixth each");
    assert_eq!(Pause::Fixed(SMALL_PAUSE).among(other.count()), Pause::Fixed(SMALL_PAUSE));
    drop(one);
    assert_eq!(other.count(), 1);
}
