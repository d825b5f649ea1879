//! Tables in Markdown that can be read on a terminal, too.

/// A table: its head, then its lines.
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// With these names of columns.
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self { lines: vec![head.into_iter().map(Into::into).collect()] }
    }

    /// One line more, with a cell for each column; a missing one is empty.
    pub fn add(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// Whether it has only a head.
    pub fn is_empty(&self) -> bool {
        self.lines.len() < 2
    }

    /// The text: the first column to the left, all others to the right.
    pub fn text(&self) -> String {
        let Some((head, lines)) = self.lines.split_first() else { return String::new() };
        let width = |i: usize| {
            let widths =
                self.lines.iter().filter_map(|l| l.get(i)).map(|c| cell(c).chars().count());
            widths.max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut text = String::from("|");
            for (i, width) in widths.iter().enumerate() {
                let cell = cells.get(i).map(|c| cell(c)).unwrap_or_default();
                let padded =
                    if i == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
                text += &format!(" {padded} |");
            }
            text + "\n"
        };
        let rule = |(i, width): (usize, &usize)| match i {
            0 => format!("{}|", "-".repeat(width + 2)),
            _ => format!("{}:|", "-".repeat(width + 1)),
        };
        let rule: String = widths.iter().enumerate().map(rule).collect();
        let lines: String = lines.iter().map(|l| line(l)).collect();
        format!("{}|{rule}\n{lines}", line(head))
    }
}

/// A line between columns would be one column more.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
