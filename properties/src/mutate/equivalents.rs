//! Mutants declared to be no other kernel: `kernels/cuda/equivalent.tsv`, one a line, with the reason. A
//! declaration speaks of a source line and the shape of the edit, so that it outlives new register
//! names; `*` stands for every contract, and `-` for the file and line of code that the compiler moved
//! away from its line. It is never taken at its word: the mutant must leave the kernel's own bits in
//! every case.
//! `kernels/cuda/survivors.tsv` is written alike and excuses nobody: it says why a survivor lives.

use super::sample::Mutant;
use std::fmt;
use std::path::{Path, PathBuf};

/// The file, under the sources of the kernels.
pub const FILE: &str = "equivalent.tsv";
/// The file that explains survivors, likewise.
pub const SURVIVORS: &str = "survivors.tsv";

/// In place of a contract: all of them.
const EVERY: &str = "*";
/// In place of a file and a line: an edit whose place the compiler does not tell.
const NO_PLACE: &str = "-";

/// Every declaration.
#[derive(Clone, Debug, Default)]
pub struct Equivalents {
    all: Vec<Declaration>,
    /// The lines of each source file that a declaration names, blanks at their ends removed.
    sources: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Debug)]
struct Declaration {
    contract: String,
    file: String,
    /// The source line, blanks at its ends removed.
    text: String,
    /// The edit without register names: see [`shape`].
    shape: String,
    reason: String,
}

/// Why a table tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// It is not there or cannot be read. Without it every equivalent would count as a survivor.
    Unreadable {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A line of it is no declaration.
    Line {
        /// The table.
        file: &'static str,
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: &'static str,
    },
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTable::Unreadable { path, why } => write!(
                f,
                "{}: {why}; run in the root of a checkout, or restore the table, which may hold no line",
                path.display()
            ),
            BadTable::Line { file, line, what, remedy } => {
                write!(f, "kernels/cuda/{file}:{line}: {what}; {remedy}")
            }
        }
    }
}

impl std::error::Error for BadTable {}

