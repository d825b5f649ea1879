use super::*;

#[test]
fn what_dies_with_the_machine_is_refused_beside_a_cluster() {
    let (image, log) = (Path::new("rbd:slow/v"), Path::new("/dev/nvme0n1"));
    let said = refuse_what_dies(image, "log", log, false).unwrap_err().to_string();
    assert!(said.contains("/dev/nvme0n1") && said.contains("--log-may-die"), "{said}");
    refuse_what_dies(image, "log", log, true).unwrap();
    refuse_what_dies(image, "log", Path::new("rbd:fast/v"), false).unwrap();
    refuse_what_dies(Path::new("/dev/sda"), "log", log, false).unwrap();
}

#[test]
fn an_image_has_one_process() {
    let open = |access| open(Path::new("rbd:p/i"), How::usual(access));
    let said = open(Access::Shared).err().unwrap().to_string();
    assert!(said.contains("target:ADDRESS/VOLUME"), "{said}");
    let said = open_alone(Path::new("rbd:p")).err().unwrap().to_string();
    assert!(said.contains("rbd:POOL/IMAGE"), "{said}");
}

#[test]
fn one_image_by_two_names() {
    assert!(is_same_image(Path::new("rbd:p/i@/a"), Path::new("rbd:p/i")));
    assert!(!is_same_image(Path::new("rbd:p/i"), Path::new("rbd:p/j")));
    assert!(!is_same_image(Path::new("rbd:p/i"), Path::new("/i")));
}
