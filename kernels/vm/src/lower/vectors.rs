//! Registers of several elements: `.reg .v4 .b32 %r`, whose elements are `%r.x` to `%r.w`, or
//! `%r.r` to `%r.a`; and special registers taken as vectors.
//! Each element is a register of its own.

use super::operand::Ty;
use super::{Binding, Lower, Lowering, Refusal, bad};
use crate::parse_error::ParseError;
use crate::program::{Class, Reg};
use crate::syntax::{Instruction, Operand};

/// Special registers of three elements; a fourth is zero.
const SPECIALS: &[(&str, [&str; 3])] = &[
    ("%tid", ["%tid.x", "%tid.y", "%tid.z"]),
    ("%ntid", ["%ntid.x", "%ntid.y", "%ntid.z"]),
    ("%ctaid", ["%ctaid.x", "%ctaid.y", "%ctaid.z"]),
    ("%nctaid", ["%nctaid.x", "%nctaid.y", "%nctaid.z"]),
    ("%clusterid", ["%clusterid.x", "%clusterid.y", "%clusterid.z"]),
    ("%nclusterid", ["%nclusterid.x", "%nclusterid.y", "%nclusterid.z"]),
    ("%cluster_ctaid", ["%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z"]),
    ("%cluster_nctaid", ["%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z"]),
];

impl<'a> Lowering<'a, '_> {
    pub(super) fn vector_register(
        &mut self,
        kind: &'a str,
        name: &'a str,
        len: u8,
    ) -> Result<(), ParseError> {
        let (class, bits) = self.register_type(kind)?;
        let regs = (0..len).map(|_| self.fresh(class)).collect();
        self.vectors.push((regs, bits));
        self.bind(name, Binding::Vector(self.vectors.len() - 1));
        Ok(())
    }

    /// The element that a name with a suffix stands for.
    pub(super) fn element(&mut self, name: &'a str) -> Option<Binding> {
        let (vector, suffix) = name.rsplit_once('.')?;
        let at = match suffix {
            "x" | "r" => 0,
            "y" | "g" => 1,
            "z" | "b" => 2,
            "w" | "a" => 3,
            _ => return None,
        };
        let mut scopes = self.scopes.iter().rev();
        let Binding::Vector(number) = *scopes.find_map(|scope| scope.names.get(vector))? else {
            return None;
        };
        let (regs, bits) = &self.vectors[number];
        Some(Binding::Register { reg: *regs.get(at)?, bits: *bits })
    }

    /// The elements of a vector register, as operands.
    pub(super) fn elements_of(&mut self, operand: &Operand<'a>) -> Option<Vec<Operand<'a>>> {
        let Operand::Name(name) = operand else { return None };
        match self.lookup(name)? {
            Binding::Vector(number) => {
                let len = self.vectors[number].0.len();
                Some((0..len).map(|at| Operand::Element(name, at as u8)).collect())
            }
            _ => None,
        }
    }

    /// One element of a vector register.
    pub(super) fn vector_element(&mut self, name: &'a str, at: u8) -> Lower<(Reg, u8)> {
        match self.lookup(name) {
            Some(Binding::Vector(number)) => {
                let (regs, bits) = &self.vectors[number];
                let reg = regs.get(usize::from(at)).ok_or(Refusal::Unsupported)?;
                Ok((*reg, *bits))
            }
            _ => bad(),
        }
    }

    /// `mov.v4.u32 d, %tid` and moves between vector registers or lists of registers.
    pub(super) fn move_vector(&mut self, ins: &Instruction<'a>, len: usize, ty: Ty) -> Lower<()> {
        let [d, a] = ins.operands.as_slice() else { return bad() };
        let mut list = |operand: &Operand<'a>| match operand {
            Operand::Vector(list) => Some(list.clone()),
            other => self.elements_of(other),
        };
        let special = match a {
            Operand::Name(name) => SPECIALS.iter().find(|(special, _)| special == name),
            _ => None,
        };
        let from = match special {
            Some((_, elements)) => {
                let named = elements.iter().map(|name| Operand::Name(name));
                Some(named.chain([Operand::Int(0)]).take(len).collect())
            }
            None => list(a),
        };
        let (Some(to), Some(from)) = (list(d), from) else { return bad() };
        if to.len() != len || from.len() != len || ty.class() == Class::Predicate {
            return bad();
        }
        // All are read before any is written.
        let mut kept = Vec::with_capacity(len);
        for operand in &from {
            let a = self.source(operand, ty)?;
            let copy = self.fresh(ty.class());
            self.copy(copy, a);
            kept.push(copy);
        }
        for (operand, a) in to.iter().zip(kept) {
            let (d, bits) = self.destination(operand, ty.class())?;
            if d.class != a.class || bits < ty.bits {
                return bad();
            }
            self.copy(d, a);
        }
        Ok(())
    }
}
