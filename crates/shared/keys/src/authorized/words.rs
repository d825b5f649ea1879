//! The words of a line, of which parts may be quoted.

/// Takes the next word off the line, without its quotes; `None` at the line's end.
///
/// # Errors
/// A quote without its end, or a backslash before something else than a quote or a backslash.
pub(super) fn next(line: &mut &str) -> Result<Option<String>, String> {
    let text = line.trim_start_matches([' ', '\t']);
    if text.is_empty() {
        *line = text;
        return Ok(None);
    }
    let (mut word, mut quoted) = (String::new(), false);
    let mut chars = text.chars();
    loop {
        let rest = chars.as_str();
        match chars.next() {
            None if quoted => return Err("a quote has no end".into()),
            None => {
                *line = rest;
                return Ok(Some(word));
            }
            Some(' ' | '\t') if !quoted => {
                *line = rest;
                return Ok(Some(word));
            }
            Some('"') => quoted = !quoted,
            Some('\\') if quoted => match chars.next() {
                Some(c @ ('"' | '\\')) => word.push(c),
                _ => return Err("a backslash stands before neither a quote nor another".into()),
            },
            Some(c) => word.push(c),
        }
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
