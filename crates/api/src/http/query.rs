//! The query of a URL, in form encoding: `+` is a space.

use percent_encoding::percent_decode_str;

use crate::Error;

/// The parameters of a query in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query. What is no UTF-8 after decoding is refused rather than changed: a path would name another file.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut parameters = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| Error::field("query", "a parameter's name is not UTF-8"))?;
            let value = decode(value).ok_or_else(|| Error::field(name.clone(), "is not UTF-8"))?;
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    /// The first value of a parameter.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a whole number; an empty one counts as absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        let Some(text) = self.one(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong = |_| Error::field(name, format!("must be a whole number of at least 0, got {text:?}"));
        text.parse().map(Some).map_err(wrong)
    }

    /// A parameter that is true or false; absent is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.one(name) {
            None | Some("" | "false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(text) => Err(Error::field(name, format!("must be true or false, got {text:?}"))),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let spaces = text.replace('+', " ");
    percent_decode_str(&spaces).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_is_a_space_and_an_escaped_plus_a_plus() {
        let query = Query::parse("path=%2Ftmp%2Fa+b%2Bc&label=a%3Db&label=c=d&flag").unwrap();
        assert_eq!(query.one("path"), Some("/tmp/a b+c"));
        assert_eq!(query.all("label").collect::<Vec<_>>(), ["a=b", "c=d"]);
        assert_eq!(query.one("flag"), Some(""));
    }

    #[test]
    fn what_cannot_be_read_names_its_parameter() {
        let error = |text: &str| Query::parse(text).unwrap_err().message.into_owned();
        assert_eq!(error("path=%FF"), "path: is not UTF-8");
        let query = Query::parse("limit=-1&stream=yes").unwrap();
        assert!(query.number("limit").unwrap_err().fields.contains_key("limit"));
        assert!(query.flag("stream").unwrap_err().fields.contains_key("stream"));
    }
}
