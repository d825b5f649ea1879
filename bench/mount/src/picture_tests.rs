use super::*;
use crate::stats::Summary;
use std::collections::BTreeMap;

fn ratio(ratio: f64) -> Summary {
    Summary { samples: 1, p25: ratio, median: ratio, p75: ratio, ..Summary::default() }
}

fn entry(unit: &'static str, of_ours: f64, target: Option<f64>) -> Entry {
    Entry {
        name: "a",
        what: "a < b & c",
        unit,
        falls: unit == "us",
        systems: BTreeMap::new(),
        ratios: BTreeMap::from([("xfs".to_owned(), ratio(1.0))]),
        floor: None,
        ratio: Some(ratio(of_ours)),
        target,
        met: None,
        floor_ratio: None,
        floor_target: None,
        floor_met: None,
    }
}

#[test]
fn half_the_time_is_twice_the_speed() {
    let e = entry("us", 0.5, Some(0.8));
    assert_eq!(speed(&e, 0.5), 2.0);
    assert_eq!(speed(&entry("MiB/s", 0.5, None), 0.5), 0.5);
    assert_eq!(speed(&e, 0.0), 0.0);
}

#[test]
fn a_picture_has_its_bars_marks_and_no_markup_from_texts() {
    let rows = vec![entry("us", 0.2, Some(0.8)), entry("MiB/s", 0.9, None)];
    let (machine, configs) = (Vec::new(), Vec::new());
    let svg =
        svg(&Report { machine, configs, peers: vec!["xfs".into()], rows, library: Vec::new() });
    assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
    assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    assert_eq!(svg.matches("stroke='red'").count(), 1, "{svg}");
    assert!(svg.contains("a &lt; b &amp; c") && svg.contains(">5.0<"), "{svg}");
}
