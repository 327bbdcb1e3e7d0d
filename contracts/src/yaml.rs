//! The only file that names the YAML library: text to a JSON tree, and paths to lines. Accepted is a
//! subset that means one thing: one document, no anchors, aliases or tags, no key twice, limited size
//! and nesting. Keys are text; numbers that JSON lacks (`.nan`, `.inf`) become the words nan and inf.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Deepest nesting of maps and lists.
const DEEPEST: usize = 24;

/// Why a text is not acceptable YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// The tree of a text of at most `limit_bytes`.
pub(crate) fn parse(text: &str, limit_bytes: usize) -> Result<Value, YamlError> {
    if text.len() > limit_bytes {
        return Err(YamlError {
            line: None,
            what: format!("{} bytes are more than the limit of {limit_bytes}", text.len()),
            remedy: "split the file".to_owned(),
        });
    }
    // An editor's byte order mark is no part of the document.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_references(text)?;
    Tree { depth: 0 }.deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let what = error.to_string();
        // The library appends the place to its text; the place is reported apart.
        let what = match what.rfind(" at line ") {
            Some(end) => what[..end].to_owned(),
            None => what,
        };
        let line = error.location().map(|location| location.line());
        let indent =
            line.and_then(|line| text.lines().nth(line.checked_sub(1)?)).unwrap_or_default();
        if indent.trim_start_matches(' ').starts_with('\t') {
            let what = "a tab indents the line".to_owned();
            return YamlError { line, what, remedy: "indent by blanks".to_owned() };
        }
        if let Some((found, expected)) = what.split_once(", expected ") {
            let found = found.replace("invalid type: ", "");
            let what = format!("{found} is not allowed here");
            return YamlError { line, what, remedy: format!("write {expected}") };
        }
        let remedy = if what.contains("duplicate") {
            "keep one of the two"
        } else if what.contains("more than one document") {
            "write one document a file"
        } else {
            "see the format in the documentation of the crate `contracts`"
        };
        YamlError { line, what, remedy: remedy.to_owned() }
    })
}

