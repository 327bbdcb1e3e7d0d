//! The protocol that ships loads; nonsense is refused with its place; the table answers as it is written.

use contracts::protocol::{Protocol, Refused, Standing, parse_protocol};

fn shipped() -> &'static str {
    contracts::source("speculative_round").expect("a source")
}

fn protocol() -> &'static Protocol {
    contracts::protocol_contract("speculative_round").expect("it loads")
}

fn dims(name: &str) -> Option<u8> {
    (name == "capacity").then_some(12)
}

fn at(state: &str, length: u8, verify_rows: u8) -> Standing<'_> {
    Standing { state, length, verify_rows }
}

#[test]
fn it_survives_its_own_serialisation() {
    let text = serde_json::to_string(protocol()).expect("json");
    let again = parse_protocol(&text, "again").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&again, protocol());
    let read = shipped().lines().filter(|line| !line.starts_with('#')).count();
    assert!(read <= 150, "it is two contracts");
}

#[test]
fn legal_events_lead_where_the_table_says() {
    let after = |standing, event, rows| protocol().after(&dims, standing, event, rows, true);
    assert_eq!(after(protocol().start(), "prefill", 4), Ok(at("idle", 4, 0)));
    assert_eq!(after(at("idle", 4, 0), "begin", 8), Ok(at("open", 4, 8)));
    assert_eq!(after(at("open", 4, 8), "verify", 0), Ok(at("staged", 4, 8)));
    assert_eq!(after(at("staged", 4, 8), "commit", 3), Ok(at("idle", 7, 8)));
    assert_eq!(after(at("staged", 4, 8), "drop", 0), Ok(at("idle", 4, 8)));
    assert_eq!(after(at("released", 4, 8), "acquire", 0), Ok(at("idle", 0, 8)));
}

#[test]
fn the_first_refusal_that_applies_is_the_refusal() {
    let refused = |standing, event, rows, current| {
        protocol().after(&dims, standing, event, rows, current).expect_err(event)
    };
    for (standing, event, rows, current, wanted) in [
        (at("idle", 0, 0), "commit", 1, true, Refused::State),
        (at("idle", 0, 0), "commit", 1, false, Refused::StaleId),
        (at("staged", 0, 4), "commit", 5, true, Refused::Rows),
        (at("staged", 0, 4), "commit", 0, true, Refused::Rows),
        (at("idle", 4, 0), "begin", 9, true, Refused::Capacity),
        (at("idle", 4, 0), "begin", 11, true, Refused::Rows),
        (at("broken", 4, 0), "commit", 1, false, Refused::Broken),
        (at("released", 4, 0), "decode", 0, true, Refused::Released),
        (at("broken", 4, 0), "acquire", 0, true, Refused::Capacity),
        (at("idle", 4, 0), "dance", 0, true, Refused::State),
    ] {
        assert_eq!(refused(standing, event, rows, current), wanted, "{event} of {standing:?}");
    }
}

#[test]
fn nonsense_is_refused_with_its_place() {
    for (from, to, path, what) in [
        ("to: open", "to: opened", "events.begin", "write `open`"),
        ("from: [open], to: staged", "from: [], to: staged", "events.verify", "legal nowhere"),
        ("rows <= verify_rows", "rows <= verify_row", "events.commit.requires.rows", "verify_row"),
        ("publishes: \"1\"", "publishes: rows", "events.decode.publishes", "declared nowhere"),
        ("publishes: \"1\"", "publishes: \"1 == 1\"", "events.decode.publishes", "integer"),
        (
            "requires: {capacity: \"length + 1",
            "requires: {room: \"length + 1",
            "events.decode",
            "no refusal",
        ),
        ("\"length + 1 <= capacity\"", "\"length + 1\"", "events.decode.requires", "condition"),
        ("range: [4, 24]", "range: [24, 4]", "dims.capacity", "no number"),
        ("capacity:         {", "length:           {", "dims.length", "counter"),
        ("killed_by: [fresh_slot]", "killed_by: [fresh]", "mutants.slot_reuse_leaks", "fresh"),
        ("killed_by: [fresh_slot]", "killed_by: []", "mutants.slot_reuse_leaks", "nothing kills"),
        ("events: 40", "events: 4", "limits", "too short"),
        ("kind: protocol", "kind: kernel", "kind", "protocol"),
        ("launches: 6", "launches: 0", "events.verify", "no launch"),
        (
            "once: idle, lasting: broken}}\n  abort",
            "once: idle, lasting: brokn}}\n  abort",
            "events.commit",
            "`broken`",
        ),
        (
            "history: []",
            "history: [{version: 1, because: \"\", link: x}]",
            "history[0]",
            "no reason",
        ),
        ("summary:", "sumary:", "", "summary"),
    ] {
        assert!(shipped().contains(from), "{from}");
        let text = shipped().replacen(from, to, 1);
        let error = parse_protocol(&text, "x.yaml").expect_err(to).to_string();
        assert!(error.contains(path) && error.contains(what), "{to}: {error}");
        assert!(error.starts_with("x.yaml"), "{error}");
    }
}
