//! Where NVRTC is: the candidates in order, and the first that is the pinned release; without one
//! of that release, the first that exists, so that the version message can name it.

use super::CompileError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An NVRTC library and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// `libnvrtc.so…`, an absolute path.
    pub library: PathBuf,
    /// `libnvrtc-builtins.so…` beside it, which NVRTC would look for by bare name.
    pub builtins: Option<PathBuf>,
    /// The toolkit's include folders.
    pub include: Vec<PathBuf>,
}

/// What the search reads from its surroundings; a test gives its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// `ASSAY_NVRTC`: the library or a folder that holds it.
    pub chosen: Option<PathBuf>,
    /// Roots of CUDA toolkits.
    pub toolkits: Vec<PathBuf>,
    /// Folders of Python packages.
    pub site_packages: Vec<PathBuf>,
    /// Library folders.
    pub libraries: Vec<PathBuf>,
}

/// The environment variable that names NVRTC outright.
pub const NVRTC_VARIABLE: &str = "ASSAY_NVRTC";

impl Surroundings {
    pub(super) fn of_process() -> Surroundings {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let mut toolkits: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(variable)
            .map(PathBuf::from)
            .collect();
        let mut local: Vec<PathBuf> = std::fs::read_dir("/usr/local")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
            })
            .collect();
        local.sort();
        toolkits.append(&mut local);
        Surroundings {
            chosen: variable(NVRTC_VARIABLE).map(PathBuf::from),
            toolkits,
            site_packages: python_paths(),
            libraries: variable("LD_LIBRARY_PATH")
                .map(|paths| {
                    std::env::split_paths(&paths).filter(|path| path.is_absolute()).collect()
                })
                .unwrap_or_default(),
        }
    }

    /// Folders that may hold the library, in order.
    fn folders(&self) -> Vec<PathBuf> {
        let in_toolkit = |root: &PathBuf| ["lib64", "lib"].map(|lib| root.join(lib));
        let toolkits = self.toolkits.iter().flat_map(in_toolkit);
        let packages = self.site_packages.iter().map(|root| root.join("nvidia/cu13/lib"));
        toolkits.chain(packages).chain(self.libraries.iter().cloned()).collect()
    }
}

/// `sys.path` of the Python on the search path: wheels lie in its folders.
fn python_paths() -> Vec<PathBuf> {
    let program = "import sys\nfor path in sys.path:\n    if path: print(path)";
    let output = Command::new("python3").args(["-c", program]).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().map(PathBuf::from).filter(|path| path.is_dir()).collect()
        }
        // No Python means no wheels; the other places are still searched.
        _ => Vec::new(),
    }
}

/// Finds the NVRTC to use.
pub(super) fn find(surroundings: &Surroundings) -> Result<Installation, CompileError> {
    if let Some(chosen) = &surroundings.chosen {
        let chosen = std::path::absolute(chosen).unwrap_or_else(|_| chosen.clone());
        let found =
            if chosen.is_dir() { installation_in(&chosen) } else { installation_of(&chosen) };
        return found.ok_or_else(|| CompileError::NotFound {
            searched: vec![format!("{} ({NVRTC_VARIABLE})", chosen.display())],
        });
    }
    let folders = surroundings.folders();
    let found: Vec<Installation> =
        folders.iter().filter_map(|folder| installation_in(folder)).collect();
    let pinned = found.iter().find(|installation| installation.is_pinned_release());
    pinned.or(found.first()).cloned().ok_or_else(|| CompileError::NotFound {
        searched: folders.iter().map(|folder| folder.display().to_string()).collect(),
    })
}

fn installation_in(folder: &Path) -> Option<Installation> {
    let exact = ["libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"];
    exact.iter().find_map(|name| installation_of(&folder.join(name)))
}

fn installation_of(library: &Path) -> Option<Installation> {
    if !library.is_file() {
        return None;
    }
    let folder = library.parent()?;
    let roots = [folder.parent(), folder.parent().and_then(Path::parent)];
    let root = roots.into_iter().flatten().find(|root| root.join("include").is_dir());
    let include = root.map(|root| root.join("include"));
    let libcu = include.as_ref().map(|include| include.join("cccl")).filter(|path| path.is_dir());
    Some(Installation {
        library: library.to_owned(),
        builtins: builtins_in(folder),
        include: include.into_iter().chain(libcu).collect(),
    })
}

/// The builtins of the pinned release, else the first by name.
fn builtins_in(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libnvrtc-builtins.so")
        })
        .collect();
    found.sort();
    found.iter().find(|path| path.ends_with(PINNED_BUILTINS)).or(found.first()).cloned()
}

const PINNED_BUILTINS: &str = "libnvrtc-builtins.so.13.0";

impl Installation {
    fn is_pinned_release(&self) -> bool {
        self.builtins.as_ref().is_some_and(|path| path.ends_with(PINNED_BUILTINS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn touch(folder: &Path, names: &[&str]) {
        fs::create_dir_all(folder).expect("a folder");
        for name in names {
            fs::write(folder.join(name), "").expect("a file");
        }
    }

    #[test]
    fn nothing_found_names_every_place_and_the_cure() {
        let surroundings = Surroundings {
            toolkits: vec!["/nowhere/cuda".into()],
            site_packages: vec!["/nowhere/site-packages".into()],
            libraries: vec!["/nowhere/lib".into()],
            ..Surroundings::default()
        };
        let error = find(&surroundings).expect_err("nothing is there").to_string();
        for part in [
            "/nowhere/cuda/lib64",
            "/nowhere/site-packages/nvidia/cu13/lib",
            "/nowhere/lib",
            NVRTC_VARIABLE,
            ".ci/nvrtc-requirements.txt",
        ] {
            assert!(error.contains(part), "{part} in: {error}");
        }
    }

    #[test]
    fn the_pinned_release_wins_over_an_earlier_place() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let toolkit = folder.path().join("cuda");
        touch(&toolkit.join("lib64"), &["libnvrtc.so", "libnvrtc-builtins.so.12.4"]);
        let site = folder.path().join("site");
        let wheel = site.join("nvidia/cu13");
        touch(&wheel.join("lib"), &["libnvrtc.so.13", PINNED_BUILTINS]);
        touch(&wheel.join("include/cccl"), &[]);
        let mut surroundings =
            Surroundings { toolkits: vec![toolkit.clone()], ..Surroundings::default() };
        let only = find(&surroundings).expect("the toolkit");
        assert_eq!(only.library, toolkit.join("lib64/libnvrtc.so"));
        surroundings.site_packages.push(site);
        let both = find(&surroundings).expect("the wheel");
        assert_eq!(both.library, wheel.join("lib/libnvrtc.so.13"));
        assert_eq!(both.builtins, Some(wheel.join("lib").join(PINNED_BUILTINS)));
        assert_eq!(both.include, [wheel.join("include"), wheel.join("include/cccl")]);
    }

    #[test]
    fn a_named_library_is_used_or_refused_never_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        touch(&folder.path().join("lib"), &["libnvrtc.so.13"]);
        let wrong = Surroundings {
            chosen: Some(folder.path().join("absent")),
            libraries: vec![folder.path().join("lib")],
            ..Surroundings::default()
        };
        assert!(find(&wrong).is_err());
        for chosen in ["lib", "lib/libnvrtc.so.13"] {
            let right = Surroundings {
                chosen: Some(folder.path().join(chosen)),
                ..Surroundings::default()
            };
            assert!(find(&right).is_ok(), "{chosen}");
        }
    }
}
