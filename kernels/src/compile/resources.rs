//! What each kernel costs the GPU: registers, shared memory, spills, as `ptxas` reports them for the
//! measured architecture. Recorded beside the PTX, so that a change shows in review; a spill that
//! `kernels/cuda/spills.tsv` does not excuse is an error.

use super::{CompileError, Compiler, FileState, PINNED_COMPILER, settle, write_error};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architecture that the PTX is assembled for, unless it is written for one generation alone.
pub const ARCHITECTURE: &str = "sm_90";

/// The architecture that a module is assembled for.
pub fn architecture(module: &str) -> String {
    match super::only_on(module) {
        Some((major, minor)) => format!("sm_{major}{minor}a"),
        None => ARCHITECTURE.to_owned(),
    }
}
/// The table's name, beside the PTX files.
pub const FILE: &str = "resources.tsv";
/// Spills that are let pass, each with the most bytes and the reason; under `kernels/cuda`.
pub const EXCUSES: &str = "spills.tsv";

const COLUMNS: &str =
    "module\tentry\tregisters\tshared bytes\tstack bytes\tspill store bytes\tspill load bytes";

/// What one entry needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The entry point.
    pub entry: String,
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory a block.
    pub shared_bytes: u32,
    /// Local memory a thread.
    pub stack_bytes: u32,
    /// Bytes of registers stored to local memory.
    pub spill_store_bytes: u32,
    /// Bytes of registers loaded back.
    pub spill_load_bytes: u32,
}

impl Resources {
    /// Bytes spilled in either direction.
    pub fn spilled_bytes(&self) -> u32 {
        self.spill_store_bytes.max(self.spill_load_bytes)
    }
}

/// The resources of all modules: module, then entries by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    modules: BTreeMap<String, Vec<Resources>>,
}

impl Table {
    /// Reads a table; a line that is none is an error that names it.
    pub fn parse(text: &str, file: &str) -> Result<Table, CompileError> {
        let mut table = Table::default();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line == COLUMNS {
                continue;
            }
            let (module, resources) = row(line).ok_or_else(|| CompileError::Resources {
                what: format!("{file}, line {}: `{line}` is no row of seven columns", number + 1),
                remedy: format!("delete the file and run `{}`", crate::ptx::COMPILE_COMMAND),
            })?;
            table.modules.entry(module).or_default().push(resources);
        }
        Ok(table)
    }

    fn text(&self) -> String {
        let mut text = format!("# ptxas {PINNED_COMPILER}, {ARCHITECTURE}\n");
        for module in self.modules.keys() {
            let own = architecture(module);
            if own != ARCHITECTURE {
                let _ = writeln!(text, "# {module}: {own}");
            }
        }
        let _ = writeln!(text, "{COLUMNS}");
        for (module, entries) in &self.modules {
            for r in entries {
                let _ = writeln!(
                    text,
                    "{module}\t{}\t{}\t{}\t{}\t{}\t{}",
                    r.entry,
                    r.registers,
                    r.shared_bytes,
                    r.stack_bytes,
                    r.spill_store_bytes,
                    r.spill_load_bytes
                );
            }
        }
        text
    }

    /// Every entry with its module.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Resources)> {
        self.modules
            .iter()
            .flat_map(|(module, entries)| entries.iter().map(move |entry| (module.as_str(), entry)))
    }
}

fn row(line: &str) -> Option<(String, Resources)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [module, entry, numbers @ ..] = fields.as_slice() else { return None };
    let numbers: Vec<u32> =
        numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>().ok()?;
    let [registers, shared_bytes, stack_bytes, spill_store_bytes, spill_load_bytes] =
        numbers.as_slice()
    else {
        return None;
    };
    Some((
        (*module).to_owned(),
        Resources {
            entry: (*entry).to_owned(),
            registers: *registers,
            shared_bytes: *shared_bytes,
            stack_bytes: *stack_bytes,
            spill_store_bytes: *spill_store_bytes,
            spill_load_bytes: *spill_load_bytes,
        },
    ))
}

/// What became of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The table's file.
    pub path: PathBuf,
    /// What became of it.
    pub state: FileState,
    /// The rows of the modules asked for.
    pub measured: Table,
    /// What spills without an excuse, if something does.
    pub spilled: Option<CompileError>,
}

