//! Text in columns.

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// The column that is never shortened.
    whole: Option<&'static str>,
}

/// A column is never narrower, whatever the terminal.
const NARROWEST: usize = 8;

impl Table {
    pub(crate) fn new<const N: usize>(headings: [&'static str; N]) -> Self {
        Self { headings: headings.into(), rows: Vec::new(), whole: None }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len());
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    /// Never shortens this column: it is copied from the screen.
    pub(crate) fn keep_whole(&mut self, heading: &'static str) {
        self.whole = Some(heading);
    }

    /// Takes columns out in which no row has anything.
    pub(crate) fn without_empty(mut self) -> Self {
        let filled = |column: &usize| self.rows.iter().any(|row| !row[*column].is_empty());
        let kept: Vec<usize> = (0..self.headings.len()).filter(filled).collect();
        let pick = |row: &Vec<String>| kept.iter().map(|&column| row[column].clone()).collect();
        self.rows = self.rows.iter().map(pick).collect();
        self.headings = kept.iter().map(|&column| self.headings[column]).collect();
        self
    }

    /// The text for standard output: on a terminal no wider than it, elsewhere whole.
    pub(crate) fn fitting(&self) -> String {
        let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
        self.within(columns.ok().filter(|&columns| columns > 0))
    }

    /// The text in so many columns: the widest cells lose their ends until it fits.
    fn within(&self, columns: Option<usize>) -> String {
        let Some(columns) = columns else { return self.text() };
        let mut widths = self.widths();
        while widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1) > columns {
            let shrinks = |&column: &usize| Some(self.headings[column]) != self.whole && widths[column] > NARROWEST;
            let Some(widest) = (0..widths.len()).filter(shrinks).max_by_key(|&column| widths[column]) else { break };
            widths[widest] -= 1;
        }
        self.draw(&widths)
    }

    pub(crate) fn text(&self) -> String {
        self.draw(&self.widths())
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].chars().count());
        let width = |(column, heading): (usize, &&str)| cells(column).max().unwrap_or(0).max(heading.len());
        self.headings.iter().enumerate().map(width).collect()
    }

    fn draw(&self, widths: &[usize]) -> String {
        let headings: Vec<String> = self.headings.iter().map(|&heading| heading.to_owned()).collect();
        let mut text = String::new();
        for line in std::iter::once(&headings).chain(&self.rows) {
            let cell = |(cell, &width): (&String, &usize)| format!("{:width$}", shortened(cell, width));
            let cells: Vec<String> = line.iter().zip(widths).map(cell).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Text without what would steer a terminal: some of it comes from files and guests.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_cells_are_shortened_until_it_fits() {
        let mut table = Table::new(["NAME", "ID", "NOTE"]);
        table.keep_whole("ID");
        table.row(["a-name-that-is-long".into(), "sb-0123456789".into(), "short".into()]);
        assert_eq!(table.within(Some(34)).lines().last(), Some("a-name-that…  sb-0123456789  short"));
        assert_eq!(table.within(Some(10)).lines().last(), Some("a-name-…  sb-0123456789  short"));
        assert_eq!(table.within(None), table.text());
    }

    #[test]
    fn columns_without_a_cell_are_left_out() {
        let mut table = Table::new(["NAME", "PAUSED", "FROM"]);
        table.row(["a".into(), String::new(), "b".into()]);
        assert_eq!(table.without_empty().text(), "NAME  FROM\na     b\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.row(["quick-otter".into(), "running".into()]);
        table.row(["a\x1b[31m".into(), "paused".into()]);
        assert_eq!(table.text(), "NAME         STATUS\nquick-otter  running\na\u{fffd}[31m       paused\n");
    }
}
