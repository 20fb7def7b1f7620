//! Text in columns.

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(headings: [&'static str; N]) -> Self {
        Self { headings: headings.into(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len());
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    pub(crate) fn text(&self) -> String {
        let headings: Vec<String> = self.headings.iter().map(|&heading| heading.to_owned()).collect();
        let lines = || std::iter::once(&headings).chain(&self.rows);
        let widths: Vec<usize> = (0..headings.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for line in lines() {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Text without what would steer a terminal: some of it comes from files and guests.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.row(["quick-otter".into(), "running".into()]);
        table.row(["a\x1b[31m".into(), "paused".into()]);
        assert_eq!(table.text(), "NAME         STATUS\nquick-otter  running\na\u{fffd}[31m       paused\n");
    }
}