impl Compiler {
    /// `ptxas` of the toolkit or wheels that NVRTC came from, else on the search path.
    pub fn ptxas(&self) -> Option<PathBuf> {
        let name = format!("ptxas{}", std::env::consts::EXE_SUFFIX);
        let folder = self.installation.library.parent();
        let beside = folder.into_iter().flat_map(Path::ancestors).take(4);
        let beside = beside.map(|root| root.join("bin").join(&name));
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<_> = std::env::split_paths(&on_path).map(|at| at.join(&name)).collect();
        beside.chain(on_path).find(|path| path.is_file())
    }

    /// Measures the PTX files of these modules in `folder` and writes or checks the table there.
    /// Rows of other modules stay as they are; with `all`, they go.
    ///
    /// # Errors
    /// When `ptxas` is missing or refuses a module, or a file is not what it must be.
    pub fn record_resources(
        &self,
        folder: &Path,
        modules: &[String],
        all: bool,
        check: bool,
    ) -> Result<Recorded, CompileError> {
        let ptxas = self.ptxas().ok_or_else(|| CompileError::Resources {
            what: "ptxas was not found beside NVRTC or on PATH".to_owned(),
            remedy: format!(
                "install the pinned wheels with `pip install --no-deps --require-hashes -r {}`",
                super::REQUIREMENTS
            ),
        })?;
        let mut measured = Table::default();
        for module in modules {
            let ptx = folder.join(format!("{module}.ptx"));
            let entries = measure(&ptxas, &architecture(module), &ptx)?;
            measured.modules.insert(module.clone(), entries);
        }
        let excuses = read_excuses(&self.sources.join(EXCUSES))?;
        let spilled = excused(&measured, &excuses).err();
        let path = folder.join(FILE);
        let mut table = if all { Table::default() } else { read_table(&path)? };
        table.modules.extend(measured.modules.clone());
        let state = settle(&path, &table.text(), check)?;
        Ok(Recorded { path, state, measured, spilled })
    }
}

fn read_table(path: &Path) -> Result<Table, CompileError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Table::parse(&text, &path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Table::default()),
        Err(error) => Err(write_error(path, &error)),
    }
}

/// Assembles one PTX file and throws the result away.
fn measure(ptxas: &Path, architecture: &str, ptx: &Path) -> Result<Vec<Resources>, CompileError> {
    let failed = |what: String| CompileError::Resources {
        what,
        remedy: "the PTX must assemble: look at the source lines named".to_owned(),
    };
    let architecture = format!("--gpu-name={architecture}");
    let output = Command::new(ptxas)
        .args(["-v", &architecture, "-o", "/dev/null"])
        .arg(ptx)
        .output()
        .map_err(|error| failed(format!("{} cannot be run: {error}", ptxas.display())))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let text =
            if text.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { text };
        return Err(failed(format!(
            "{} refuses {}: {}",
            ptxas.display(),
            ptx.display(),
            text.trim()
        )));
    }
    let entries = report(&text);
    if entries.is_empty() {
        return Err(failed(format!("{} names no entry of {}", ptxas.display(), ptx.display())));
    }
    Ok(entries)
}

/// Reads the report of `ptxas -v`, sorted by entry.
fn report(text: &str) -> Vec<Resources> {
    let mut entries: Vec<Resources> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            entries.push(Resources { entry, ..Resources::default() });
        }
        let Some(last) = entries.last_mut() else { continue };
        let amount = |unit: &str| {
            let before = line.split(unit).next().filter(|before| before.len() < line.len())?;
            before.trim_end().rsplit([' ', ',']).next()?.parse::<u32>().ok()
        };
        if let Some(stack) = amount("bytes stack frame") {
            last.stack_bytes = stack;
            last.spill_store_bytes = amount("bytes spill stores").unwrap_or(0);
            last.spill_load_bytes = amount("bytes spill loads").unwrap_or(0);
        }
        if line.contains(": Used ") {
            last.registers = amount("registers").unwrap_or(0);
            last.shared_bytes = amount("bytes smem").unwrap_or(0);
        }
    }
    entries.sort_by(|a, b| a.entry.cmp(&b.entry));
    entries
}

