//! Coverage in lcov's tracefile format, for `genhtml` and editors: one record a file, the PTX with
//! its kernels as functions, and each CUDA source file its lines come from.

use crate::coverage::{Coverage, LineHits};
use crate::module::Module;
use std::collections::BTreeMap;
use std::fmt;

/// Coverage of any number of modules, by file. Its `Display` is the tracefile.
///
/// Only kernels that were launched appear. Of a launch that ended in a fault, the blocks that led
/// on from where it stopped count as executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lcov {
    files: BTreeMap<String, File>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    /// Hits by line.
    lines: BTreeMap<u32, u64>,
    /// Kernels by first line and name; blocks launched.
    functions: BTreeMap<(u32, String), u64>,
}

impl Lcov {
    /// No file yet.
    pub fn new() -> Lcov {
        Lcov::default()
    }

    /// Adds what was launched of a module. `ptx` is the path of its text; `path` says where a
    /// source file lies that the compiler recorded under a name.
    pub fn add(
        &mut self,
        ptx: &str,
        module: &Module,
        coverage: &Coverage,
        path: impl Fn(&str) -> String,
    ) {
        let mut all = LineHits::default();
        for (name, counts) in coverage.entries() {
            let Some(entry) = module.entry(name) else { continue };
            all.merge(&counts.line_hits(module, entry));
            let line = entry.blocks().first().map_or(0, |block| block.ptx_line);
            let file = self.files.entry(one_line(ptx)).or_default();
            *file.functions.entry((line, one_line(name))).or_default() += counts.launched;
        }
        self.lines(ptx, &all.ptx);
        for (file, lines) in &all.source {
            self.lines(&path(file), lines);
        }
    }

    fn lines(&mut self, path: &str, lines: &BTreeMap<u32, u64>) {
        if lines.is_empty() {
            return;
        }
        let file = self.files.entry(one_line(path)).or_default();
        for (line, hits) in lines {
            *file.lines.entry(*line).or_default() += hits;
        }
    }
}

/// A name may hold what would end its record.
fn one_line(name: &str) -> String {
    name.replace(['\n', '\r'], " ")
}

impl fmt::Display for Lcov {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, file) in &self.files {
            writeln!(f, "TN:\nSF:{path}")?;
            for (line, name) in file.functions.keys() {
                writeln!(f, "FN:{line},{name}")?;
            }
            for ((_, name), hits) in &file.functions {
                writeln!(f, "FNDA:{hits},{name}")?;
            }
            let hit = file.functions.values().filter(|hits| **hits > 0).count();
            writeln!(f, "FNF:{}\nFNH:{hit}", file.functions.len())?;
            for (line, hits) in &file.lines {
                writeln!(f, "DA:{line},{hits}")?;
            }
            let hit = file.lines.values().filter(|hits| **hits > 0).count();
            writeln!(f, "LF:{}\nLH:{hit}\nend_of_record", file.lines.len())?;
        }
        Ok(())
    }
}
