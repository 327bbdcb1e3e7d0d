//! Which lines of the kernels' sources a change touches, from `git diff`: a mutant elsewhere says
//! nothing about the change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// The folder of the sources that PTX lines name.
const SOURCES: &str = "kernels/cuda/";

/// Changed files, and of each the lines as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    files: BTreeMap<String, Vec<Range<u32>>>,
}

impl Changes {
    /// What the working tree of `repository` changes against `reference`.
    ///
    /// # Errors
    /// When git cannot say; the text names the way out.
    pub fn since(repository: &Path, reference: &str) -> Result<Changes, String> {
        if reference.starts_with('-') {
            return Err(format!("`{reference}` is no revision; name a branch, tag or commit"));
        }
        let output = Command::new("git")
            .arg("-C")
            .arg(repository)
            .args(["diff", "--no-color", "--no-ext-diff", "--unified=0", reference, "--"])
            .output()
            .map_err(|error| format!("git cannot be run: {error}; --in-diff needs it"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("no message").to_owned();
            return Err(format!("git diff {reference}: {said}; name a revision this checkout has"));
        }
        Ok(Changes::of(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Reads a diff without context lines.
    fn of(diff: &str) -> Changes {
        let mut files: BTreeMap<String, Vec<Range<u32>>> = BTreeMap::new();
        let mut file = None;
        for line in diff.lines() {
            if let Some(name) = line.strip_prefix("+++ ") {
                file = name.strip_prefix("b/").map(str::to_owned);
                if let Some(name) = &file {
                    files.entry(name.clone()).or_default();
                }
            } else if let Some(rest) = line.strip_prefix("@@ ")
                && let Some(name) = &file
                && let Some(now) = rest.split(' ').find_map(|part| part.strip_prefix('+'))
            {
                let (first, count) = now.split_once(',').unwrap_or((now, "1"));
                if let (Ok(first), Ok(count)) = (first.parse::<u32>(), count.parse::<u32>()) {
                    // What was only deleted shows in the lines on either side.
                    let lines = if count == 0 { first..first + 2 } else { first..first + count };
                    files.entry(name.clone()).or_default().push(lines);
                }
            }
        }
        Changes { files }
    }

    /// Whether a line of a file under the sources is among the changes.
    pub fn has_line(&self, source: &str, line: u32) -> bool {
        let ranges = self.files.get(&format!("{SOURCES}{source}"));
        ranges.is_some_and(|ranges| ranges.iter().any(|lines| lines.contains(&line)))
    }

    /// Whether this contract may have anything to do with the changes: its own files, or a header that
    /// any kernel may include.
    pub fn concerns(&self, family: &str, contract: &str) -> bool {
        let own = format!("{SOURCES}{family}/");
        let header = format!("{SOURCES}include/");
        self.judges(family, contract)
            || self.files.keys().any(|file| {
                file.starts_with(&header)
                    || file.strip_prefix(&own).is_some_and(|name| {
                        name.ends_with(".cuh") || name == format!("{contract}.cu")
                    })
            })
    }

    /// Whether what judges this contract changed: its promises, its reference or its launch. Then all
    /// of its lines are of interest.
    pub fn judges(&self, family: &str, contract: &str) -> bool {
        [
            format!("contracts/{family}/{contract}.yaml"),
            format!("reference/src/{family}/{contract}.rs"),
            format!("kernels/src/{family}/{contract}.rs"),
        ]
        .iter()
        .any(|file| self.files.contains_key(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "\
diff --git a/kernels/cuda/selection/argmax_rows.cu b/kernels/cuda/selection/argmax_rows.cu
--- a/kernels/cuda/selection/argmax_rows.cu
+++ b/kernels/cuda/selection/argmax_rows.cu
@@ -10,2 +10,3 @@ void k() {
-x
+y
@@ -40 +41 @@
@@ -50,2 +51,0 @@
diff --git a/contracts/embedding/ple_gather.yaml b/contracts/embedding/ple_gather.yaml
--- a/contracts/embedding/ple_gather.yaml
+++ b/contracts/embedding/ple_gather.yaml
@@ -1 +1 @@
diff --git a/gone.cu b/gone.cu
--- a/gone.cu
+++ /dev/null
@@ -1,9 +0,0 @@
";

    #[test]
    fn changed_lines_are_those_of_the_new_text() {
        let changes = Changes::of(DIFF);
        let changed: Vec<_> =
            (1..60).filter(|line| changes.has_line("selection/argmax_rows.cu", *line)).collect();
        assert_eq!(changed, [10, 11, 12, 41, 51, 52]);
        assert!(!changes.has_line("selection/row_topk.cu", 10));
    }

    #[test]
    fn a_changed_promise_makes_all_of_its_kernel_interesting() {
        let changes = Changes::of(DIFF);
        assert!(changes.judges("embedding", "ple_gather"));
        assert!(!changes.judges("selection", "argmax_rows"));
        assert!(changes.concerns("selection", "argmax_rows"));
        assert!(!changes.concerns("selection", "row_topk"));
    }

    #[test]
    fn what_is_no_revision_is_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = Changes::since(here, "no-such-revision").expect_err("no such revision");
        assert!(error.contains("no-such-revision"), "{error}");
        let error = Changes::since(here, "--output=x").expect_err("an option");
        assert!(error.contains("is no revision"), "{error}");
    }
}
