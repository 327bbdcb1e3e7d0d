//! One state of the project, as far as a review looks at it: which files there are, and what they say
//! when asked. A file is the same in two trees where its blob is; only what differs is read.

use super::git::{Git, LIMIT_BYTES, Listed, ReviewError};
use std::collections::BTreeMap;
use std::path::Path;

/// Folders that say what is promised, replayed and shipped.
const JUDGED: [&str; 4] = ["contracts", "corpora", "kernels/cuda", "kernels/ptx"];
/// What judges; a change there weakens without changing a word of a contract.
pub const JUDGES: [&str; 10] = [
    "contracts/src",
    "contracts/tests",
    "properties/src",
    "properties/tests",
    "reference",
    "kernels/src",
    "kernels/vm",
    "fuzz",
    ".ci",
    ".github",
];

/// Where a file's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Blob(String),
    /// In the working tree.
    Disk,
    Memory(String),
    /// A link or a submodule.
    Irregular,
}

/// One state of the project.
pub struct Tree<'g> {
    /// For a reader.
    pub name: String,
    git: Option<&'g Git>,
    files: BTreeMap<String, Content>,
}

impl<'g> Tree<'g> {
    /// The tree of a commit.
    pub fn of_commit(git: &'g Git, commit: &str, name: String) -> Result<Tree<'g>, ReviewError> {
        let listed = git.list(commit, &[&JUDGED[..], &JUDGES].concat())?;
        Ok(Tree { name, git: Some(git), files: files(listed, &Content::Irregular) })
    }

    /// The working tree.
    pub fn working(git: &'g Git) -> Result<Tree<'g>, ReviewError> {
        let listed = git.list_working(&[&JUDGED[..], &JUDGES].concat())?;
        let name = "the working tree".to_owned();
        Ok(Tree { name, git: Some(git), files: files(listed, &Content::Disk) })
    }

    /// A tree that is written nowhere.
    pub fn in_memory(
        name: &str,
        texts: impl IntoIterator<Item = (String, String)>,
    ) -> Tree<'static> {
        let files = texts.into_iter().map(|(path, text)| (path, Content::Memory(text))).collect();
        Tree { name: name.to_owned(), git: None, files }
    }

    /// The files in a folder and below, as paths from the root.
    pub fn under<'t>(&'t self, folder: &'t str) -> impl Iterator<Item = &'t str> {
        let from = self.files.range(folder.to_owned()..);
        let inside =
            move |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        // Names that only begin alike lie between a folder's own, so none ends the walk but those past all.
        from.map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(folder))
            .filter(move |path| inside(path))
    }

    /// Whether there is such a file.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// What a file says.
    pub fn text(&self, path: &str) -> Result<String, ReviewError> {
        let refused = |what: String, remedy: &str| ReviewError::File {
            tree: self.name.clone(),
            path: path.to_owned(),
            what,
            remedy: remedy.to_owned(),
        };
        let readable = "make it readable, or take it out of the comparison";
        let content = self.files.get(path);
        let bytes = match (content, self.git) {
            (Some(Content::Memory(text)), _) => return Ok(text.clone()),
            (Some(Content::Blob(id)), Some(git)) => git
                .blob(id)
                .map_err(|what| refused(what, "fetch it (git fetch), or repair the clone"))?,
            (Some(Content::Disk), Some(git)) => {
                read(&git.root().join(path)).map_err(|what| refused(what, readable))?
            }
            (Some(Content::Irregular), _) => {
                return Err(refused(
                    "it is no regular file".to_owned(),
                    "put the file itself there",
                ));
            }
            (None, _) | (_, None) => return Err(refused("it is not there".to_owned(), readable)),
        };
        String::from_utf8(bytes).map_err(|_| refused("it is no UTF-8 text".to_owned(), readable))
    }

    /// Whether a file is the same there; absent on both sides is the same.
    pub fn same(&self, path: &str, other: &Tree<'_>, other_path: &str) -> bool {
        match (self.files.get(path), other.files.get(other_path)) {
            (Some(Content::Blob(a)), Some(Content::Blob(b))) => a == b,
            (None, None) => true,
            (Some(_), Some(_)) => match (self.text(path), other.text(other_path)) {
                (Ok(a), Ok(b)) => a == b,
                // What cannot be read is not known to be the same.
                _ => false,
            },
            _ => false,
        }
    }
}

fn files(listed: Vec<Listed>, without_blob: &Content) -> BTreeMap<String, Content> {
    listed
        .into_iter()
        .map(|Listed { path, blob }| (path, blob.map_or(without_blob.clone(), Content::Blob)))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let about = path.symlink_metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if about.len() > LIMIT_BYTES {
        return Err(format!("{} bytes are more than the limit of {LIMIT_BYTES}", about.len()));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}
