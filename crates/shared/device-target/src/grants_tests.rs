use super::*;

#[test]
fn where_programs_reach_a_target() {
    let target: Address = "tcp:storage:7000".parse().unwrap();
    let reached = |text: &str| reached(text, &target).map(|address| address.to_string());
    for (said, wanted) in [
        ("tcp:0.0.0.0:7001", "tcp:storage:7001"),
        ("tcp:[::]:7001", "tcp:storage:7001"),
        ("tcp:other:7001", "tcp:other:7001"),
        ("unix:/run/programs", "unix:/run/programs"),
    ] {
        assert_eq!(reached(said).unwrap(), wanted);
    }
    let target = Address::Rdma { host: "storage".into(), port: 7000 };
    let over_tcp = super::reached("tcp:0.0.0.0:7001", &target).unwrap();
    assert_eq!(over_tcp.to_string(), "tcp:storage:7001");
    assert!(matches!(reached("nowhere"), Err(siftfs_base::Error::Refused(_))));
}
