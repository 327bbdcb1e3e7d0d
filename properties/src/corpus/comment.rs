//! The comment above a stored case: what it shows and how to see it again, as the tool writes it; below
//! that, whatever people wrote, which no rewriting loses.

use super::{describe, replay_command};
use crate::verdict::Verdict;
use contracts::case::Case;
use std::path::Path;

/// How the last line that the tool writes begins.
const LAST_LINE: &str = "cargo run --release -- replay ";
/// How the line above it begins where the tool wrote the case anew under the name of what it was.
const REWRITTEN: &str = "rewritten, digest ";

/// What it shows, and how to see it again.
pub fn comment(path: &Path, root: &Path, case: &Case, verdict: &Verdict) -> String {
    format!("{verdict}\n{}\n{}", describe(case), replay_command(path, root))
}

/// The comment of a case that takes the place of the one in `text`: the tool's lines anew (`fresh`; as
/// they are when there are none), the others as they are. A `digest` of what is written is noted among
/// the tool's.
pub(super) fn rewritten_comment(text: &str, fresh: Option<&str>, digest: Option<&str>) -> String {
    let (tool, people) = split(text);
    let tool = fresh.map_or(tool, |fresh| fresh.lines().collect());
    let mut lines: Vec<String> = tool.into_iter().map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with(REWRITTEN));
    if let (Some(digest), Some(last)) = (digest, lines.len().checked_sub(1)) {
        lines.insert(last, format!("{REWRITTEN}{digest}"));
    }
    lines.extend(people.into_iter().map(str::to_owned));
    lines.join("\n")
}

/// What the tool noted when it wrote the case anew.
pub(super) fn rewritten_digest(text: &str) -> Option<&str> {
    split(text).0.into_iter().find_map(|line| line.strip_prefix(REWRITTEN))
}

/// The comment lines that people wrote, wherever they stand.
pub(super) fn of_people(text: &str) -> Vec<&str> {
    split(text).1
}

/// The comment lines of a file without their mark: the tool's, from the top to its last line, and the
/// others. A comment at the end of a line counts as one too.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let head: Vec<&str> = text.lines().map_while(marked).collect();
    let ends = head.iter().position(|line| line.starts_with(LAST_LINE)).map_or(0, |last| last + 1);
    let (tool, rest) = head.split_at(ends);
    let below = text.lines().skip(head.len()).filter_map(|line| match marked(line) {
        Some(comment) => Some(comment),
        None => line.split_once(" # ").map(|(_, comment)| comment.trim()),
    });
    (tool.to_vec(), rest.iter().copied().chain(below).collect())
}

fn marked(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix('#')?;
    Some(comment.strip_prefix(' ').unwrap_or(comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# house.bounds: past the end\n# at line 3\n# cargo run --release -- replay x.yaml\n\
                        # shown by the mutant reads_pad\ncase: 1\n# why two rows\ndims: {R: 2} # and not one\n";

    #[test]
    fn what_people_wrote_stays_when_the_tool_writes_anew() {
        assert_eq!(
            of_people(TEXT),
            ["shown by the mutant reads_pad", "why two rows", "and not one"]
        );
        assert_eq!(
            rewritten_comment(TEXT, Some("new\ncargo run --release -- replay y.yaml"), None),
            "new\ncargo run --release -- replay y.yaml\nshown by the mutant reads_pad\nwhy two rows\nand not one"
        );
        assert!(
            rewritten_comment(TEXT, None, None)
                .starts_with("house.bounds: past the end\nat line 3\ncargo")
        );
    }

    #[test]
    fn a_digest_is_noted_once_among_the_lines_of_the_tool() {
        let noted = |text: &str, digest| {
            let comment = rewritten_comment(text, None, Some(digest));
            comment.lines().map(|line| format!("# {line}\n")).collect::<String>() + "case: 1\n"
        };
        let once = noted(TEXT, "1a2b");
        assert!(once.contains("# at line 3\n# rewritten, digest 1a2b\n# cargo run"), "{once}");
        assert_eq!((rewritten_digest(&once), rewritten_digest(TEXT)), (Some("1a2b"), None));
        let twice = noted(&once, "3c4d");
        assert_eq!(rewritten_digest(&twice), Some("3c4d"));
        assert_eq!(of_people(&twice), of_people(TEXT), "{twice}");
        // A file without the tool's lines is all of people, and stays so.
        assert_eq!(rewritten_comment("# by hand\ncase: 1\n", None, Some("1a2b")), "by hand");
    }

    #[test]
    fn a_file_that_the_tool_did_not_write_is_all_of_people() {
        assert_eq!(of_people("# by hand\ncase: 1\n"), ["by hand"]);
        assert_eq!(of_people("case: 1\n"), Vec::<&str>::new());
    }
}
