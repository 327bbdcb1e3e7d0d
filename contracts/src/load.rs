//! Text to a checked contract. Every refusal names file, line, path, what is wrong and what would be
//! right; a contract that was returned keeps every rule of `check`.

use crate::case_error::{printable, shortened};
use crate::format::Contract;
use crate::{check, yaml};
use std::fmt;

/// Longest contract, in bytes.
const LIMIT_BYTES: usize = 1 << 20;

/// Why a text is not a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractError {
    /// The file as given.
    pub file: String,
    /// Line of the place, from 1; absent when the file as a whole is meant.
    pub line: Option<usize>,
    /// Dotted path of the place; empty when the file as a whole is meant.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", printable(&self.path))?;
        }
        write!(f, ": {}; {}", printable(&shortened(&self.what)), printable(&self.remedy))
    }
}

impl std::error::Error for ContractError {}

/// Parses and checks a contract. `file` is only named in errors.
pub fn parse_contract(text: &str, file: &str) -> Result<Contract, ContractError> {
    let contract: Contract = parse_yaml(text, file)?;
    match check::check(&contract) {
        Ok(()) => Ok(contract),
        Err(found) => Err(placed(text, file, found.path, found.what, found.remedy)),
    }
}

/// Any typed YAML of at most 1 MiB, under the rules contracts follow: one document, no anchors, no
/// repeated keys, errors with line, path and remedy.
pub fn parse_yaml<T: serde::de::DeserializeOwned>(
    text: &str,
    file: &str,
) -> Result<T, ContractError> {
    parse_yaml_within(text, file, LIMIT_BYTES)
}

/// As `parse_yaml`, of another size at most.
pub fn parse_yaml_within<T: serde::de::DeserializeOwned>(
    text: &str,
    file: &str,
    limit_bytes: usize,
) -> Result<T, ContractError> {
    let tree = yaml::parse(text, limit_bytes).map_err(|e| ContractError {
        file: file.to_owned(),
        line: e.line,
        path: String::new(),
        what: e.what,
        remedy: e.remedy,
    })?;
    typed(tree).map_err(|(path, what, remedy)| placed(text, file, path, what, remedy))
}

/// An error of `file`, at the line where `path` stands in its text.
pub fn placed(text: &str, file: &str, path: String, what: String, remedy: String) -> ContractError {
    ContractError { file: file.to_owned(), line: yaml::line_of(text, &path), path, what, remedy }
}

/// A typed value from a tree; on failure path, what and remedy.
pub(crate) fn typed<T: serde::de::DeserializeOwned>(
    tree: serde_json::Value,
) -> Result<T, (String, String, String)> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = match error.path().to_string() {
            whole if whole == "." => String::new(),
            path => path,
        };
        let (what, remedy) = explain(&error.inner().to_string());
        (path, what, remedy)
    })
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split('`').skip(1).step_by(2)
}

/// Splits serde's sentence into what is wrong and what would be right.
fn explain(message: &str) -> (String, String) {
    if let Some((noun, rest)) = ["unknown field `", "unknown variant `"]
        .iter()
        .find_map(|start| Some((*start, message.split_once(start)?.1)))
    {
        // What was given may hold backticks itself.
        let (given, known) = rest.rsplit_once("`, expected ").unwrap_or((rest, ""));
        let given = given.split_once("`, there are no").map_or(given, |(given, _)| given);
        let noun = if noun.contains("field") { "field" } else { "word" };
        return (format!("unknown {noun} `{given}`"), suggestion(given, quoted(known)));
    }
    if let (true, Some(field)) = (message.contains("missing field"), quoted(message).next()) {
        return (format!("`{field}` is missing"), format!("add `{field}:`"));
    }
    let message = message.replace("invalid type: ", "").replace("invalid value: ", "");
    match message.split_once(", expected ") {
        Some((found, expected)) => {
            let expected = match expected {
                "i64" => "a whole number",
                "a sequence" => "a list",
                "u8" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
                other => other,
            };
            (format!("{found} is not allowed here"), format!("write {expected}"))
        }
        None => {
            (message, "see the format in the documentation of the crate `contracts`".to_owned())
        }
    }
}

/// Whether a text is a web address with a path, as a link to an issue is.
pub fn is_link(link: &str) -> bool {
    let rest = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://"));
    let parts = rest
        .filter(|rest| !rest.contains(char::is_whitespace))
        .and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(host, path)| !host.is_empty() && !path.trim_matches('/').is_empty())
}

/// "write `nearest`", or the whole list when nothing is near.
pub(crate) fn suggestion<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let nearest = known.iter().map(|word| (edit_distance(given, word), *word)).min();
    match nearest {
        None => "remove it".to_owned(),
        // A word without a letter in common is no nearer than any other.
        Some((distance, word)) if distance < given.len() && distance <= 1 + given.len() / 4 => {
            format!("write `{word}`")
        }
        Some(_) => format!("write one of {}", known.join(", ")),
    }
}

/// Least number of inserted, removed, replaced or swapped neighbouring characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::{is_link, parse_yaml};

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Two {
        #[serde(rename = "layout")]
        _layout: Option<Word>,
        #[serde(rename = "fill")]
        _fill: Option<u8>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Dense,
        Wide,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    #[test]
    fn what_is_unknown_is_named_whole_and_what_is_known_beside_it() {
        let told = |text: &str| parse_yaml::<Two>(text, "f").expect_err(text).to_string();
        assert_eq!(told("layuot: dense"), "f:1: layuot: unknown field `layuot`; write `layout`");
        assert_eq!(told("l`ayout: dense"), "f:1: l`ayout: unknown field `l`ayout`; write `layout`");
        assert_eq!(
            told("'a`, `b': 1"),
            "f:1: a`, `b: unknown field `a`, `b`; write one of layout, fill"
        );
        assert_eq!(told("layout: w`ide"), "f:1: layout: unknown word `w`ide`; write `wide`");
        let error = parse_yaml::<Nothing>("x`y: 1", "f").expect_err("no fields").to_string();
        assert_eq!(error, "f:1: x`y: unknown field `x`y`; remove it");
    }

    #[test]
    fn a_link_leads_somewhere() {
        assert!(is_link("https://example.org/issues/9") && is_link("http://tracker/9"));
        for text in [
            "https:///",
            "https:///x",
            "https://example.org",
            "https://example.org/",
            "issues/9",
            "https://a b/c",
        ] {
            assert!(!is_link(text), "{text}");
        }
    }
}
