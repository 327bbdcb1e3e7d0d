//! The module's own `.global` and `.const` variables: where each lies, and what it holds when a launch
//! begins. Between two of them lie bytes that belong to none. Constants lie behind the rest, so that
//! an address tells them apart.

use super::{REDZONE_BYTES, calls, too_large};
use crate::module::{Owner, Placed};
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::space::DATA_BASE;
use crate::syntax::{Initial, Space, Tree, Variable};
use std::collections::HashMap;

/// Beyond any device's local or shared memory.
pub(super) const LARGEST_VARIABLE_BYTES: u64 = 1 << 24;
/// `.global` and `.const` variables of a module; each launch begins with a copy.
const LARGEST_DATA_BYTES: u64 = 1 << 28;

#[derive(Default)]
pub(super) struct Data<'a> {
    pub bytes: Vec<u8>,
    pub owners: Vec<Owner>,
    pub variables: Vec<Placed>,
    pub addresses: HashMap<&'a str, u64>,
    /// Where the constants begin.
    pub constants: u64,
    /// Addresses that variables hold: where, of what, and the line.
    pointers: Vec<(usize, &'a str, i64, u32)>,
}

impl<'a> Data<'a> {
    pub fn of(tree: &Tree<'a>) -> Result<Data<'a>, ParseError> {
        let other = |v: &&Variable<'_>| !matches!(v.space, Space::Global | Space::Const);
        let large = |v: &&Variable<'_>| v.size_bytes() > LARGEST_VARIABLE_BYTES;
        if let Some(variable) = tree.variables.iter().filter(other).find(large) {
            return Err(too_large("bytes in one variable", variable.line));
        }
        let mut data = Data::default();
        let of = |space| tree.variables.iter().filter(move |v| v.space == space);
        for variable in of(Space::Global) {
            data.place(variable)?;
        }
        let globals = data.bytes.len() as u64;
        for variable in of(Space::Const) {
            data.place(variable)?;
        }
        let first = data.variables.iter().find(|placed| placed.is_const);
        data.constants = first.map_or(globals, |first| first.start);
        data.point(tree)?;
        Ok(data)
    }

    fn place(&mut self, variable: &Variable<'a>) -> Result<(), ParseError> {
        let align = variable.align_bytes.max(1) as usize;
        let gap = if self.variables.is_empty() { 0 } else { REDZONE_BYTES as usize };
        let start = (self.bytes.len() + gap).next_multiple_of(align);
        if variable.size_bytes() > LARGEST_DATA_BYTES.saturating_sub(start as u64) {
            return Err(too_large("bytes of module variables", variable.line));
        }
        let size = variable.size_bytes() as usize;
        let is_const = variable.space == Space::Const;
        self.addresses.insert(variable.name, start as u64);
        self.variables.push(Placed {
            name: variable.name.to_owned(),
            is_const,
            start: start as u64,
            len_bytes: size as u64,
        });
        self.bytes.resize(start + size, 0);
        self.owners.resize(start, Owner::Nobody);
        self.owners.resize(start + size, if is_const { Owner::Const } else { Owner::Global });
        self.fill(variable, start, size)
    }

    fn fill(
        &mut self,
        variable: &Variable<'a>,
        start: usize,
        size: usize,
    ) -> Result<(), ParseError> {
        let element = if variable.count.is_some() || variable.initial.len() <= 1 {
            variable.element_bytes as usize
        } else {
            variable.element_bytes as usize / variable.initial.len()
        };
        for (i, initial) in variable.initial.iter().enumerate() {
            let at = start + i * element;
            if at + element > start + size {
                return Err(too_large("initial values for their variable", variable.line));
            }
            match initial {
                Initial::Bits(bits) => {
                    let len = element.min(8);
                    self.bytes[at..at + len].copy_from_slice(&bits.to_le_bytes()[..len]);
                }
                Initial::Address(name, offset) => {
                    self.pointers.push((at, *name, *offset, variable.line));
                }
            }
        }
        Ok(())
    }

    /// Gives the variables that hold addresses their values, once everything has its place.
    fn point(&mut self, tree: &Tree<'a>) -> Result<(), ParseError> {
        for (at, name, offset, line) in std::mem::take(&mut self.pointers) {
            let variable = self.addresses.get(name).map(|at| DATA_BASE.wrapping_add(*at));
            let target = variable.or_else(|| calls::function_address(tree, name));
            let Some(target) = target else {
                return Err(ParseError {
                    line,
                    what: ParseErrorKind::UnknownName(name.to_owned()),
                });
            };
            if let Some(place) = self.bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&target.wrapping_add(offset as u64).to_le_bytes());
            }
        }
        Ok(())
    }
}
