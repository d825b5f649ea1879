//! Compares structures with the tables of `docs/spec/log-format.md`, for the tests.

use std::path::Path;

/// A field of a structure: its name, and its place and size in bytes.
pub(crate) struct Field {
    pub name: &'static str,
    pub at: usize,
    pub size: usize,
}

/// The fields of a structure, in the order given.
macro_rules! fields {
    ($t:ty { $($field:ident),* $(,)? }) => {
        [$($crate::spec::Field {
            name: stringify!($field),
            at: std::mem::offset_of!($t, $field),
            size: $crate::spec::size_of_field(|s: &$t| &s.$field),
        }),*]
    };
}
pub(crate) use fields;

/// The size of the field that `get` gives.
pub(crate) const fn size_of_field<S, F>(_get: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// A row of a table with places: place and size in bytes, and what it says.
struct Row {
    at: usize,
    size: usize,
    text: String,
}

fn spec() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/spec/log-format.md");
    std::fs::read_to_string(page).expect("the specification is there")
}

/// The cells of each row of the first table behind the line that contains `heading`.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = spec();
    let from = page.find(heading).unwrap_or_else(|| panic!("no {heading:?} in the specification"));
    let lines = page[from..].lines().skip_while(|l| !l.starts_with('|'));
    let rows = lines.take_while(|l| l.starts_with('|')).skip(2);
    let cells = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().to_string()).collect();
    rows.map(cells).collect()
}

fn number(text: &str) -> usize {
    let hex = text.strip_prefix("0x").map(|digits| usize::from_str_radix(digits, 16));
    hex.unwrap_or_else(|| text.parse()).unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The structure with these fields stands in the table behind `heading`, from byte `base` on: each
/// row begins and ends where fields do, no field is without a row, and a row names its fields. In
/// `words` a field has the text that stands for it where it is not its name.
///
/// # Panics
/// If table and structure differ.
pub(crate) fn check(heading: &str, base: usize, fields: &[Field], words: &[(&str, &str)]) {
    let rows = table(heading).into_iter().filter(|cells| !cells[1].is_empty());
    let rows: Vec<Row> = rows
        .map(|c| Row { at: number(&c[0]) - base, size: number(&c[1]), text: c[2].to_lowercase() })
        .collect();
    let mut left = fields.iter().peekable();
    for row in &rows {
        let end = row.at + row.size;
        let first = left.peek().unwrap_or_else(|| panic!("{heading}: no field at {}", row.at));
        assert_eq!(first.at, row.at, "{heading}: field {} and its row", first.name);
        let mut at = row.at;
        while let Some(field) = left.next_if(|f| f.at < end) {
            at = field.at + field.size;
            let name = field.name.trim_end_matches(|c: char| c.is_ascii_digit());
            let other = words.iter().find(|(name, _)| *name == field.name).map(|(_, word)| *word);
            let (plain, spaced) = (name.to_string(), name.replace('_', " "));
            let named = match other {
                Some(word) => row.text.contains(&word.to_lowercase()),
                None => row.text.contains(&plain) || row.text.contains(&spaced),
            };
            assert!(named, "{heading}: the row at {} does not name {}", row.at, field.name);
        }
        assert_eq!(at, end, "{heading}: the end of the row at {}", row.at);
    }
    assert!(left.peek().is_none(), "{heading}: a field without a row");
}

/// The row at byte `at` of the table behind `heading` says `text`, a version for example.
///
/// # Panics
/// If it does not.
pub(crate) fn says(heading: &str, at: usize, text: &str) {
    let rows = table(heading);
    let row = rows.iter().find(|cells| cells[0] == at.to_string());
    let row = &row.unwrap_or_else(|| panic!("{heading}: no row at {at}"))[2];
    assert_eq!(row, text, "{heading}: the row at {at}");
}

/// The structure stands in a row of a table behind `heading` whose first cell is `row`, as a list
/// of places: "0 inode, 4 generation". `base` bytes of other structures come before it there.
///
/// # Panics
/// If row and structure differ.
pub(crate) fn check_list(heading: &str, row: &str, base: usize, fields: &[Field]) {
    let rows = table(heading);
    let cells = rows.iter().find(|cells| cells[0].starts_with(row));
    let text = &cells.unwrap_or_else(|| panic!("{heading}: no row {row:?}"))[1];
    let text = text.split_once("then ").map_or(text.as_str(), |(_, rest)| match base {
        0 => text.as_str(),
        _ => rest,
    });
    let places = text.split([',', ';', '.']).filter_map(|part| {
        let (at, name) = part.trim().split_once(' ')?;
        Some((at.parse::<usize>().ok()?, name.to_string()))
    });
    let found: Vec<(usize, String)> = places.collect();
    for field in fields {
        let at = field.at;
        let known = found.iter().any(|(place, _)| *place == at);
        assert!(known, "{heading}, {row}: nothing at {at}, where {} is: {found:?}", field.name);
    }
    let ends: Vec<usize> = fields.iter().map(|f| f.at + f.size).collect();
    for (place, name) in &found {
        let known = fields.iter().any(|f| f.at == *place) || ends.last() == Some(place);
        assert!(known, "{heading}, {row}: no field at {place}, where the page has {name}");
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
