use super::*;
use std::collections::BTreeSet;

#[test]
fn a_seed_decides_everything_and_another_something_else() {
    let show = |seed| {
        let plans = (0..40).map(|n| Plan::new(seed, n, &Only::default()).to_string());
        plans.collect::<Vec<_>>()
    };
    assert_eq!(show(1), show(1));
    assert!(show(1).iter().zip(show(2)).all(|(a, b)| *a != b));
}

fn not_served() -> Only {
    Only::parse("accel,plain").expect("known words")
}

#[test]
fn all_kinds_are_drawn() {
    let (mut ends, mut incidents, mut mounts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut words, mut modes) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..400 {
        let plan = Plan::new(7, round, &not_served());
        ends.insert(plan.end.name());
        incidents.extend(plan.incidents.iter().map(|(_, i)| i.name()));
        let m = &plan.mount;
        mounts.insert((format!("{:?}", m.placement), m.fallback.is_some(), m.target));
        assert!(m.has_device() || plan.incidents.is_empty());
        words.extend(m.device.iter().cloned());
        words.extend(m.options.split(',').map(String::from));
        let mode = |key: &str| m.options.split(',').find_map(|o| o.strip_prefix(key)).unwrap_or("");
        let device = m.has_device();
        modes.insert((device, mode("write_cache=").to_owned(), mode("requests=").to_owned()));
    }
    assert_eq!(ends, ENDS.into());
    assert_eq!(incidents, INCIDENTS.into());
    assert_eq!(mounts.len(), 7, "{mounts:?}");
    for word in [
        "--memory=64M",
        "--cpu-quota=10",
        "--spin=0",
        "service_memory=0",
        "service_spin=20",
        "fsyncs=parallel",
    ] {
        assert!(words.contains(word), "{word} in {words:?}");
    }
    assert_eq!(modes.len(), 2 * 2 * 3, "with and without a device process: {modes:?}");
    assert!((0..40).any(|era| Geometry::of(7, era * ERA).copies));
    assert!((0..40).any(|era| Geometry::of(7, era * ERA).area.is_some()));
}

#[test]
fn only_narrows_its_own_class() {
    let only = Only::parse("tcp,away,host,plain").expect("known words");
    for round in 0..60 {
        let plan = Plan::new(3, round, &only);
        assert_eq!(plan.mount.placement, Placement::Tcp);
        assert_eq!(plan.mount.fallback, None);
        assert_eq!(plan.end, End::Host);
        assert!(plan.incidents.iter().all(|(_, i)| i.name() == "away"));
    }
    let local = Only::parse("local,takeover,plain").expect("known words");
    assert_eq!(Plan::new(3, 0, &local).end, End::Host, "nobody can take over");
    assert!(Only::parse("nonsense").expect_err("unknown").contains("takeover"));
}

#[test]
fn a_volume_lasts_for_an_era() {
    assert_eq!(Geometry::of(5, 0), Geometry::of(5, ERA - 1));
    let all: BTreeSet<_> = (0..40).map(|era| format!("{:?}", Geometry::of(5, era * ERA))).collect();
    assert!(all.len() > 10, "{all:?}");
    let plan = |round| Plan::new(5, round, &Only::default());
    assert!(plan(ERA - 1).ends_era() && !plan(ERA).ends_era());
}

#[test]
fn all_kinds_of_servers_and_their_deaths_are_drawn() {
    let only = Only::parse("served").expect("known words");
    let (mut ends, mut incidents) = (BTreeSet::new(), BTreeSet::new());
    let mut ways = BTreeSet::new();
    for round in 0..400 {
        let plan = Plan::new(7, round, &only);
        ends.insert(plan.end.name());
        incidents.extend(plan.incidents.iter().map(|(_, i)| i.name()));
        let served = plan.mount.served.as_ref().expect("a served volume");
        ways.insert((format!("{:?}", served.by), served.tcp, plan.mount.has_device()));
        assert!(!plan.mount.writes_back() && plan.programs.is_none(), "{plan}");
        let of_device = |(_, i): &(When, Incident)| {
            !matches!(i, Incident::Server(_)) || i.name() == "server-and-device"
        };
        assert!(plan.mount.has_device() || !plan.incidents.iter().any(of_device), "{plan}");
        // A serving program is given what belongs to the volume, and the mount what does not.
        assert!(!plan.mount.options.contains("commit="), "{plan}");
        assert!(plan.mount.options.contains("requests="), "{plan}");
    }
    assert_eq!(ends, served::ENDS.into());
    let all: BTreeSet<_> = INCIDENTS.into_iter().chain(served::INCIDENTS).collect();
    assert_eq!(incidents, all);
    assert_eq!(ways.len(), 2 * 2 * 2, "{ways:?}");
    assert!((0..100).any(|round| Plan::new(7, round, &Only::default()).mount.served.is_some()));
}

#[test]
fn what_a_living_server_has_is_asked_for() {
    let kept = |word: &str| {
        let only = Only::parse(&format!("served,{word}")).expect("known words");
        Plan::new(3, 0, &only).end.keeps_answered()
    };
    assert!(kept("client") && kept("client-in-unmount"));
    assert!(!kept("client-then-server") && !kept("all") && !kept("server-in-unmount"));
}
