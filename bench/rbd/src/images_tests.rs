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

#[test]
fn an_order_has_each_job_once_and_is_another_one_each_time() {
    let mut rng = Rng::new(1);
    let orders: Vec<_> = (0..50).map(|_| shuffled(6, &mut rng)).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    }
    // Each job comes at the begin at some time, and at the end.
    for job in 0..6 {
        assert!(orders.iter().any(|order| order[0] == job), "{job}");
        assert!(orders.iter().any(|order| order[5] == job), "{job}");
    }
}
