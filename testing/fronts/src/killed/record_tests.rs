use super::*;

#[test]
fn a_record_is_whole_or_broken() {
    let stamp = Stamp { writer: 7, item: 12, version: 3 };
    let record = stamp.record(512);
    assert_eq!(record.len(), 512);
    assert_eq!(read(&record), Found::Whole(stamp));
    assert_eq!(read(&[0; 512]), Found::Nothing);
    assert_eq!(read(&[]), Found::Nothing);
    let newer = Stamp { version: 4, ..stamp }.record(512);
    for at in 0..512 {
        let mut torn = record.clone();
        torn[at] ^= 1;
        assert_eq!(read(&torn), Found::Broken, "byte {at}");
        let parts = [&record[..at], &newer[at..]].concat();
        let whole = [Found::Whole(stamp), Found::Whole(Stamp { version: 4, ..stamp })];
        assert_eq!(whole.contains(&read(&parts)), parts == record || parts == newer, "cut at {at}");
        let cut = [&record[..at], &[0; 512][at..]].concat();
        assert_eq!(read(&cut), if at == 0 { Found::Nothing } else { Found::Broken }, "{at} bytes");
    }
}
