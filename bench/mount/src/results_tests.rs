use super::*;
use crate::counts::Backend;
use crate::library::versus::Compared;
use crate::run::Config;
use std::collections::BTreeMap;

fn numbers(value: f64, counts: Counts) -> Numbers {
    let rounds = vec![(0, value)];
    Numbers { all: Summary::of([value]), rounds, operations: 10, counts }
}

/// A row of times: `ours` to 100 us of ext4's.
fn entry(what: &'static str, ours: f64, target: f64) -> Entry {
    let backend =
        Some(Backend { writes: 10, flushes: 10, write_bytes: 40960, ..Backend::default() });
    let requests = Some(Requests(BTreeMap::from([("write".into(), 10), ("fsync".into(), 20)])));
    let counts = Counts { backend, requests, ..Counts::default() };
    let ratio = Summary::of([ours / 100.0]);
    Entry {
        name: what,
        what,
        unit: "us",
        falls: true,
        systems: BTreeMap::from([
            (EXT4.to_owned(), numbers(100.0, Counts::default())),
            ("siftfs".to_owned(), numbers(ours, counts)),
        ]),
        ratios: BTreeMap::from([("siftfs".to_owned(), ratio), ("xfs".to_owned(), ratio)]),
        floor: None,
        ratio: Some(ratio),
        target: Some(target),
        met: Some(ratio.median <= target),
        floor_ratio: None,
        floor_target: None,
        floor_met: None,
    }
}

fn report(rows: Vec<Entry>) -> Report {
    let config = Config { name: "siftfs".into(), options: String::new() };
    let machine = vec![("kernel", "7".to_owned())];
    Report { machine, configs: vec![config], peers: vec!["xfs".into()], rows, library: Vec::new() }
}

fn lines_of<'p>(page: &'p str, section: &str) -> Vec<&'p str> {
    let from = page.lines().skip_while(|l| *l != format!("## {section}")).skip(2);
    from.take_while(|l| l.starts_with('|')).skip(2).collect()
}

#[test]
fn misses_come_first_and_the_farthest_first_of_them() {
    let mut floored = entry("floored", 10.0, 0.5);
    floored.floor_ratio = Some(Summary::of([1.3]));
    (floored.floor_target, floored.floor_met) = (Some(1.15), Some(false));
    let rows =
        vec![entry("near", 60.0, 0.5), entry("kept", 40.0, 0.5), entry("far", 300.0, 1.0), floored];
    let page = markdown(&report(rows), "make bench", "p.svg");
    let missed = lines_of(&page, "Missed");
    assert_eq!(missed.len(), 3, "{page}");
    assert!(missed[0].starts_with("| far "), "{page}");
    assert!(missed[1].starts_with("| near "), "{page}");
    assert!(missed[2].starts_with("| floored, without a mount "), "{page}");
    assert!(missed[0].contains("3.00") && missed[0].contains("ext4 100"), "{page}");
    assert_eq!(lines_of(&page, "All rows").len(), 4);
    assert!(page.find("## Missed") < page.find("## All rows"));
}

#[test]
fn without_misses_the_page_says_so() {
    let page = markdown(&report(vec![entry("kept", 40.0, 0.5)]), "make bench", "p.svg");
    assert!(page.contains("## Missed\n\nEvery row keeps its target.\n"), "{page}");
    assert!(page.contains("![Speed beside ext4](p.svg)") && page.ends_with('\n'), "{page}");
    assert!(page.contains("| kernel") && page.contains("`make bench`"), "{page}");
}

#[test]
fn a_row_has_its_peers_and_what_an_operation_costs() {
    let page = markdown(&report(vec![entry("kept", 40.0, 0.5)]), "make bench", "p.svg");
    let row = lines_of(&page, "All rows")[0];
    assert!(row.contains("| met |") && row.ends_with("0.40 |"), "{row}");
    let requests = lines_of(&page, "Requests and processor time of an operation")[0];
    assert!(requests.contains("3.00") && requests.contains("fsync 2.00, write 1.00"), "{requests}");
    let storage = lines_of(&page, "Writes, flushes and KiB of an operation")[0];
    assert!(storage.contains("1.00 1.00 4.0"), "{storage}");
}

#[test]
fn several_configurations_have_a_column_each() {
    let one = report(vec![entry("kept", 40.0, 0.5)]);
    assert!(!markdown(&one, "make bench", "p.svg").contains("## Configurations"));
    let mut two = report(vec![entry("kept", 40.0, 0.5)]);
    two.configs.push(Config { name: "ring".into(), options: "requests=ring".into() });
    two.rows[0].ratios.insert("ring".into(), Summary::of([0.25]));
    let page = markdown(&two, "make bench", "p.svg");
    let row = lines_of(&page, "Configurations")[0];
    assert!(row.contains("0.40 (0.40 to 0.40)") && row.contains("0.25 (0.25 to 0.25)"), "{row}");
    assert!(page.contains("ring (`requests=ring`)"), "{page}");
}

#[test]
fn what_is_not_compared_with_ext4_has_a_table_of_its_own() {
    let mut report = report(vec![entry("kept", 40.0, 0.5)]);
    assert!(!markdown(&report, "make bench", "p.svg").contains("## Private logs"));
    report.library.push(Compared {
        name: "device-bytes-log",
        what: "written",
        to: "siftfs".into(),
        metric: Metric::Written,
        ours: 16.0,
        theirs: 8.0,
        ratio: Summary::of([2.0]),
        target: 1.5,
        met: false,
    });
    let page = markdown(&report, "make bench", "p.svg");
    let row = lines_of(&page, "Private logs, not to ext4")[0];
    for cell in ["bytes/byte", " 16.0 ", " siftfs ", " 8.0 ", "2.00 to 2.00", " 1.50 ", " missed "]
    {
        assert!(row.contains(cell), "{cell} in {row}");
    }
}
