//! The JSON Schema and the loader agree on every contract there is, and on slips of the pen.

use contracts::format::Contract;
use contracts::protocol::Protocol;
use serde_json::Value;

/// Contracts as their files say, by file name.
fn written() -> Vec<(String, Value)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for family in std::fs::read_dir(root).expect("readable") {
        let family = family.expect("readable").path();
        if !family.is_dir() || family.ends_with("src") || family.ends_with("tests") {
            continue;
        }
        for file in std::fs::read_dir(&family).expect("readable") {
            let file = file.expect("readable").path();
            let text = std::fs::read_to_string(&file).expect("readable");
            let name = file.display().to_string();
            all.push((name.clone(), contracts::load::parse_yaml(&text, &name).expect("YAML")));
        }
    }
    all
}

/// Whether a value satisfies a schema: the keywords that ours uses. Another one is a panic, so that
/// none is passed over.
fn satisfies(schema: &Value, root: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return schema.as_bool().expect("a schema") };
    let holds = |(keyword, rule): (&String, &Value)| match keyword.as_str() {
        "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
        "$ref" => {
            let name = rule.as_str().and_then(|path| path.strip_prefix("#/$defs/"));
            satisfies(&root["$defs"][name.expect("a definition")], root, value)
        }
        "type" => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind, value)),
            kind => is_a(kind, value),
        },
        "enum" => rule.as_array().expect("a list").contains(value),
        "const" => rule == value,
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().expect("a number")),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().expect("a number")),
        "minItems" => value.as_array().is_none_or(|all| all.len() as u64 >= count(rule)),
        "maxItems" => value.as_array().is_none_or(|all| all.len() as u64 <= count(rule)),
        "items" => {
            value.as_array().is_none_or(|all| all.iter().all(|one| satisfies(rule, root, one)))
        }
        "anyOf" => any(rule, root, value) >= 1,
        "oneOf" => any(rule, root, value) == 1,
        "required" => value.as_object().is_none_or(|map| {
            let names = rule.as_array().expect("a list");
            names.iter().all(|name| map.contains_key(name.as_str().expect("a name")))
        }),
        "properties" => value.as_object().is_none_or(|map| {
            map.iter().all(|(name, one)| rule.get(name).is_none_or(|r| satisfies(r, root, one)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = |name: &String| schema["properties"].get(name).is_some();
            map.iter().filter(|(name, _)| !known(name)).all(|(_, one)| satisfies(rule, root, one))
        }),
        other => panic!("the schema has the keyword `{other}`, which this test does not know"),
    };
    keywords.iter().all(holds)
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("`{other}` is no type"),
    }
}

fn count(rule: &Value) -> u64 {
    rule.as_u64().expect("a count")
}

fn any(rules: &Value, root: &Value, value: &Value) -> usize {
    let rules = rules.as_array().expect("a list");
    rules.iter().filter(|rule| satisfies(rule, root, value)).count()
}

#[test]
fn every_contract_satisfies_the_schema() {
    let contracts = written();
    assert!(contracts.len() >= 5, "only {} contracts", contracts.len());
    let (kernels, protocols) = (Contract::json_schema(), Protocol::json_schema());
    for (file, contract) in contracts {
        let schema = if contract["kind"] == "protocol" { &protocols } else { &kernels };
        // Section by section, so that a failure says where.
        for (section, content) in contract.as_object().expect("a map") {
            let rule = &schema["properties"][section];
            assert!(satisfies(rule, schema, content), "{file}: {section} breaks the schema");
        }
        assert!(satisfies(schema, schema, &contract), "{file}");
    }
}

#[test]
fn slips_of_the_pen_are_told_while_writing() {
    let schema = Contract::json_schema();
    let (_, contract) =
        written().into_iter().find(|(file, _)| file.ends_with("gdn_chunk.yaml")).expect("there");
    let mut slips: Vec<(&str, Value)> = Vec::new();
    let mut slip = |name: &'static str, edit: &dyn Fn(&mut Value)| {
        let mut edited = contract.clone();
        edit(&mut edited);
        slips.push((name, edited));
    };
    slip("a section misspelt", &|c| c["tolerances"] = c["tolerance"].clone());
    slip("a missing section", &|c| drop(c.as_object_mut().expect("a map").remove("tolerance")));
    slip("an unknown access", &|c| c["tensors"]["q"]["access"] = "reed".into());
    slip("an unknown layout", &|c| c["tensors"]["q"]["layout"] = serde_json::json!(["dence"]));
    slip("an unknown dtype", &|c| c["dtypes"]["io"] = serde_json::json!(["f23"]));
    slip("an unknown generator", &|c| {
        c["tensors"]["v"]["values"] = serde_json::json!([{"norml": 1.0}])
    });
    slip("an unknown field", &|c| c["tensors"]["q"]["aling"] = 16.into());
    for (name, slip) in slips {
        assert!(!satisfies(&schema, &schema, &slip), "{name} passes the schema");
    }
}

#[test]
fn slips_in_a_protocol_are_told_while_writing() {
    let schema = Protocol::json_schema();
    let (_, protocol) = written()
        .into_iter()
        .find(|(file, _)| file.ends_with("speculative_round.yaml"))
        .expect("there");
    for (name, pointer, slip) in [
        ("an unknown refusal", "/states/broken/refuses", serde_json::json!("brokn")),
        ("a range of one", "/dims/capacity/range", serde_json::json!([4])),
        ("a word for a number", "/limits/events", serde_json::json!("many")),
        ("an event that is a list", "/events/begin", serde_json::json!([])),
    ] {
        let mut edited = protocol.clone();
        *edited.pointer_mut(pointer).expect(name) = slip;
        assert!(!satisfies(&schema, &schema, &edited), "{name} passes the schema");
    }
}
