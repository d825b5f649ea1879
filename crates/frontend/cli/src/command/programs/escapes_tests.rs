use super::*;

#[test]
fn the_memory_has_the_librarys_form_and_cannot_be_cut() {
    let file = memory().unwrap();
    assert_eq!(read(&file).unwrap()[0], MAGIC);
    assert!(file.set_len(8).is_err() && file.set_len(1 << 20).is_err());
}

#[test]
fn what_escaped_is_told_by_name_and_number() {
    let mut words = vec![0; LEN / 8];
    let lines = told(&words);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("no process"), "{lines:?}");
    words[Word::Processes as usize] = 2;
    words[Word::Missing as usize] = 1;
    let at = CALLS.iter().position(|call| call.name == "flock").unwrap();
    words[Word::Calls as usize + at] = 7;
    let lines = told(&words);
    let row: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(row, ["7", "flock", "73"], "{lines:?}");
    assert!(lines[2].contains("2 processes") && lines[2].contains("5 of 6"), "{lines:?}");
}
