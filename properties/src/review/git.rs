//! Git, as far as a review needs it: names to commits, where two lines of history part, what a tree
//! holds, what a blob says. Only `git` itself is asked, nothing is written, and a name given by a person
//! never reaches a place where it could be an option.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Largest file looked into.
pub const LIMIT_BYTES: u64 = 16 << 20;

/// Why the trees could not be compared; each text says the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewError {
    /// `git` could not be started.
    NoGit(String),
    /// The folder is in no repository, or git refuses to work in it.
    NoRepository {
        /// The folder.
        folder: String,
        /// What git says.
        said: String,
    },
    /// No commit has this name.
    NoCommit {
        /// As given.
        name: String,
        /// Whether history was cut off when this was cloned.
        shallow: bool,
        /// What a remote has by that name.
        remote: Option<String>,
    },
    /// The two share no commit, and none was cut off.
    Unrelated {
        /// As given.
        base: String,
        /// As given.
        head: String,
    },
    /// A git command failed.
    Git {
        /// Its arguments.
        command: String,
        /// What it says.
        said: String,
    },
    /// A file could not be read, or is not what it must be.
    File {
        /// Which tree.
        tree: String,
        /// Its path in the repository.
        path: String,
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: String,
    },
    /// Two files of a tree are one contract by their name.
    TwoContracts {
        /// Which tree.
        tree: String,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// A tree has no contracts at all.
    NoContracts {
        /// Which tree.
        tree: String,
    },
    /// A contract of the base is not of the format this build reads.
    OldFormat {
        /// Which tree.
        tree: String,
        /// The loader's words.
        said: String,
    },
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReviewError::NoGit(why) => {
                write!(f, "git does not start: {why}; install git, or put it on PATH")
            }
            ReviewError::NoRepository { folder, said } => write!(
                f,
                "{folder}: no git repository to compare in: {said}; run it in a clone, or name one (--repository FOLDER)"
            ),
            ReviewError::NoCommit { name, remote: Some(remote), .. } => {
                write!(f, "`{name}` names no commit here, but `{remote}` does; name that")
            }
            ReviewError::NoCommit { name, shallow: false, .. } => write!(
                f,
                "`{name}` names no commit here; name a branch, a tag or a commit, or fetch it first (git fetch origin {name})"
            ),
            ReviewError::NoCommit { name, shallow: true, .. } => write!(
                f,
                "`{name}` names no commit in this shallow clone; fetch it (git fetch --depth=1 origin {name}), or all of history (git fetch --unshallow)"
            ),
            ReviewError::Unrelated { base, head } => {
                write!(f, "`{base}` and {head} share no commit; name a base the change grew from")
            }
            ReviewError::Git { command, said } => {
                write!(f, "git {command} failed: {said}; put that right and try again")
            }
            ReviewError::File { tree, path, what, remedy } => {
                write!(f, "{path} ({tree}): {what}; {remedy}")
            }
            ReviewError::TwoContracts { tree, first, second } => write!(
                f,
                "{tree} has {first} and {second}: a contract has one file; remove or rename one of them"
            ),
            ReviewError::NoContracts { tree } => write!(
                f,
                "{tree} has no contracts/<family>/<kernel>.yaml; it predates the contract format, or is another project: name a base that has contracts"
            ),
            ReviewError::OldFormat { tree, said } => write!(
                f,
                "{tree} has a contract that this build's format does not read: {said}. It predates the format, so what changed in meaning cannot be said; name a later base, or review it with the build of that commit"
            ),
        }
    }
}

impl std::error::Error for ReviewError {}

/// A clone.
pub struct Git {
    root: PathBuf,
    objects: RefCell<Option<Objects>>,
}

