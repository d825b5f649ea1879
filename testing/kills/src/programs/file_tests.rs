use super::*;

fn file() -> File {
    let mut file = File::new("f");
    file.made = true;
    file.changed(Change::Write { offset: 0, len: 5000, tag: 0x1111_1111 });
    file.synced(false);
    file.changed(Change::Write { offset: 100, len: 50, tag: 0x2222_2222 });
    file
}

fn judged(file: &File, content: &[u8], cut: bool, under_way: Option<Pending>) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(file.name());
    std::fs::write(&path, content).expect("it is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("its own");
    file.clone().judge(dir.path(), cut, under_way)
}

#[test]
fn what_was_synced_must_be_there() {
    let file = file();
    assert_eq!(judged(&file, &[b'1'; 5000], true, None), None);
    assert_eq!(judged(&file, &file.content, true, None), None);
    judged(&file, &[b'1'; 4999], true, None).expect("too short");
    judged(&file, &[b'1'; 5001], true, None).expect("too long");
    let mut other = file.content.clone();
    other[4999] = b'2';
    judged(&file, &other, true, None).expect("nobody wrote that there");
    other[4999] = 0;
    judged(&file, &other, true, None).expect("nor that");
}

#[test]
fn what_was_written_must_be_there_while_the_host_lives() {
    let file = file();
    assert_eq!(judged(&file, &file.content, false, None), None);
    judged(&file, &[b'1'; 5000], false, None).expect("it is older");
    let write = Change::Write { offset: 4990, len: 20, tag: 0x3333_3333 };
    let mut later = file.content.clone();
    write.apply(&mut later);
    judged(&file, &later, false, None).expect("it is newer");
    assert_eq!(judged(&file, &later, false, Some(Pending::Change(write))), None);
    assert_eq!(judged(&file, &file.content, false, Some(Pending::Change(write))), None);
}

#[test]
fn a_name_that_was_promised_must_be_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = file();
    file.clone().judge(dir.path(), true, None).expect("it is gone");
    assert_eq!(File::new("g").judge(dir.path(), true, None), None, "it was never synced");
    file.number += 1;
    std::fs::write(dir.path().join("f.0"), &file.content).expect("it is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(dir.path().join("f.0"), mode).expect("its own");
    assert_eq!(file.clone().judge(dir.path(), true, None), None, "the old name is enough");
    file.synced(false);
    file.judge(dir.path(), true, None).expect("the new name is promised");
}

#[test]
fn bytes_behind_the_end_are_zero() {
    let base = [b'1'; 10];
    let changes = [Change::Truncate(4), Change::Write { offset: 20, len: 4, tag: 0 }];
    let mut found = base.to_vec();
    changes.iter().for_each(|change| change.apply(&mut found));
    assert_eq!(found[3..6], [b'1', 0, 0]);
    assert_eq!(unexplained(&base, &changes, &found), None);
    found[2] = 0;
    unexplained(&base, &changes, &found).expect("it was not cut off so far");
}
