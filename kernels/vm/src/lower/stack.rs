//! `alloca`, `stacksave` and `stackrestore`: a part of a thread's local memory that grows downwards.
//! What does not fit has an address in no memory, so that its first access is a fault. Memory that is
//! given back and taken again keeps its bytes: reads of what nobody wrote since can be missed, and so
//! can accesses of one piece beyond another.

use super::{Lower, Lowering, Refusal, Stack, bad};
use crate::parse_error::ParseErrorKind;
use crate::program::{Class, Reg};
use crate::syntax::{Instruction, Operand};

/// Of a thread.
const STACK_BYTES: u32 = 8 << 10;
const LEAST_ALIGN: u64 = 8;
const MOST_ALIGN: u64 = 1 << 23;
/// Beyond any local memory.
const NOWHERE: u64 = 0xf000_0000;

/// The pointer in use.
fn pointer(pointer: u64, layout: u64) -> u64 {
    if pointer == 0 { layout & 0xffff_ffff } else { pointer }
}

/// The pointer after some bytes are taken: below the old one, and aligned.
fn taken(old: u64, bytes: u64, layout: u64) -> u64 {
    let (base, align) = (layout >> 32 & 0x7ff_ffff, 1u64 << (layout >> 59));
    let old = pointer(old, layout);
    match old.checked_sub(bytes).map(|new| new & !(align - 1)) {
        Some(new) if new >= base && old < NOWHERE => new,
        _ => NOWHERE,
    }
}

impl<'a> Lowering<'a, '_> {
    /// The stack of this kernel.
    pub(super) fn stack(&mut self) -> Stack {
        if let Some(stack) = self.stack {
            return stack;
        }
        let base = self.local_end.next_multiple_of(16);
        let top = base.saturating_add(STACK_BYTES);
        self.local_end = top;
        let stack = Stack { pointer: self.fresh_long(), base, top };
        self.stack = Some(stack);
        stack
    }

    /// Top, base and alignment in one number.
    fn layout(&mut self, stack: Stack, align: u64) -> Reg {
        let (top, base) = (u64::from(stack.top), u64::from(stack.base));
        let value = top | base << 32 | u64::from(align.trailing_zeros()) << 59;
        self.constant(value, Class::Long)
    }

    pub(super) fn stack_operation(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let class = match parts {
            [_, "u64"] => Class::Long,
            [_, "u32"] => Class::Word,
            _ => return Err(Refusal::Unsupported),
        };
        let ty = super::operand::Ty::parse(parts[1]).ok_or(Refusal::Unsupported)?;
        let stack = self.stack();
        let held = Self::as_long(stack.pointer);
        match (parts[0], ins.operands.as_slice()) {
            ("stacksave", [d]) => {
                let (d, layout) = (self.target(d, class)?, self.layout(stack, LEAST_ALIGN));
                self.pure(|a, b, _| pointer(a, b), Reg { class, slot: d }, &[held, layout]);
            }
            ("stackrestore", [a]) => {
                let a = self.source(a, ty)?;
                self.pure(|a, _, _| a, held, &[a]);
            }
            ("alloca", [d, bytes, align @ ..]) => {
                let align = match align {
                    [] => LEAST_ALIGN,
                    [Operand::Int(align)] if align.is_power_of_two() && *align <= MOST_ALIGN => {
                        LEAST_ALIGN.max(*align)
                    }
                    [Operand::Int(align)] => {
                        let align = u32::try_from(*align).unwrap_or(u32::MAX);
                        return Err(Refusal::Wrong(ParseErrorKind::BadAlignment(align)));
                    }
                    _ => return bad(),
                };
                let (d, bytes) = (self.target(d, class)?, self.source(bytes, ty)?);
                let layout = self.layout(stack, align);
                self.pure(taken, held, &[held, bytes, layout]);
                self.pure(|a, _, _| a, Reg { class, slot: d }, &[held]);
            }
            _ => return bad(),
        }
        Ok(())
    }
}
