use super::*;

#[test]
fn a_name_a_directory_and_a_ratio() {
    let target = |text: &str| text.parse::<Beside>().map(|beside| beside.target);
    assert_eq!(target("nfs=/mnt"), Ok(None));
    assert_eq!(target("nfs=/mnt=1.5"), Ok(Some(1.5)));
    for wrong in ["nfs", "=/mnt", "nfs=", "nfs=/mnt=fast", "nfs=/mnt=1=2"] {
        assert!(target(wrong).is_err(), "{wrong}");
    }
}
