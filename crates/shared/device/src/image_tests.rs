use super::*;

#[test]
fn clone_is_independent() {
    let mut a = Image::new(100_000);
    a.write(16_000, &[1; 1000]);
    let b = a.clone();
    a.write(16_500, &[2; 10]);
    assert_eq!(b.bytes(16_000, 1000), vec![1; 1000]);
    assert_eq!(a.bytes(16_500, 10), vec![2; 10]);
    assert_ne!(a, b);
    a.write(16_500, &[1; 10]);
    assert_eq!(a, b);
}

#[test]
fn zeroes_take_no_memory_and_compare_equal() {
    let mut a = Image::new(1 << 30);
    a.write(12345, &[0; 100_000]);
    assert_eq!(a.resident(), 0);
    let b = a.clone();
    a.write(0, &[1]);
    a.write(0, &[0]);
    assert_ne!(a.resident(), 0);
    assert_eq!(a, b);
}

#[test]
fn save_and_load() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut a = Image::new(1_000_001);
    a.write(999_990, b"end of file");
    a.write(0, b"start");
    a.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1_000_001);
    assert_eq!(Image::load(&path).unwrap(), a);
}

#[test]
#[should_panic(expected = "beyond the image")]
fn refuses_out_of_range() {
    Image::new(10).write(8, &[0; 3]);
}