/// Most bytes an entry may spill, and why.
type Excuses = BTreeMap<String, u32>;

fn read_excuses(path: &Path) -> Result<Excuses, CompileError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Excuses::new()),
        Err(error) => return Err(write_error(path, &error)),
    };
    let mut excuses = Excuses::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let excuse = match fields.as_slice() {
            [entry, bytes, why] if !why.trim().is_empty() => {
                bytes.parse().ok().map(|bytes| ((*entry).to_owned(), bytes))
            }
            _ => None,
        };
        let (entry, bytes) = excuse.ok_or_else(|| CompileError::Resources {
            what: format!("{}: `{line}` is no excuse", path.display()),
            remedy: "write entry, most bytes and reason, separated by tabs".to_owned(),
        })?;
        excuses.insert(entry, bytes);
    }
    Ok(excuses)
}

fn excused(table: &Table, excuses: &Excuses) -> Result<(), CompileError> {
    let over =
        |entry: &Resources| entry.spilled_bytes() > excuses.get(&entry.entry).copied().unwrap_or(0);
    let spills: Vec<String> = table
        .rows()
        .filter(|(_, entry)| over(entry))
        .map(|(_, entry)| format!("{} spills {} bytes", entry.entry, entry.spilled_bytes()))
        .collect();
    if spills.is_empty() {
        return Ok(());
    }
    Err(CompileError::Resources {
        what: spills.join(", "),
        remedy: format!(
            "let it hold fewer values at a time; where it is not hot, excuse it with a reason in \
             kernels/cuda/{EXCUSES}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 16 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    24 bytes stack frame, 40 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 24 bytes cumulative stack size, 33792 bytes smem
ptxas info    : Compile time = 5402.615 ms
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 96 registers, used 0 barriers
";

    fn table() -> Table {
        Table { modules: BTreeMap::from([("m".to_owned(), report(REPORT))]) }
    }

    #[test]
    fn a_report_is_read_and_a_table_reads_back() {
        let table = table();
        let rows: Vec<_> = table.rows().collect();
        assert_eq!((rows[0].0, rows[0].1.entry.as_str(), rows[0].1.registers), ("m", "first", 96));
        let second = Resources {
            entry: "second".to_owned(),
            registers: 128,
            shared_bytes: 33792,
            stack_bytes: 24,
            spill_store_bytes: 40,
            spill_load_bytes: 28,
        };
        assert_eq!(rows[1].1, &second);
        assert_eq!(Table::parse(&table.text(), "t").expect("its own text"), table);
        let broken = table.text().replace("\t96\t", "\tmany\t");
        let error = Table::parse(&broken, "t.tsv").expect_err("a word for a number").to_string();
        assert!(error.contains("t.tsv, line 3"), "{error}");
    }

    #[test]
    fn a_module_of_one_generation_is_recorded_with_its_architecture() {
        assert!(!table().text().contains("sm_90a"), "the others are measured by the first line");
        let hopper = BTreeMap::from([("gdn_chunk_hopper".to_owned(), report(REPORT))]);
        let text = Table { modules: hopper }.text();
        assert_eq!(text.lines().next(), table().text().lines().next());
        assert_eq!(text.lines().nth(1), Some("# gdn_chunk_hopper: sm_90a"));
    }

    #[test]
    fn a_spill_needs_an_excuse_that_covers_it() {
        let spill = |bytes: u32| Excuses::from([("second".to_owned(), bytes)]);
        assert!(excused(&table(), &spill(40)).is_ok());
        for excuses in [Excuses::new(), spill(39)] {
            let error = excused(&table(), &excuses).expect_err("40 bytes").to_string();
            assert!(error.contains("second spills 40 bytes") && error.contains(EXCUSES), "{error}");
        }
    }

    #[test]
    fn an_excuse_without_a_reason_is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(EXCUSES);
        assert_eq!(read_excuses(&path), Ok(Excuses::new()));
        std::fs::write(&path, "# entry\nsecond\t40\tnot hot\n").expect("written");
        assert_eq!(read_excuses(&path), Ok(Excuses::from([("second".to_owned(), 40)])));
        std::fs::write(&path, "second\t40\t\n").expect("written");
        assert!(read_excuses(&path).is_err());
    }
}
