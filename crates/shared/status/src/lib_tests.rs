//! The document beside one that an earlier version printed, and beside the page that explains it.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What `siftfs status --json` printed of a mount with a device process, with a value in every
/// field. A field that is new belongs into it; one that is renamed or has another type breaks it.
const GOLDEN: &str = include_str!("../golden/status.json");
const PAGE: &str = include_str!("../../../../docs/design/status.md");

/// Objects whose keys are names of their own and not fields.
const BY_NAME: [&str; 4] = ["requests", "full_commits", "stalls", "elsewhere"];

fn golden() -> Value {
    serde_json::from_str(GOLDEN).expect("JSON")
}

/// Every field by its path, such as `/runtime/log/lanes/0/head`.
fn fields(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            let path = format!("{path}/{name}");
            found.push(path.clone());
            if !BY_NAME.contains(&name.as_str()) {
                fields(value, &path, found);
            }
        }),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(i, value)| fields(value, &format!("{path}/{i}"), found)),
        _ => {}
    }
}

fn golden_fields() -> Vec<String> {
    let mut found = Vec::new();
    fields(&golden(), "", &mut found);
    assert!(found.len() > 250, "{} fields", found.len());
    found
}

/// The document of `status` is `wanted`; fields that only one of them has are named first.
fn assert_prints(status: &Status, wanted: &Value) {
    let printed = serde_json::to_value(status).expect("JSON");
    let [here, there] = [&printed, wanted].map(|document| {
        let mut found = Vec::new();
        fields(document, "", &mut found);
        found.into_iter().collect::<BTreeSet<String>>()
    });
    let odd: Vec<_> = here.symmetric_difference(&there).collect();
    assert!(odd.is_empty(), "fields that are not in both: {odd:?}");
    assert!(printed == *wanted, "{printed:#} instead of {wanted:#}");
}

/// Names in backquotes, each part of a dotted one by itself.
fn quoted(text: &str) -> BTreeSet<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.flat_map(|name| name.split('.')).map(|name| name.trim_end_matches("[]")).collect()
}

#[test]
fn the_document_is_what_it_was() {
    let status: Status = serde_json::from_str(GOLDEN).expect("a status");
    assert_prints(&status, &golden());
    let link = status.runtime.link.remote.expect("a connection");
    assert_eq!((link.away_s, link.trouble.as_deref()), (Some(1.5), Some("it was silent")));
    let last = status.runtime.service.checkpoint_last;
    assert_eq!((last.trigger, last.mode()), (Some(Urgency::Emergency), "ordered"));
}

/// A mount without a device process says nothing of a connection.
#[test]
fn the_document_of_a_mount_alone() {
    let mut alone = golden();
    alone["runtime"]["link"] = json!({ "placement": "host", "host_cpu_us": 5 });
    alone["runtime"]["service"]["device"] = Value::Null;
    let status: Status = serde_json::from_value(alone.clone()).expect("a status");
    assert_eq!(status.runtime.link, Link { host_cpu_us: 5, ..Link::host() });
    assert_prints(&status, &alone);
}

#[test]
fn every_field_is_explained_and_no_other() {
    let names: BTreeSet<String> = golden_fields()
        .into_iter()
        .filter_map(|path| path.rsplit('/').next().map(str::to_owned))
        .collect();
    let page = quoted(PAGE);
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/design/status.md: {missing:?}");
    // The first cell of a table's row names fields.
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let rows: Vec<String> = rows.map(|cell| format!("`{cell}")).collect();
    assert!(rows.len() > 80, "the tables were read: {} rows", rows.len());
    let unknown: Vec<_> =
        rows.iter().flat_map(|cell| quoted(cell)).filter(|name| !name.is_empty()).collect();
    let unknown: Vec<_> = unknown.into_iter().filter(|name| !names.contains(*name)).collect();
    assert!(unknown.is_empty(), "no such fields: {unknown:?}");
}

/// A daemon of an older version leaves a field out, wherever it is.
#[test]
fn a_document_without_a_field_is_read() {
    for path in golden_fields() {
        let (above, name) = path.rsplit_once('/').expect("a path");
        let mut older = golden();
        let object = older.pointer_mut(above).and_then(Value::as_object_mut).expect("an object");
        object.remove(name).expect("the field");
        let status = serde_json::from_value::<Status>(older);
        assert!(status.is_ok(), "without {path}: {status:?}");
    }
    assert_eq!(serde_json::from_str::<Status>("{}").expect("a status"), Status::default());
}

/// A daemon of a newer version has more, wherever that is.
#[test]
fn a_document_with_more_is_read() {
    fn grow(value: &mut Value) {
        match value {
            Value::Object(map) => {
                let fields = map.iter_mut().filter(|(name, _)| !BY_NAME.contains(&name.as_str()));
                fields.for_each(|(_, value)| grow(value));
                let counts = map.values().all(Value::is_u64);
                map.insert("new".into(), if counts { json!(1) } else { json!({}) });
            }
            Value::Array(list) => list.iter_mut().for_each(grow),
            _ => {}
        }
    }
    let mut newer = golden();
    grow(&mut newer);
    newer["runtime"]["service"]["checkpoint_last"]["trigger"] = json!("idle");
    let status: Status = serde_json::from_value(newer).expect("a status");
    let mut known: Status = serde_json::from_str(GOLDEN).expect("a status");
    known.runtime.service.checkpoint_last.trigger = None;
    assert_eq!(status, known);
    assert!(serde_json::from_str::<Status>(r#"{"pid":"x"}"#).is_err(), "no number");
}

/// What another process says is summed without an overflow.
#[test]
fn sums_end_at_the_largest_number() {
    let io = IoCounts { writes: u64::MAX, ..IoCounts::default() };
    let origins = OriginCounts { foreground: io, background: io, admin: io };
    let regions = RegionCounts { area: origins, staging: origins, ..RegionCounts::default() };
    assert_eq!((regions.total().writes, regions.total().reads), (u64::MAX, 0));
    let lane = Lane { used: u64::MAX, bytes: 1, ..Lane::default() };
    let log = LogSpace { lanes: vec![lane; 2], ..LogSpace::default() };
    let runtime = RuntimeStatus { log, ..RuntimeStatus::default() };
    assert_eq!(runtime.staging(), (u64::MAX, 2));
}
