//! Bounds that the pages name are those of the code.

use siftfs_house::sources::top;
use std::fs;

/// A page, its words with `{}` where the number stands, the file and name of the constant, and by
/// what that is divided to be the page's number.
type Row = (&'static str, &'static str, &'static str, &'static str, u64);

const MIB: u64 = 1 << 20;
const RUNTIME: &str = "crates/runtime/src/";

const ROWS: [Row; 27] = [
    (
        "docs/limits.md",
        "more than {} pending operations connected",
        "state/room.rs",
        "CLOSURE_MAX",
        1,
    ),
    (
        "docs/limits.md",
        "more than {} pending permission changes",
        "state/room.rs",
        "MOST_GUARDS",
        1,
    ),
    ("docs/limits.md", "One publish has at most {} names", "state/room.rs", "ENTRIES_MAX", 1),
    ("docs/limits.md", "It frees {} extents of a file", "state/room.rs", "MOST_EXTENTS", 1),
    (
        "docs/limits.md",
        "A compound has at most {} steps",
        "@proto/src/compound.rs",
        "MOST_STEPS",
        1,
    ),
    ("docs/limits.md", "steps, {} MiB of results", "@proto/src/compound.rs", "MOST_RESULTS", MIB),
    ("docs/limits.md", "{} tickets of a mount", "session/ticket_table.rs", "MOST", 1),
    (
        "docs/limits.md",
        "of a mount have {} MiB of memory together",
        "locks/allowance.rs",
        "MOST",
        MIB,
    ),
    (
        "docs/design/operations.md",
        "At most {} of a session's tickets",
        "session/ticket_table.rs",
        "MOST",
        1,
    ),
    (
        "docs/design/operations.md",
        "{} sections (`EMFILE`)",
        "state/sections.rs",
        "MOST_SECTIONS",
        1,
    ),
    ("docs/design/operations.md", "one account of {} MiB", "locks/allowance.rs", "MOST", MIB),
    (
        "docs/design/operations.md",
        "begins again, {} times at most (`oper",
        "operations/group.rs",
        "ROUNDS",
        1,
    ),
    (
        "docs/design/operations.md",
        "{} steps of a compound compute",
        "operations/compound/compute.rs",
        "MOST_STEPS",
        1,
    ),
    (
        "docs/design/operations.md",
        "compute at most, {} MiB in all",
        "operations/compound/compute.rs",
        "MOST_WORK",
        MIB,
    ),
    (
        "docs/design/operations.md",
        "(`proto/src/compound.rs`, {} at most)",
        "@proto/src/compound.rs",
        "MOST_STEPS",
        1,
    ),
    (
        "docs/design/discard.md",
        "fewer than {} blocks that are whole units",
        "state/discards.rs",
        "LEAST_BLOCKS",
        1,
    ),
    ("docs/design/discard.md", "{} ranges wait already", "state/discards.rs", "MOST_WAITING", 1),
    (
        "docs/design/persistence-path.md",
        "at most {} runs of staged bytes",
        "assembly/locate.rs",
        "STEP_RUNS",
        1,
    ),
    (
        "docs/design/persistence-path.md",
        "carries at most {} MiB of direct data",
        "state/room.rs",
        "DIRECT_MAX",
        MIB,
    ),
    (
        "docs/design/persistence-path.md",
        "more than a {}th of it dirty",
        "state/room.rs",
        "LITTLE_PART",
        1,
    ),
    (
        "docs/design/persistence-path.md",
        "A waiter spins for {} µs",
        "locks/fair_mutex.rs",
        "SPIN",
        1,
    ),
    ("ARCHITECTURE.md", "A waiter spins for {} µs", "locks/fair_mutex.rs", "SPIN", 1),
    ("ARCHITECTURE.md", "in reads of {} KiB", "data/fill.rs", "READ_BYTES", 1024),
    ("ARCHITECTURE.md", "all that are pending, up to {},", "state/room.rs", "MOST_GUARDS", 1),
    (
        "docs/spec/log-format.md",
        "| format version, {} |",
        "@log/src/header.rs",
        "FORMAT_VERSION",
        1,
    ),
    ("docs/spec/log-format.md", "header copy 0 {} bytes", "@log/src/header.rs", "HEADER_LEN", 1),
    ("docs/design/discard.md", "*asked* ({} MiB at most)", "state/discards.rs", "MOST_BLOCKS", 256),
];

fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The value of a constant that is a number, or a product, a quotient or a shift of numbers.
fn value(source: &str, name: &str) -> Option<u64> {
    let at = source.find(&format!("const {name}: "))?;
    let (_, right) = source.get(at..)?.split_once(" = ")?;
    let (expression, _) = right.split_once(';')?;
    let micros = expression.strip_prefix("Duration::from_micros(");
    let expression = micros.and_then(|m| m.strip_suffix(')')).unwrap_or(expression);
    let mut words = expression.split_whitespace();
    let mut value = number(words.next()?)?;
    while let Some(operator) = words.next() {
        let right = number(words.next()?)?;
        value = match operator {
            "<<" => value << right,
            "*" => value * right,
            "/" => value / right,
            _ => return None,
        };
    }
    Some(value)
}

fn number(word: &str) -> Option<u64> {
    word.replace('_', "").parse().ok()
}

/// A number as the pages write it: with a comma before each three digits.
fn written(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[test]
fn bounds_of_the_pages_are_those_of_the_code() {
    let mut wrong = Vec::new();
    for (page, words, file, name, unit) in ROWS {
        let file = match file.strip_prefix('@') {
            Some(shared) => format!("crates/shared/{shared}"),
            None => format!("{RUNTIME}{file}"),
        };
        let value = value(&read(&file), name)
            .unwrap_or_else(|| panic!("{file}: {name} is no number that this test can read"));
        let says = words.replace("{}", &written(value / unit));
        let text = read(page).split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.contains(&says) {
            wrong.push(format!("{page} does not say {says:?}, as {file}: {name}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn constants_are_read_and_written() {
    let source = "const A: u64 = 16 << 20;\npub const B: usize = 65_536;\nconst C: u8 = other();";
    assert_eq!(value(source, "A"), Some(16 << 20));
    assert_eq!(value(source, "B").map(written), Some("65,536".into()));
    assert_eq!((value(source, "C"), value(source, "D")), (None, None));
    assert_eq!([written(7), written(1234), written(1_000_000)], ["7", "1,234", "1,000,000"]);
}
