//! Replays: one line a case that stands as it should, the whole finding for one that does not.

use super::finding::{finding, finding_json};
use super::paint::Paint;
use crate::replay::{Meaning, Replay};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The replays for a terminal, ending in a newline; with the time they took, the rate as well.
pub fn replays(replays: &[Replay], elapsed: Option<Duration>) -> String {
    let paint = Paint::stdout();
    let mut out = String::new();
    for replay in replays {
        let place = format!("{} on {}", replay.path.display(), replay.backend);
        let _ = match &replay.meaning {
            Meaning::Passes => writeln!(out, "{} {place}", paint.faint("passes   ")),
            Meaning::Tolerated(issue) => {
                writeln!(out, "{} {place}, known: {issue}", paint.strong("tolerated"))
            }
            Meaning::Undecided => {
                writeln!(out, "{} {place}: {}", paint.strong("undecided"), replay.verdict)
            }
            Meaning::PassesUnexpectedly(issue) => writeln!(
                out,
                "{} {place} though known_failures.yaml says it fails ({issue}); remove its entry",
                paint.bad("passes   ")
            ),
            Meaning::Fails => {
                writeln!(out, "{} {place}\n{}", paint.bad("fails    "), shown(replay))
            }
            Meaning::FailsOtherwise(clause) => writeln!(
                out,
                "{} {place} though known_failures.yaml tolerates only {clause}\n{}",
                paint.bad("fails    "),
                shown(replay)
            ),
        };
    }
    let failed = replays.iter().filter(|replay| replay.is_failure()).count();
    let count = |is: fn(&Meaning) -> bool| replays.iter().filter(|r| is(&r.meaning)).count();
    let mut end = format!(
        "{failed} of {} replays not as they should be, {} failing as known, {} undecided",
        replays.len(),
        count(|meaning| matches!(meaning, Meaning::Tolerated(_))),
        count(|meaning| *meaning == Meaning::Undecided),
    );
    if let Some(elapsed) = elapsed {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let _ = write!(end, "; {seconds:.2} s, {:.0} a second", replays.len() as f64 / seconds);
    }
    let _ = writeln!(out, "{}", if failed > 0 { paint.bad(&end) } else { end });
    out
}

fn shown(replay: &Replay) -> String {
    finding(replay.subject, &replay.case, &replay.verdict, Some(&replay.path))
}

/// The replays under stable keys.
pub fn replays_json(replays: &[Replay]) -> Value {
    let one = |replay: &Replay| {
        let (meaning, issue) = match &replay.meaning {
            Meaning::Passes => ("passes", None),
            Meaning::Fails | Meaning::FailsOtherwise(_) => ("fails", None),
            Meaning::Tolerated(issue) => ("tolerated", Some(issue)),
            Meaning::PassesUnexpectedly(issue) => ("passes_unexpectedly", Some(issue)),
            Meaning::Undecided => ("undecided", None),
        };
        let mut value =
            finding_json(replay.subject, &replay.case, &replay.verdict, Some(&replay.path));
        value["backend"] = json!(replay.backend);
        value["meaning"] = json!(meaning);
        value["issue"] = json!(issue);
        value["failure"] = json!(replay.is_failure());
        value
    };
    replays.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Seeded;
    use crate::verdict::Verdict;

    fn replay(meaning: Meaning, verdict: Verdict) -> Replay {
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let case = crate::generate::draw(subject, &mut Seeded { seed: 1 }).expect("drawn").case;
        Replay {
            path: "corpora/argmax_rows/x.yaml".into(),
            subject,
            case,
            backend: "vm",
            verdict,
            meaning,
        }
    }

    #[test]
    fn each_meaning_has_a_line_and_the_last_line_counts() {
        let link = "https://example.org/1".to_owned();
        let all = [
            replay(Meaning::Passes, Verdict::Agree),
            replay(Meaning::Undecided, Verdict::Unsupported("wgmma".to_owned())),
            replay(Meaning::PassesUnexpectedly(link.clone()), Verdict::Agree),
            replay(
                Meaning::Tolerated(link),
                Verdict::Unsupported("stands for a failure".to_owned()),
            ),
        ];
        let expected = "\
passes    corpora/argmax_rows/x.yaml on vm
undecided corpora/argmax_rows/x.yaml on vm: unsupported: wgmma
passes    corpora/argmax_rows/x.yaml on vm though known_failures.yaml says it fails (https://example.org/1); \
remove its entry
tolerated corpora/argmax_rows/x.yaml on vm, known: https://example.org/1
1 of 4 replays not as they should be, 1 failing as known, 1 undecided; 0.50 s, 8 a second
";
        // Colour depends on who runs the test.
        let text = replays(&all, Some(Duration::from_millis(500)));
        let plain = ["\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"]
            .iter()
            .fold(text, |text, code| text.replace(code, ""));
        assert_eq!(plain, expected);
        let json = replays_json(&all);
        assert_eq!(
            (&json[2]["meaning"], &json[2]["failure"]),
            (&json!("passes_unexpectedly"), &json!(true))
        );
        assert_eq!(json[1]["because"], "wgmma");
        let otherwise = Meaning::FailsOtherwise("house.races".to_owned());
        let otherwise = [replay(otherwise, Verdict::Unsupported("a failure".to_owned()))];
        assert!(otherwise[0].is_failure() && replays_json(&otherwise)[0]["meaning"] == "fails");
        let text = replays(&otherwise, None);
        let said =
            "x.yaml on vm though known_failures.yaml tolerates only house.races\nargmax_rows ";
        assert!(text.contains(said), "{text}");
    }
}
