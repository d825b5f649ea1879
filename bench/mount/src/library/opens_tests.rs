use super::*;

#[test]
fn every_file_is_opened_and_what_is_printed_is_read() {
    let tmp = tempfile::tempdir().expect("a directory");
    prepare(tmp.path()).expect("files");
    let names: Vec<_> =
        fs::read_dir(tmp.path()).expect("a directory").map(|e| e.expect("a name").path()).collect();
    assert_eq!(names.len(), FILES);
    let (opened, took) = look(&names, Duration::from_millis(1)).expect("files that are there");
    assert!(opened > 0 && opened.is_multiple_of(FILES as u64), "whole turns: {opened}");
    let text = format!("{opened} {}\n", took.as_secs_f64());
    assert_eq!(counted(&text), Some((opened, took.as_secs_f64())));
}

#[test]
fn no_files_are_an_error_and_no_endless_loop() {
    assert!(look(&[], Duration::from_secs(3600)).is_err());
    let gone = [PathBuf::from("/nonexistent/file")];
    assert!(look(&gone, Duration::from_secs(3600)).is_err());
}

#[test]
fn other_text_is_no_count() {
    for text in ["", "12", "12 0", "x 1.5", "12 1.5 more", "siftfs-bench: no such file"] {
        assert_eq!(counted(text), None, "{text}");
    }
}
