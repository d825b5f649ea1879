//! Differences are found, and reported so that their cause can be searched for.

use super::*;

#[test]
fn data_that_differ_are_placed() {
    let want = Ok(Reply::Data(vec![0; 5000]));
    let mut data = vec![0; 5000];
    assert_eq!(plain_difference(&want, &Ok(Reply::Data(data.clone()))), None);
    data[4096..4100].copy_from_slice(&[7, 0, 8, 9]);
    let said = plain_difference(&want, &Ok(Reply::Data(data))).expect("they differ");
    assert!(said.starts_with("3 bytes differ from byte 4096 of the answer to 4099:"), "{said}");
    assert!(said.contains("found [7, 0, 8, 9, 0,"), "{said}");
}

#[test]
fn other_lengths_and_errors_are_said_as_they_are() {
    let want = Ok(Reply::Data(vec![1; 3]));
    let short = plain_difference(&want, &Ok(Reply::Data(vec![1; 2]))).expect("they differ");
    assert_eq!(short, "3 bytes expected, 2 found; as far as both go, they are the same");
    let other = plain_difference(&want, &Ok(Reply::Data(vec![1, 2]))).expect("they differ");
    assert!(other.starts_with("3 bytes expected, 2 found; 1 bytes differ from byte 1"), "{other}");
    let error = plain_difference(&want, &Err(Error::Posix(libc::EIO))).expect("they differ");
    assert!(error.contains("found Err("), "{error}");
}