impl Equivalents {
    /// Reads the declarations under `root`, the folder of the sources.
    ///
    /// # Errors
    /// When the file is missing or cannot be read, or a line is no declaration or names a line its
    /// source lacks.
    pub fn read(root: &Path, file: &'static str) -> Result<Equivalents, BadTable> {
        let path = root.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => Equivalents::of_text(&text, root, file),
            Err(error) => Err(BadTable::Unreadable { path, why: error.to_string() }),
        }
    }

    fn of_text(text: &str, root: &Path, table: &'static str) -> Result<Equivalents, BadTable> {
        let mut found = Equivalents::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let bad =
                |what, remedy| Err(BadTable::Line { file: table, line: at + 1, what, remedy });
            let fields: Vec<&str> = line.split('\t').collect();
            let [contract, file, source, shape, reason] = fields[..] else {
                let what = format!("{} fields", fields.len());
                return bad(what, "write five: contract, file, source line, edit, reason");
            };
            if contract != EVERY && crate::subject::subject(contract).is_none() {
                let what = format!("no contract is named `{contract}`");
                return bad(what, "name one that `cargo run --release -- list` shows, or `*`");
            }
            if reason.trim().is_empty() {
                return bad("no reason".to_owned(), "say why the edit changes nothing");
            }
            if (file, source) != (NO_PLACE, NO_PLACE) {
                if let Err(error) = found.add_source(root, file) {
                    return bad(error, "name a file under kernels/cuda, or `-` with the line `-`");
                }
                if !found.lines_of(file).iter().any(|one| one == source) {
                    let what = format!("`{source}` is no line of {file}");
                    return bad(what, "copy the line as it is now, or remove the declaration");
                }
            }
            found.all.push(Declaration {
                contract: contract.to_owned(),
                file: file.to_owned(),
                text: source.to_owned(),
                shape: shape.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(found)
    }

    /// The reason declared for a mutant.
    pub fn reason_for(&self, contract: &str, mutant: &Mutant) -> Option<&str> {
        let (file, text) = match &mutant.source {
            Some((file, line)) => {
                let text = self.lines_of(file).get((*line as usize).checked_sub(1)?)?;
                (file.as_str(), text.as_str())
            }
            None => (NO_PLACE, NO_PLACE),
        };
        let shape = shape(&mutant.was, &mutant.now);
        let speaks_of = |one: &&Declaration| {
            (one.contract == contract || one.contract == EVERY)
                && (one.file.as_str(), one.text.as_str()) == (file, text)
                && one.shape == shape
        };
        self.all.iter().find(speaks_of).map(|one| one.reason.as_str())
    }

    fn add_source(&mut self, root: &Path, file: &str) -> Result<(), String> {
        if self.sources.iter().all(|(known, _)| known != file) {
            let text =
                kernels::ptx::sources::read(root, file).map_err(|error| error.to_string())?;
            let lines = text.lines().map(|line| line.trim().to_owned()).collect();
            self.sources.push((file.to_owned(), lines));
        }
        Ok(())
    }

    fn lines_of(&self, file: &str) -> &[String] {
        self.sources.iter().find(|(known, _)| known == file).map_or(&[], |(_, lines)| lines)
    }
}

/// An edit without the names that a recompilation changes: `setp.lt.s32 _, _, 4 > setp.le.s32 _, _, 4`;
/// nothing after the `>` of an instruction left out.
pub fn shape(was: &str, now: &str) -> String {
    format!("{} > {}", unnamed(was), unnamed(now)).trim_end().to_owned()
}

fn unnamed(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim().trim_end_matches(';').chars().peekable();
    while let Some(c) = rest.next() {
        if c == '%' || c == '$' {
            while rest.next_if(|c| c.is_ascii_alphanumeric() || "_$.".contains(*c)).is_some() {}
            out.push('_');
        } else if c.is_whitespace() {
            while rest.next_if(|c| c.is_whitespace()).is_some() {}
            out.push(' ');
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::operators::Operator;

    const SOURCE: &str = "int a;\n  const bool aligned = (x & 15u) == 0;\n";
    const LINE: &str = "const bool aligned = (x & 15u) == 0;";

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("f")).expect("a folder");
        std::fs::write(root.path().join("f/k.cu"), SOURCE).expect("a file");
        root
    }

    fn mutant(line: u32, now: &str) -> Mutant {
        Mutant {
            operator: Operator::DeadPredicate,
            stem: "k",
            entry: "k".to_owned(),
            line: 9,
            source: Some(("f/k.cu".to_owned(), line)),
            was: "\t@%p5 bra \t$L__BB0_7;".to_owned(),
            now: now.to_owned(),
            block: 0,
        }
    }

    #[test]
    fn a_declaration_speaks_of_its_line_and_edit_alone() {
        let root = root();
        let text =
            format!("# comment\nargmax_rows\tf/k.cu\t{LINE}\t@_ bra _ >\tboth paths agree\n");
        let declared = Equivalents::of_text(&text, root.path(), FILE).expect("a declaration");
        let reason = |contract, mutant| declared.reason_for(contract, &mutant);
        assert_eq!(reason("argmax_rows", mutant(2, "")), Some("both paths agree"));
        assert_eq!(reason("argmax_rows", mutant(1, "")), None, "another line");
        assert_eq!(reason("row_topk", mutant(2, "")), None, "another contract");
        assert_eq!(reason("argmax_rows", mutant(2, "\tbra \t$L__BB0_7;")), None, "another edit");
    }

    #[test]
    fn a_declaration_may_speak_of_every_contract_and_of_no_line() {
        let root = root();
        let text = format!(
            "*\tf/k.cu\t{LINE}\t@_ bra _ >\tof a header\nrow_topk\t-\t-\t@_ bra _ >\tmoved\n"
        );
        let declared = Equivalents::of_text(&text, root.path(), FILE).expect("declarations");
        let reason = |contract, mutant: &Mutant| declared.reason_for(contract, mutant);
        let (placed, moved) = (mutant(2, ""), Mutant { source: None, ..mutant(2, "") });
        assert_eq!(reason("argmax_rows", &placed), Some("of a header"));
        assert_eq!(reason("row_topk", &placed), Some("of a header"));
        assert_eq!(reason("row_topk", &moved), Some("moved"));
        assert_eq!(reason("argmax_rows", &moved), None, "another contract");
        assert_eq!(reason("row_topk", &mutant(1, "")), None, "another line is no missing one");
    }

    #[test]
    fn a_bad_declaration_is_named_with_its_line() {
        let root = root();
        for (line, part) in [
            ("argmax_rows\tf/k.cu", "2 fields"),
            (&*format!("nobody\tf/k.cu\t{LINE}\tx\ty"), "`nobody`"),
            (&*format!("argmax_rows\t-\t{LINE}\tx\ty"), "`-`"),
            ("argmax_rows\tf/k.cu\t-\tx\ty", "`-` is no line"),
            (&*format!("argmax_rows\tf/k.cu\t{LINE}\tx\t "), "no reason"),
            (&*format!("argmax_rows\tf/l.cu\t{LINE}\tx\ty"), "f/l.cu"),
            ("argmax_rows\tf/k.cu\tint b;\tx\ty", "`int b;` is no line"),
        ] {
            let error = Equivalents::of_text(&format!("#\n{line}\n"), root.path(), FILE)
                .expect_err(line)
                .to_string();
            assert!(error.contains(":2: ") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_missing_table_is_an_error_and_an_empty_one_is_none() {
        let root = root();
        let error = Equivalents::read(root.path(), SURVIVORS).expect_err("no table").to_string();
        let path = root.path().join(SURVIVORS);
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(error.contains("restore the table"), "{error}");
        std::fs::write(&path, "# nothing is explained\n").expect("a file");
        let empty = Equivalents::read(root.path(), SURVIVORS).expect("a table");
        assert_eq!(empty.reason_for("argmax_rows", &mutant(2, "")), None);
    }

    #[test]
    fn shapes_forget_registers_and_labels_only() {
        let shape = shape("\tsetp.lt.s32 \t%p1, %r22, 4;", "\tsetp.le.s32\t%p1, %r22, 4;");
        assert_eq!(shape, "setp.lt.s32 _, _, 4 > setp.le.s32 _, _, 4");
        assert_eq!(super::shape("@!%p1 bra $L__BB0_3;", ""), "@!_ bra _ >");
    }
}
