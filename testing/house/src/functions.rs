//! Functions of a file and their lengths, read off sources that rustfmt has formatted.

/// A function and the lines from its `fn` to its closing brace, both included.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The function's name, without its type or module.
    pub name: String,
    /// Lines, at least 1.
    pub lines: usize,
}

/// Words that may stand before `fn`.
const BEFORE: [&str; 8] =
    ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern", "\"C\""];

/// The functions with a body in `text`, in the order of their first lines. A function inside of
/// another is listed too, and its lines count for both.
pub fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = name_of(line)?;
        let indent = line.len() - line.trim_start().len();
        Some(Function { name, lines: length(lines.get(at..)?, indent)? })
    });
    found.collect()
}

/// The name of the function that begins on this line.
pub(crate) fn name_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let word = words.find(|word| !BEFORE.contains(word))?;
    if word != "fn" {
        return None;
    }
    let name: String =
        words.next()?.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Lines of the function whose first line comes first in `lines` and has this indent; `None` if it
/// has no body.
fn length(lines: &[&str], indent: usize) -> Option<usize> {
    for (before, line) in lines.iter().enumerate() {
        let here = line.len() - line.trim_start().len() == indent;
        let end = line.trim_end();
        if here && end.ends_with(';') {
            return None;
        }
        if here && (end.trim_start() == "}" || before == 0 && end.ends_with('}')) {
            return Some(before + 1);
        }
    }
    None
}

#[cfg(test)]
#[path = "functions_tests.rs"]
mod tests;
