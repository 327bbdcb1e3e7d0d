//! Which mutants are tried: sites in an order that a seed decides, one edit a site. The same seed,
//! text and suite give the same sample on every machine.

use super::changes::Changes;
use super::listing::Site;
use super::modules::Module;
use super::operators::{Edit, Operator, edits};
use super::suite::Suite;
use crate::choices::mix;

/// One wrong kernel: one line of one entry changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The kind of edit.
    pub operator: Operator,
    /// The module.
    pub stem: &'static str,
    /// The entry.
    pub entry: String,
    /// PTX line, from 1.
    pub line: u32,
    /// CUDA file under `kernels/cuda`, and line.
    pub source: Option<(String, u32)>,
    /// The line as it stands.
    pub was: String,
    /// The line in its place.
    pub now: String,
    /// The basic block of its entry.
    pub block: usize,
}

/// What was chosen of a module.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// In the order of the seed; each is executed by some question.
    pub mutants: Vec<Mutant>,
    /// Sites an edit applies to.
    pub sites: usize,
    /// Those that some question executes.
    pub executed: usize,
}

/// A seed from a commit's hash, or from any other word.
pub fn seed_of(word: &str) -> u64 {
    word.bytes().fold(0, |seed, byte| mix(seed, u64::from(byte)))
}

/// Every edit of these PTX lines, as far as the suite executes them: what a person works off.
pub fn of_lines(modules: &[Module], suite: &Suite<'_>, lines: &[u32]) -> Sample {
    let mut chosen = Sample::default();
    for module in modules {
        let sites = module.listing.sites();
        for (at, site) in sites.iter().enumerate().filter(|(_, site)| lines.contains(&site.line)) {
            chosen.sites += 1;
            let Some(block) = block_of(module.parsed, site) else { continue };
            if suite.reaching(site.entry, block).next().is_some() {
                chosen.executed += 1;
                let edits = edits(&sites, at);
                chosen.mutants.extend(edits.iter().map(|edit| mutant(module, site, block, edit)));
            }
        }
    }
    chosen
}

/// Draws at most `most` mutants of a contract's modules that the suite executes; where `changes` is given,
/// only of lines that came from changed source.
pub fn sample(
    modules: &[Module],
    suite: &Suite<'_>,
    most: usize,
    seed: u64,
    changes: Option<&Changes>,
) -> Sample {
    let all_sites: Vec<Vec<Site<'_>>> =
        modules.iter().map(|module| module.listing.sites()).collect();
    let mut chosen = Sample::default();
    let mut order: Vec<(u64, usize, usize, usize)> = Vec::new();
    let places = all_sites.iter().enumerate().flat_map(|(which, sites)| {
        sites.iter().enumerate().map(move |(at, site)| (which, sites, at, site))
    });
    for (which, sites, at, site) in places {
        let is_changed = |changes: &Changes| {
            site.source.is_some_and(|(file, line)| changes.has_line(file, line))
        };
        if !changes.is_none_or(is_changed) || edits(sites, at).is_empty() {
            continue;
        }
        chosen.sites += 1;
        let Some(block) = block_of(modules[which].parsed, site) else { continue };
        if suite.reaching(site.entry, block).next().is_some() {
            chosen.executed += 1;
            // A contract's own module is sampled as it would be without the others.
            let of_module = if which == 0 { seed } else { mix(seed, which as u64) };
            order.push((mix(of_module, u64::from(site.line)), which, at, block));
        }
    }
    order.sort_unstable();
    for (rank, which, at, block) in order.into_iter().take(most) {
        let (module, site) = (&modules[which], &all_sites[which][at]);
        let edits = edits(&all_sites[which], at);
        let edit = &edits[(mix(rank, seed) % edits.len() as u64) as usize];
        chosen.mutants.push(mutant(module, site, block, edit));
    }
    chosen
}

fn mutant(module: &Module, site: &Site<'_>, block: usize, edit: &Edit) -> Mutant {
    Mutant {
        operator: edit.operator,
        stem: module.stem,
        entry: site.entry.to_owned(),
        line: site.line,
        source: site.source.map(|(file, line)| (file.to_owned(), line)),
        was: module.listing.line(site.line).to_owned(),
        now: edit.now.clone(),
        block,
    }
}

/// The basic block a site lies in.
fn block_of(module: &ptx_vm::Module, site: &Site<'_>) -> Option<usize> {
    let blocks = module.entry(site.entry)?.blocks();
    blocks.partition_point(|block| block.ptx_line <= site.line).checked_sub(1)
}
