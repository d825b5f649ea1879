use super::*;
use clap::Parser;

fn plan(words: &[&str]) -> Plan {
    crate::Cli::parse_from([&["siftfs-rbd-bench", "images"], words].concat()).plan
}

#[test]
fn an_image_that_several_volumes_are_compared_with_is_opened_once() {
    let words = ["--volume", "a", "--raw", "r", "--volume", "b", "--raw", "s"];
    let (which, images) =
        different(&plan(&[&words[..], &["--volume", "c", "--raw", "r"]].concat())).unwrap();
    assert_eq!((which, images), (vec![0, 1, 0], vec![PathBuf::from("r"), PathBuf::from("s")]));
}

#[test]
fn each_volume_has_a_raw_image() {
    for words in [
        &[][..],
        &["--volume", "a"],
        &["--raw", "r"],
        &["--volume", "a", "--raw", "r", "--raw", "s"],
    ] {
        assert!(different(&plan(words)).is_err(), "{words:?}");
    }
}

#[test]
fn a_volume_of_one_name_is_no_image() {
    let Failed(said) = Raw::new(Path::new("/dev/null")).err().unwrap();
    assert!(said.contains("rbd:POOL/IMAGE"), "{said}");
}

#[test]
fn every_kind_of_every_image_has_its_turn() {
    let all = jobs(2, 1);
    assert_eq!(all.len(), 2 * KINDS.len() + RAW.len());
    assert_eq!((all[0], all[5], all[8]), (Job::Ours(0, 0), Job::Ours(1, 2), Job::Raw(0, 2)));
}
