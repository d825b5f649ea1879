//! Methods of the types in a file, read off sources that rustfmt has formatted.

use crate::functions::name_of;

/// The types with methods of their own in `text`, once for each function in one of their `impl`
/// blocks. A trait's methods do not count: the trait says how many there are.
pub fn methods(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("impl") {
            block = type_of(rest);
        } else if line.starts_with('}') {
            block = None;
        } else if line.starts_with("    ")
            && !line.starts_with("     ")
            && name_of(line).is_some()
            && let Some(name) = &block
        {
            found.push(name.clone());
        }
    }
    found
}

/// The type of an `impl` block, of which this follows the word `impl`; `None` if it is one of a
/// trait.
fn type_of(rest: &str) -> Option<String> {
    let head = match rest.strip_prefix('<') {
        Some(parameters) => &parameters[end_of_parameters(parameters)?..],
        None => rest,
    };
    if head.contains(" for ") {
        return None;
    }
    let name = head.trim_start().split(['<', ' ', '{']).next()?;
    let name = name.rsplit("::").next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Where the parameters, whose `<` is left out, have ended.
fn end_of_parameters(text: &str) -> Option<usize> {
    let mut open = 1;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => open += 1,
            '>' if before != '-' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at + 1);
        }
        before = c;
    }
    None
}

#[cfg(test)]
#[path = "methods_tests.rs"]
mod tests;
