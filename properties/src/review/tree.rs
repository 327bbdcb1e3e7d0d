//! One state of the project, as far as a review looks at it: which files there are, and what they say
//! when asked. A file is the same in two trees where its blob is; only what differs is read. What is
//! compared has to be files of the tree itself: a link there would show one thing and replay another.

use super::git::{Git, LIMIT_BYTES, Listed, ReviewError, Stored};
use std::collections::BTreeMap;
use std::path::Path;

/// Folders that say what is promised, replayed and shipped.
const COMPARED: [&str; 4] = ["contracts", "corpora", "kernels/cuda", "kernels/ptx"];

/// Where a file's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// In the clone.
    Git(Stored),
    /// In no file.
    Memory(Vec<u8>),
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
        Ok(Tree { name, git: Some(git), files: files(git.list(commit)?) })
    }

    /// The working tree.
    pub fn working(git: &'g Git) -> Result<Tree<'g>, ReviewError> {
        let name = "the working tree".to_owned();
        Ok(Tree { name, git: Some(git), files: files(git.list_working()?) })
    }

    /// A tree that is written nowhere.
    pub fn in_memory(
        name: &str,
        texts: impl IntoIterator<Item = (String, String)>,
    ) -> Tree<'static> {
        let content = |text: String| Content::Memory(text.into_bytes());
        let files = texts.into_iter().map(|(path, text)| (path, content(text))).collect();
        Tree { name: name.to_owned(), git: None, files }
    }

    /// The first link or submodule where files are compared, or above.
    pub fn first_link(&self) -> Option<&str> {
        let is_link = |content: &Content| matches!(content, Content::Git(Stored::Irregular(_)));
        let links = self.files.iter().filter(|(_, content)| is_link(content));
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let matters =
            |path: &str| COMPARED.iter().any(|folder| within(path, folder) || within(folder, path));
        links.map(|(path, _)| path.as_str()).find(|path| matters(path))
    }

    /// Every file, as its path from the root.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
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

    /// What a file holds.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ReviewError> {
        let refused = |what: String, remedy: &str| ReviewError::File {
            tree: self.name.clone(),
            path: path.to_owned(),
            what,
            remedy: remedy.to_owned(),
        };
        let readable = "make it readable, or take it out of the comparison";
        match (self.files.get(path), self.git) {
            (Some(Content::Memory(bytes)), _) => Ok(bytes.clone()),
            (Some(Content::Git(Stored::Blob(id))), Some(git)) => git
                .blob(id)
                .map_err(|what| refused(what, "fetch it (git fetch), or repair the clone")),
            (Some(Content::Git(Stored::Disk(file))), Some(_)) => {
                read(file).map_err(|what| refused(what, readable))
            }
            (Some(Content::Git(Stored::Irregular(_))), _) => {
                Err(refused("it is no regular file".to_owned(), "put the file itself there"))
            }
            (None, _) | (_, None) => Err(refused("it is not there".to_owned(), readable)),
        }
    }

    /// What a file says.
    pub fn text(&self, path: &str) -> Result<String, ReviewError> {
        String::from_utf8(self.bytes(path)?).map_err(|_| ReviewError::File {
            tree: self.name.clone(),
            path: path.to_owned(),
            what: "it is no UTF-8 text".to_owned(),
            remedy: "write it in UTF-8, or take it out of the comparison".to_owned(),
        })
    }

    /// Whether a file is the same there; absent on both sides is the same.
    pub fn same(&self, path: &str, other: &Tree<'_>, other_path: &str) -> bool {
        use Stored::{Blob, Irregular};
        match (self.files.get(path), other.files.get(other_path)) {
            (Some(Content::Git(Blob(a))), Some(Content::Git(Blob(b))))
            | (Some(Content::Git(Irregular(a))), Some(Content::Git(Irregular(b)))) => a == b,
            (None, None) => true,
            (Some(_), Some(_)) => match (self.bytes(path), other.bytes(other_path)) {
                (Ok(a), Ok(b)) => a == b,
                // What cannot be read is not known to be the same.
                _ => false,
            },
            _ => false,
        }
    }
}

fn files(listed: Vec<Listed>) -> BTreeMap<String, Content> {
    listed.into_iter().map(|Listed { path, content }| (path, Content::Git(content))).collect()
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
