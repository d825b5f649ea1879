use super::*;
use crate::rng::Rng;

/// Random writes, zeros and sizes agree with a plain vector.
#[test]
fn agrees_with_a_vector() {
    let mut rng = Rng::new(1);
    let mut content = Content::default();
    let mut naive: Vec<u8> = Vec::new();
    for i in 0..2000u64 {
        let (a, len) = (rng.below(20_000), rng.below(9_000));
        match rng.below(4) {
            0 | 1 => {
                let data = crate::rng::pattern(i, a, len);
                content.write(a, &data);
                if len > 0 {
                    let end = (a + len) as usize;
                    naive.resize(naive.len().max(end), 0);
                    naive[a as usize..end].copy_from_slice(&data);
                }
            }
            2 => {
                content.zero(a, (a + len).min(content.size()));
                let end = ((a + len) as usize).min(naive.len());
                if (a as usize) < end {
                    naive[a as usize..end].fill(0);
                }
            }
            _ => {
                content.resize(a);
                naive.resize(a as usize, 0);
            }
        }
        assert_eq!(content.size(), naive.len() as u64);
        assert_eq!(content.read(0, u64::MAX), naive);
        let (s, e) = (a.min(content.size()), (a + len).min(content.size()));
        assert_eq!(content.read(s, e - s), naive[s as usize..e as usize]);
        assert_eq!(content.is_zero(s, e), naive[s as usize..e as usize].iter().all(|b| *b == 0));
    }
}

#[test]
fn finds_the_first_difference() {
    let mut a = Content::default();
    a.write(0, &[1; 9000]);
    let mut b = a.clone();
    assert_eq!(a.first_difference(&b), None);
    b.write(5000, &[2]);
    assert_eq!(a.first_difference(&b), Some(5000));
    let mut c = a.clone();
    c.resize(10_000);
    assert_eq!(a.first_difference(&c), Some(9000));
}
