//! Places in the CUDA source, from `.loc`: a line, and the call by which its function was inlined.
//! Invariant: a site is noted after the one it is called from, so that every chain of calls ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A place in the CUDA source, from `.loc`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// File name as the compiler recorded it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Where the function of that line was called, if the compiler inlined it there.
    pub called_from: Option<Box<SourceLine>>,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        let mut call = &self.called_from;
        while let Some(at) = call {
            write!(f, ", inlined at {}:{}", at.file, at.line)?;
            call = &at.called_from;
        }
        Ok(())
    }
}

/// No report follows more calls than this.
const DEEPEST: usize = 16;

/// What one `.loc` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
struct Site {
    /// `.file` number, line and column.
    at: [u32; 3],
    /// The site that calls it, if it was inlined.
    caller: Option<u32>,
}

/// Every site of a module; instructions name theirs by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sites {
    all: Vec<Site>,
    numbers: HashMap<Site, u32>,
    /// Of the function that is being read: the last site at a place.
    latest: HashMap<[u32; 3], u32>,
    /// `.file` number and name.
    files: Vec<(u32, Arc<str>)>,
}

impl Sites {
    pub fn file(&mut self, number: u32, name: Arc<str>) {
        self.files.push((number, name));
    }

    /// Another function begins: a call is looked for in its own.
    pub fn begin_function(&mut self) {
        self.latest.clear();
    }

    /// Notes a site and the place it was inlined at.
    pub fn note(&mut self, at: [u32; 3], inlined_at: Option<[u32; 3]>) -> u32 {
        let caller = inlined_at.map(|call| match self.latest.get(&call) {
            Some(number) => *number,
            None => self.number(Site { at: call, caller: None }),
        });
        let number = self.number(Site { at, caller });
        self.latest.insert(at, number);
        number
    }

    fn number(&mut self, site: Site) -> u32 {
        *self.numbers.entry(site).or_insert_with(|| {
            self.all.push(site);
            self.all.len() as u32 - 1
        })
    }

    /// The text has been read.
    pub fn finish(&mut self) {
        (self.numbers, self.latest) = (HashMap::new(), HashMap::new());
    }

    pub fn line(&self, number: u32) -> Option<SourceLine> {
        let mut chain = Vec::new();
        let mut next = Some(number);
        while let Some(site) = next.and_then(|number| self.all.get(number as usize)) {
            chain.push(site.at);
            next = site.caller.filter(|_| chain.len() < DEEPEST);
        }
        chain.into_iter().rev().fold(None, |call, [file, line, _]| {
            let name = self.files.iter().find(|(number, _)| *number == file && line != 0)?;
            Some(SourceLine { file: name.1.clone(), line, called_from: call.map(Box::new) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Sites {
        let mut sites = Sites::default();
        sites.file(1, "k.cu".into());
        sites.file(2, "h.cuh".into());
        sites
    }

    #[test]
    fn a_chain_of_calls_is_named_from_the_inside_out() {
        let mut sites = sites();
        let plain = sites.note([1, 40, 3], None);
        sites.note([2, 10, 5], Some([1, 40, 3]));
        let inner = sites.note([2, 7, 1], Some([2, 10, 5]));
        sites.finish();
        let text = |number| sites.line(number).unwrap().to_string();
        assert_eq!(text(plain), "k.cu:40");
        assert_eq!(text(inner), "h.cuh:7, inlined at h.cuh:10, inlined at k.cu:40");
    }

    #[test]
    fn the_last_inlining_at_a_place_counts_and_only_within_a_function() {
        let mut sites = sites();
        sites.note([2, 10, 5], Some([1, 40, 3]));
        let first = sites.note([2, 7, 1], Some([2, 10, 5]));
        sites.note([2, 10, 5], Some([1, 50, 3]));
        let second = sites.note([2, 7, 1], Some([2, 10, 5]));
        sites.begin_function();
        let third = sites.note([2, 7, 1], Some([2, 10, 5]));
        let text = |number| sites.line(number).unwrap().to_string();
        assert_eq!(text(first), "h.cuh:7, inlined at h.cuh:10, inlined at k.cu:40");
        assert_eq!(text(second), "h.cuh:7, inlined at h.cuh:10, inlined at k.cu:50");
        assert_eq!(text(third), "h.cuh:7, inlined at h.cuh:10");
    }

    #[test]
    fn a_place_inlined_at_itself_ends() {
        let mut sites = sites();
        let numbers: Vec<u32> =
            (0..100_000).map(|_| sites.note([2, 7, 1], Some([2, 7, 1]))).collect();
        let text = sites.line(*numbers.last().unwrap()).unwrap().to_string();
        assert_eq!(text.matches("inlined at").count(), DEEPEST - 1);
    }

    #[test]
    fn an_unknown_file_or_line_names_no_call_and_no_place() {
        let mut sites = sites();
        let unknown = sites.note([9, 1, 1], None);
        let inlined = sites.note([2, 7, 1], Some([1, 0, 0]));
        assert_eq!(sites.line(unknown), None);
        assert_eq!(sites.line(inlined).unwrap().to_string(), "h.cuh:7");
        assert_eq!(sites.line(77), None);
    }
}