/// A running `git cat-file --batch`.
struct Objects {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Objects {
    fn drop(&mut self) {
        // It ends when its input does; killed, in case it does not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One file of a tree: its path and where its content is.
pub struct Listed {
    /// From the root of the repository, `/` between folders.
    pub path: String,
    /// Its content.
    pub content: Stored,
}

/// Where the content of a listed path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A regular file, by the name of its blob.
    Blob(String),
    /// In the working tree, not as the index has it: the file's own name, whatever its bytes.
    Disk(PathBuf),
    /// A symbolic link or a submodule, by the name of what it holds.
    Irregular(String),
}

impl Stored {
    /// By the mode git lists.
    fn of(mode: &str, id: &str) -> Stored {
        match mode.starts_with("100") {
            true => Stored::Blob(id.to_owned()),
            false => Stored::Irregular(id.to_owned()),
        }
    }
}

fn command(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    // Messages in one language, no lock taken, no question asked, no path read as a pattern.
    git.env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0");
    git.env("GIT_LITERAL_PATHSPECS", "1").stdin(Stdio::null());
    // The folder says which clone; what a hook was started for does not.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(name);
    }
    git
}

impl Git {
    /// The clone a folder is in.
    pub fn open(folder: &Path) -> Result<Git, ReviewError> {
        let mut git = command(folder);
        let answer = git.args(["rev-parse", "--show-toplevel"]).output();
        let answer = answer.map_err(|error| ReviewError::NoGit(error.to_string()))?;
        let root = String::from_utf8_lossy(&answer.stdout).trim_end().to_owned();
        if !answer.status.success() || root.is_empty() {
            let said = first_line(&answer.stderr);
            return Err(ReviewError::NoRepository { folder: folder.display().to_string(), said });
        }
        Ok(Git { root: PathBuf::from(root), objects: RefCell::new(None) })
    }

    /// What a command prints; an error with what it says otherwise.
    fn ask<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Vec<u8>, ReviewError> {
        let answer = command(&self.root).args(arguments).output();
        let answer = answer.map_err(|error| ReviewError::NoGit(error.to_string()))?;
        if answer.status.success() {
            return Ok(answer.stdout);
        }
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        Err(ReviewError::Git { command: words.join(" "), said: first_line(&answer.stderr) })
    }

    /// Whether history was cut off when this was cloned.
    pub fn is_shallow(&self) -> bool {
        self.ask(&["rev-parse", "--is-shallow-repository"])
            .is_ok_and(|answer| answer.starts_with(b"true"))
    }

    /// The commit a name means.
    pub fn commit(&self, name: &str) -> Result<String, ReviewError> {
        // Git has no ref that begins with a dash; an option does.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_control) {
            let name = name.escape_debug().to_string();
            return Err(ReviewError::NoCommit { name, shallow: false, remote: None });
        }
        if let Some(id) = self.peeled(name)? {
            return Ok(id);
        }
        let remote = format!("origin/{name}");
        let remote = self.peeled(&remote)?.map(|_| remote);
        Err(ReviewError::NoCommit { name: name.to_owned(), shallow: self.is_shallow(), remote })
    }

