//! References that are made from the program itself.

use clap::{Command, CommandFactory as _};

use crate::arguments::Arguments;

/// Every help page, as Markdown.
pub fn command_line() -> String {
    let mut command = Arguments::command();
    // Gives every command the options that all have.
    command.build();
    let mut text = "<!-- Made by `cargo xtask codegen` from the program itself. -->\n\n# Command line\n".to_owned();
    page(&command, &mut text);
    text
}

/// The API, as an OpenAPI document.
pub fn openapi() -> String {
    format!("{:#}\n", hutch_api::openapi::document())
}

fn page(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let help = command.clone().term_width(100).render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        page(subcommand, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Compares with a file; `UPDATE_GOLDEN=1` writes it.
    fn golden(name: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == text, "{} is not what the program says; `cargo xtask codegen` writes it", path.display());
    }

    #[test]
    fn the_references_are_what_the_program_says() {
        golden("cli.md", &command_line());
        golden("openapi.json", &openapi());
    }

    #[test]
    fn the_declaration_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_page_explains_itself_with_an_example() {
        fn check(command: &Command) {
            let name = command.get_name().to_owned();
            assert!(command.get_about().is_some(), "{name} says nothing");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name}: {} says nothing", argument.get_id());
            }
            for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
                check(subcommand);
            }
        }
        let command = Arguments::command();
        check(&command);
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{} has no examples", subcommand.get_name());
        }
    }
}
