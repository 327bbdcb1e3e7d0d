//! Whether two PTX texts are one program for a GPU: `ptxas` gives the same bytes for both. It is asked
//! about survivors only, so a machine without it scores the same mutants, some of them too low.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The GPU the comparison is made for; of text for that one alone, with what it alone has.
const ARCHITECTURE: &str = "sm_90";

/// `ptxas`, and the kernels it has assembled.
#[derive(Clone, Debug)]
pub struct Assembler {
    path: PathBuf,
    known: Arc<Mutex<HashMap<u64, Vec<u8>>>>,
}

/// What became of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same bytes.
    Same,
    /// Other bytes.
    Different,
    /// `ptxas` refuses the changed text, in its words.
    Refused(String),
}

impl Assembler {
    /// An assembler at this path.
    pub fn new(path: PathBuf) -> Assembler {
        Assembler { path, known: Arc::default() }
    }

    /// Compares a kernel's text with a changed one.
    ///
    /// # Errors
    /// When `ptxas` cannot be run, or refuses the kernel itself.
    pub fn compare(&self, kernel: &str, changed: &str) -> Result<Comparison, String> {
        let mut hasher = DefaultHasher::new();
        kernel.hash(&mut hasher);
        let key = hasher.finish();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let old = match known {
            Some(old) => old,
            None => {
                let old = self.assemble(kernel)?.map_err(|why| {
                    format!("{} refuses the kernel itself: {why}", self.path.display())
                })?;
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(key, old.clone());
                old
            }
        };
        Ok(match self.assemble(changed)? {
            Ok(new) if new == old => Comparison::Same,
            Ok(_) => Comparison::Different,
            Err(why) => Comparison::Refused(why),
        })
    }

    /// The machine code of a text, or why there is none.
    fn assemble(&self, text: &str) -> Result<Result<Vec<u8>, String>, String> {
        let is_special = text.lines().any(|line| line.trim() == ".target sm_90a");
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let folder = tempfile::tempdir().map_err(failed)?;
        // The file's name may stand in the code: one name for all.
        let (source, code) = (Path::new("kernel.ptx"), Path::new("kernel.cubin"));
        std::fs::write(folder.path().join(source), text).map_err(failed)?;
        let output = Command::new(&self.path)
            .current_dir(folder.path())
            .arg(format!("-arch={ARCHITECTURE}{}", if is_special { "a" } else { "" }))
            .arg("-o")
            .args([code, source])
            .output()
            .map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| line.contains("error")).or(said.lines().next());
            return Ok(Err(format!("ptxas: {}", line.unwrap_or("no message").trim())));
        }
        std::fs::read(folder.path().join(code)).map(Ok).map_err(failed)
    }
}