    /// The commit a name means, where it means one.
    fn peeled(&self, name: &str) -> Result<Option<String>, ReviewError> {
        let peeled = format!("{name}^{{commit}}");
        let answer = self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &peeled]);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error @ ReviewError::NoGit(_)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let id = String::from_utf8_lossy(&answer).lines().last().unwrap_or_default().to_owned();
        let is_id = id.len() >= 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
        Ok(is_id.then_some(id))
    }

    /// The commits two lines of history part at, best first: several where merges went both ways, none
    /// when they share none that is here.
    pub fn merge_bases(&self, base: &str, head: &str) -> Result<Vec<String>, ReviewError> {
        let answer = command(&self.root).args(["merge-base", "--all", base, head]).output();
        let answer = answer.map_err(|error| ReviewError::NoGit(error.to_string()))?;
        match answer.status.code() {
            Some(0) => {
                let text = String::from_utf8_lossy(&answer.stdout);
                Ok(text.lines().map(str::to_owned).collect())
            }
            Some(1) => Ok(Vec::new()),
            _ => Err(ReviewError::Git {
                command: format!("merge-base {base} {head}"),
                said: first_line(&answer.stderr),
            }),
        }
    }

    /// The files of a commit.
    pub fn list(&self, commit: &str) -> Result<Vec<Listed>, ReviewError> {
        let answer = self.ask(&["ls-tree", "-r", "-z", "--full-tree", commit])?;
        Ok(records(&answer)
            .filter_map(|record| {
                let (meta, path) = record.split_once('\t')?;
                let mut parts = meta.split(' ');
                let content = Stored::of(parts.next()?, parts.nth(1)?);
                Some(Listed { path: path.to_owned(), content })
            })
            .collect())
    }

    /// The files of the working tree: as the index has them, or as they lie there where they differ from
    /// it. Ignored files are left out.
    pub fn list_working(&self) -> Result<Vec<Listed>, ReviewError> {
        let staged = self.ask(&["ls-files", "-z", "--stage"])?;
        let edited =
            self.ask(&["ls-files", "-z", "--modified", "--others", "--exclude-standard"])?;
        let mut files: std::collections::BTreeMap<String, Stored> = records(&staged)
            .filter_map(|record| {
                let (meta, path) = record.split_once('\t')?;
                let mut parts = meta.split(' ');
                Some((path.to_owned(), Stored::of(parts.next()?, parts.next()?)))
            })
            .collect();
        for record in raw_records(&edited) {
            let (path, on_disk) = (spelled(record), self.root.join(path_of(record)));
            match on_disk.symlink_metadata() {
                Ok(about) if about.is_file() => drop(files.insert(path, Stored::Disk(on_disk))),
                // What it points to is compared; a folder is a repository of its own.
                Ok(_) => {
                    let target = std::fs::read_link(&on_disk).unwrap_or_default();
                    let target = target.to_string_lossy().into_owned();
                    files.insert(path.trim_end_matches('/').to_owned(), Stored::Irregular(target));
                }
                Err(_) => drop(files.remove(&path)),
            }
        }
        Ok(files.into_iter().map(|(path, content)| Listed { path, content }).collect())
    }

    /// The content of a blob; what is wrong otherwise.
    pub fn blob(&self, id: &str) -> Result<Vec<u8>, String> {
        let mut objects = self.objects.borrow_mut();
        if objects.is_none() {
            let mut git = command(&self.root);
            git.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = git.stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
            let (Some(ask), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("git cat-file has no input or output".to_owned());
            };
            *objects = Some(Objects { child, ask, answers: BufReader::new(answers) });
        }
        let read = objects.as_mut().map(|objects| objects.read(id));
        let read = read.unwrap_or_else(|| Err("git cat-file is gone".to_owned()));
        if read.is_err() {
            // An answer half read would be taken for the next one's.
            *objects = None;
        }
        read
    }
}

impl Objects {
    fn read(&mut self, id: &str) -> Result<Vec<u8>, String> {
        let text = |error: std::io::Error| error.to_string();
        writeln!(self.ask, "{id}").and_then(|()| self.ask.flush()).map_err(text)?;
        let mut header = String::new();
        self.answers.read_line(&mut header).map_err(text)?;
        let size = header.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
        let size = size.ok_or_else(|| format!("git has no content: {}", header.trim_end()))?;
        if size > LIMIT_BYTES {
            return Err(format!("{size} bytes are more than the limit of {LIMIT_BYTES}"));
        }
        let mut content = vec![0; size as usize];
        self.answers.read_exact(&mut content).map_err(text)?;
        let mut end = [0];
        self.answers.read_exact(&mut end).map_err(text)?;
        Ok(content)
    }
}

fn raw_records(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    answer.split(|byte| *byte == 0).filter(|record| !record.is_empty())
}

fn records(answer: &[u8]) -> impl Iterator<Item = String> + '_ {
    raw_records(answer).map(spelled)
}

/// Bytes that are no UTF-8 are written out: two names must not become one.
fn spelled(record: &[u8]) -> String {
    match std::str::from_utf8(record) {
        Ok(text) => text.to_owned(),
        Err(_) => record.utf8_chunks().fold(String::new(), |mut text, chunk| {
            text.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            text
        }),
    }
}

/// A name as the file system has it.
#[cfg(unix)]
fn path_of(record: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(record))
}

/// A name as the file system has it; elsewhere all names are text.
#[cfg(not(unix))]
fn path_of(record: &[u8]) -> PathBuf {
    PathBuf::from(spelled(record))
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    line.trim_start_matches("fatal: ").to_owned()
}
