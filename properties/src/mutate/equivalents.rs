//! Mutants declared to be no other kernel: `kernels/cuda/equivalent.tsv`, one a line, each with a
//! reason and the evidence that is checked again whenever the mutant turns up. A declaration speaks of
//! a source line and the shape of the edit, so that it outlives new register names.

use super::judge::Fate;
use super::sample::Mutant;
use std::fmt;
use std::path::Path;

/// The file, under the sources of the kernels.
pub const FILE: &str = "equivalent.tsv";

/// Every declaration.
#[derive(Clone, Debug, Default)]
pub struct Equivalents {
    all: Vec<Declaration>,
    /// The text of each source file that a declaration names.
    sources: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Debug)]
struct Declaration {
    contract: String,
    file: String,
    /// The source line, blanks at its ends removed.
    text: String,
    /// The edit with registers blanked: see [`shape`].
    shape: String,
    evidence: Identity,
    reason: String,
}

/// What shows that an edit changes nothing: an identity that is checked over all of its inputs, or a
/// lattice of them, when the declaration is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// At equality of two numbers, both arms of the choice between them are that number.
    EqualArms,
    /// A sum of which one term is zero is the same as the difference.
    ZeroTerm,
    /// Truncation and rounding up of a whole number are that number.
    WholeNumber,
}

impl Identity {
    const ALL: [(&'static str, Identity); 3] = [
        ("equal_arms", Identity::EqualArms),
        ("zero_term", Identity::ZeroTerm),
        ("whole_number", Identity::WholeNumber),
    ];

    /// Checks the identity.
    pub fn holds(self) -> bool {
        let bits = || (0..=u32::from(u16::MAX)).map(|high| f32::from_bits(high << 16));
        match self {
            Identity::EqualArms => (i16::MIN..=i16::MAX).all(|x| {
                let y = x;
                (if x < y { x } else { y }) == (if x <= y { x } else { y })
            }),
            Identity::ZeroTerm => bits()
                .filter(|x| !x.is_nan() && x.to_bits() != 0x8000_0000)
                .all(|x| (x + 0.0).to_bits() == (x - 0.0).to_bits()),
            Identity::WholeNumber => (-70_000i32..70_000).all(|x| {
                let x = f64::from(x);
                x.trunc() == x.ceil() && x.floor() == x.ceil()
            }),
        }
    }
}

/// A line of the file that is no declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDeclaration {
    line: usize,
    what: String,
    remedy: String,
}

impl fmt::Display for BadDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernels/cuda/{FILE}:{}: {}; {}", self.line, self.what, self.remedy)
    }
}

impl std::error::Error for BadDeclaration {}

impl Equivalents {
    /// Reads the declarations under `root`, the folder of the sources; none when there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, a line is no declaration, names a line that is not in its source,
    /// or rests on an identity that does not hold.
    pub fn read(root: &Path) -> Result<Equivalents, BadDeclaration> {
        let bad = |line, what: String, remedy: &str| BadDeclaration {
            line,
            what,
            remedy: remedy.to_owned(),
        };
        let text = match std::fs::read_to_string(root.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(bad(1, error.to_string(), "make it readable")),
        };
        let mut found = Equivalents::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let number = at + 1;
            let fields: Vec<&str> = line.split('\t').collect();
            let [contract, file, source, shape, evidence, reason] = fields[..] else {
                let what = format!("{} fields", fields.len());
                let remedy = "write six: contract, file, source line, edit, evidence, reason";
                return Err(bad(number, what, remedy));
            };
            let Some((_, evidence)) = Identity::ALL.iter().find(|(word, _)| *word == evidence)
            else {
                let known = Identity::ALL.map(|(word, _)| word).join(", ");
                let what = format!("`{evidence}` is no evidence");
                return Err(bad(number, what, &format!("write one of {known}")));
            };
            if !evidence.holds() {
                let what = "its identity does not hold".to_owned();
                return Err(bad(number, what, "the mutant is none: remove the line"));
            }
            if reason.trim().is_empty() {
                return Err(bad(
                    number,
                    "no reason".to_owned(),
                    "say why the edit changes nothing",
                ));
            }
            found
                .add_source(root, file)
                .map_err(|what| bad(number, what, "name a file under kernels/cuda"))?;
            if !found.lines_of(file).iter().any(|one| one == source) {
                let what = format!("`{source}` is no line of {file}");
                return Err(bad(
                    number,
                    what,
                    "copy the line as it is now, or remove the declaration",
                ));
            }
            found.all.push(Declaration {
                contract: contract.to_owned(),
                file: file.to_owned(),
                text: source.to_owned(),
                shape: shape.to_owned(),
                evidence: *evidence,
                reason: reason.to_owned(),
            });
        }
        Ok(found)
    }

    /// The declaration that speaks of a survivor, as its fate.
    pub fn of(&self, contract: &str, mutant: &Mutant) -> Option<Fate> {
        let (file, line) = mutant.source.as_ref()?;
        let text = self.lines_of(file).get((*line as usize).checked_sub(1)?)?;
        let shape = shape(mutant);
        let declared = self.all.iter().find(|one| {
            one.contract == contract && one.file == *file && one.text == *text && one.shape == shape
        })?;
        let word = Identity::ALL.iter().find(|(_, known)| *known == declared.evidence);
        let evidence = format!("identity {}", word.map_or("", |(word, _)| word));
        Some(Fate::Equivalent { evidence, reason: Some(declared.reason.clone()) })
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

/// An edit without the names that a recompilation changes: `setp.lt.s32 _, _, 4 > setp.le.s32 _, _, 4`.
pub fn shape(mutant: &Mutant) -> String {
    let blank = |line: &str| {
        let mut out = String::new();
        let mut words = line.trim().chars().peekable();
        while let Some(c) = words.next() {
            if c == '%' || c == '$' {
                while words.next_if(|c| c.is_ascii_alphanumeric() || "_$.".contains(*c)).is_some() {
                }
                out.push('_');
            } else if c.is_whitespace() {
                while words.next_if(|c| c.is_whitespace()).is_some() {}
                out.push(' ');
            } else {
                out.push(c);
            }
        }
        out.trim_end_matches(';').to_owned()
    };
    format!("{} > {}", blank(&mutant.was), blank(&mutant.now))
}