/// Refuses `&anchor`, `*alias` and `!tag` where a node begins. Quotes only open where a node begins, so
/// a `*` inside a plain or quoted scalar is text.
fn refuse_references(text: &str) -> Result<(), YamlError> {
    let mut brackets = 0usize;
    for (index, line) in text.lines().enumerate() {
        let dashes = line.split_whitespace().take_while(|word| *word == "-").count();
        let mut node_begins = true;
        let mut quote = None;
        let mut before = ' ';
        for c in line.chars() {
            match quote {
                Some(open) => {
                    let escaped = open == '"' && before == '\\';
                    before = if escaped { ' ' } else { c };
                    if c == open && !escaped {
                        quote = None;
                    }
                    continue;
                }
                None if c == '#' && before.is_whitespace() => break,
                None if node_begins && matches!(c, '&' | '*' | '!') => {
                    return Err(YamlError {
                        line: Some(index + 1),
                        what: format!("`{c}` begins an anchor, an alias or a tag"),
                        remedy: "write the value out, or quote it".to_owned(),
                    });
                }
                None if node_begins && matches!(c, '"' | '\'') => {
                    quote = Some(c);
                    node_begins = false;
                }
                None => {
                    match c {
                        '[' | '{' => brackets += 1,
                        ']' | '}' => brackets = brackets.saturating_sub(1),
                        _ => {}
                    }
                    // The library's own time grows with the square of the nesting.
                    if brackets.max(dashes) > DEEPEST {
                        return Err(YamlError {
                            line: Some(index + 1),
                            what: format!("nested more than {DEEPEST} deep"),
                            remedy: "close what is open; nothing here nests so deep".to_owned(),
                        });
                    }
                    node_begins = match c {
                        '[' | '{' | ',' => true,
                        ' ' => node_begins || matches!(before, ':' | '-' | '?'),
                        ':' | '-' | '?' => false,
                        _ => false,
                    };
                }
            }
            before = c;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Tree {
    depth: usize,
}

impl Tree {
    fn deeper<E: serde::de::Error>(self) -> Result<Tree, E> {
        if self.depth >= DEEPEST {
            return Err(E::custom(format!("nested more than {DEEPEST} deep")));
        }
        Ok(Tree { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, a list, a word or a number of at most 64 bits")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(match Number::from_f64(value) {
            Some(number) => Value::Number(number),
            None if value.is_nan() => "nan".into(),
            None if value > 0.0 => "inf".into(),
            None => "-inf".into(),
        })
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key_seed(Key { stop_at: None, seen: Some(&map) })? {
            let value = access.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// A key as text. An error raised here carries the key's own line.
struct Key<'a> {
    stop_at: Option<&'a str>,
    seen: Option<&'a Map<String, Value>>,
}

impl Key<'_> {
    fn accept<E: serde::de::Error>(self, key: String) -> Result<String, E> {
        if self.stop_at == Some(&key) {
            return Err(E::custom("found"));
        }
        if self.seen.is_some_and(|map| map.contains_key(&key)) {
            return Err(E::custom(format!("duplicate key `{key}`")));
        }
        Ok(key)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word as key")
    }
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<String, E> {
        self.accept(value.to_owned())
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<String, E> {
        self.accept(value.to_string())
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<String, E> {
        self.accept(value.to_string())
    }
}

/// The line where the value at a path (`tensors.q.shape[1]`) begins, or its nearest ancestor's. The
/// library tells lines only with errors, so the text is read again and stopped there; this happens
/// once, for an error that is about to be shown.
pub(crate) fn line_of(text: &str, path: &str) -> Option<usize> {
    let steps: Vec<&str> =
        path.split(['.', '[', ']']).filter(|step| !step.is_empty() && *step != "?").collect();
    (1..=steps.len()).rev().find_map(|taken| {
        let error = Locate { steps: &steps[..taken] }
            .deserialize(serde_yaml::Deserializer::from_str(text))
            .err()?;
        error.to_string().contains("found").then(|| error.location().map(|l| l.line()))?
    })
}

struct Locate<'a> {
    steps: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! ignored {
    ($($visit:ident: $type:ty),*) => { $(
        fn $visit<E: serde::de::Error>(self, _: $type) -> Result<(), E> {
            if self.steps.is_empty() { Err(E::custom("found")) } else { Ok(()) }
        }
    )* };
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    ignored!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.steps.split_first() else {
            return Err(A::Error::custom("found"));
        };
        let wanted = step.parse::<usize>().ok();
        for index in 0.. {
            // Elsewhere nothing is looked for: no key is empty.
            let steps = if wanted == Some(index) { rest } else { &[""][..] };
            if access.next_element_seed(Locate { steps })?.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.steps.split_first() else {
            return Err(A::Error::custom("found"));
        };
        let stop_at = rest.is_empty().then_some(*step);
        while let Some(key) = access.next_key_seed(Key { stop_at, seen: None })? {
            let steps = if key == *step { rest } else { &[""][..] };
            access.next_value_seed(Locate { steps })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> YamlError {
        parse(text, 1 << 20).expect_err("acceptable")
    }

    #[test]
    fn lines_of_paths() {
        let text = "a: 1\nb:\n  c: {d: 2,\n    e: [1, 2,\n  3]}\nf:\n- x\n- y: 1\n";
        for (path, line) in [
            ("a", 1),
            ("b", 2),
            ("b.c", 3),
            ("b.c.d", 3),
            ("b.c.e", 4),
            ("b.c.e[2]", 5),
            ("f[1].y", 8),
        ] {
            assert_eq!(line_of(text, path), Some(line), "{path}");
        }
        assert_eq!(line_of(text, "b.missing"), Some(2), "the parent's line");
        assert_eq!(line_of(text, "missing"), None);
    }

    #[test]
    fn one_meaning_only() {
        assert!(refused("a: 1\nb: {c: 1, c: 2}\n").what.contains("duplicate key `c`"));
        assert_eq!(refused("a: 1\nb: {c: 1, c: 2}\n").line, Some(2));
        for text in ["a: &x 1\n", "a: *x\n", "a: [*x]\n", "- &x 1\n", "a: !t 1\n", "&x a: 1\n"] {
            assert!(refused(text).what.contains("anchor"), "{text}");
        }
        for text in
            ["a: \"2 * *x\"\n", "a: 2 * 3\n", "a: 'it''s *x'\n", "a: 1 # *x\n", "a: \"\\\"*x\"\n"]
        {
            assert!(parse(text, 100).is_ok(), "{text}");
        }
        assert!(refused("a: 1\n---\nb: 2\n").what.contains("more than one document"));
        assert_eq!(parse("\u{feff}a: 1\n", 99), parse("a: 1\n", 99));
        assert!(refused(&format!("a: {}{}", "[".repeat(40), "]".repeat(40))).what.contains("deep"));
        assert!(parse("a: 12345", 4).expect_err("too long").what.contains("limit"));
        assert!(refused("a: [1, 2\nb: 3\n").line.is_some());
    }

    #[test]
    fn numbers_beyond_json_are_words() {
        let tree = parse("[.nan, .inf, -.inf, 0xffffffffffffffff, 1.5]", 100).expect("tree");
        assert_eq!(tree, serde_json::json!(["nan", "inf", "-inf", u64::MAX, 1.5]));
    }
}
