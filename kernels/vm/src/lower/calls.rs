//! Calls: device functions are inlined, through pointers all that fit, one after the other; the
//! functions of the runtime are operations of the machine. Recursion is followed as deep as its
//! copies stay small, and faults beyond.

use super::operand::Ty;
use super::{Binding, Lower, Lowering, Refusal, bad};
use crate::program::{Access, Class, Compare, Op, Reg, Scope, Slot};
use crate::rare::{Assert, Print, Rare};
use crate::space::CODE_BASE;
use crate::syntax::{Function, Instruction, Operand, Space, Statement, Tree, Variable};

/// Bytes from one function pointer to the next.
const POINTER_STEP: u64 = 16;
/// How deep calls of one function within itself are followed at most.
const DEEPEST: usize = 64;
/// Operations beyond which it is not followed either.
const LARGEST_FOLLOWED: usize = 1 << 18;
/// Statements that such calls may become.
const LARGEST_RECURSION: usize = 1 << 14;
/// Registers, or operations of a kind, beyond which it is not followed: a kernel has some 60,000.
const MOST_FOLLOWED: usize = 30_000;

/// The address that a function's name stands for.
pub(super) fn function_address(tree: &Tree<'_>, name: &str) -> Option<u64> {
    let number = tree.functions.iter().position(|f| f.name == name && !f.is_entry)?;
    Some(CODE_BASE + POINTER_STEP * (number as u64 + 1))
}

/// Whether formal parameters take such bindings: registers take registers alone.
fn take(formals: &[Variable<'_>], bindings: &[Binding]) -> bool {
    let fits = |(formal, binding): (&Variable<'_>, &Binding)| {
        let class = Ty::parse(formal.element).map(Ty::class);
        match binding {
            Binding::Register { reg, .. } => {
                formal.space == Space::Param || class == Some(reg.class)
            }
            _ => formal.space == Space::Param,
        }
    };
    formals.len() == bindings.len() && formals.iter().zip(bindings).all(fits)
}

/// How often a function may stand within itself.
fn deepest(callee: &Function<'_>) -> usize {
    let body = callee.body.as_deref().unwrap_or_default();
    let is_call = |statement: &&Statement<'_>| match statement {
        Statement::Instruction(ins) => ins.opcode.split('.').next() == Some("call"),
        _ => false,
    };
    let calls = body.iter().filter(is_call).count().max(1);
    let (mut total, mut copies) = (body.len(), 1);
    for depth in 1..DEEPEST {
        copies *= calls;
        total += body.len() * copies;
        if total > LARGEST_RECURSION {
            return depth;
        }
    }
    DEEPEST
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn call(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let operands = match ins.operands.as_slice() {
            // The prototype or the list of targets; what fits is taken from the functions.
            [rest @ .., Operand::List(_), Operand::Name(_)]
                if rest.iter().any(|operand| matches!(operand, Operand::Name(_))) =>
            {
                &ins.operands[..ins.operands.len() - 1]
            }
            all => all,
        };
        let (returns, name, arguments): (&[Operand<'a>], &'a str, &[Operand<'a>]) = match operands {
            [Operand::List(r), Operand::Name(name), Operand::List(a)] => (r, name, a),
            [Operand::Name(name), Operand::List(a)] => (&[], name, a),
            [Operand::List(r), Operand::Name(name)] => (r, name, &[]),
            [Operand::Name(name)] => (&[], name, &[]),
            _ => return Err(Refusal::Unsupported),
        };
        let callee = self.tree.functions.iter().find(|f| f.name == name);
        let formals = callee.map_or(&[][..], |callee| callee.parameters.as_slice());
        let returns: Vec<_> =
            returns.iter().map(|operand| self.argument(operand, None)).collect::<Lower<_>>()?;
        let arguments: Vec<_> = (0..)
            .zip(arguments)
            .map(|(i, operand)| self.argument(operand, formals.get(i)))
            .collect::<Lower<_>>()?;
        // A guarded call is jumped over.
        let (guard, flip) = self.guard;
        let skip = (guard != 0).then(|| {
            self.guard = (guard, !flip);
            let at = self.code.len();
            self.emit_branch();
            self.guard = (0, false);
            at
        });
        let kept = self.allocates.then(|| {
            let (held, kept) = (Self::as_long(self.stack().pointer), self.fresh(Class::Long));
            self.copy(kept, held);
            (held, kept)
        });
        let result = self.called(name, &returns, &arguments);
        if let Some((held, kept)) = kept {
            self.copy(held, kept);
        }
        // What is refused stands under the guard.
        self.guard = if result.is_ok() { (0, false) } else { (guard, flip) };
        if let (Ok(()), Some(at)) = (&result, skip) {
            self.land(at);
        }
        result
    }

    /// An argument or result: a variable of the caller, or a literal.
    fn argument(&mut self, operand: &Operand<'a>, formal: Option<&Variable<'a>>) -> Lower<Binding> {
        let Operand::Name(name) = operand else {
            let formal = formal.filter(|formal| formal.count.is_none());
            let ty = formal.and_then(|formal| Ty::parse(formal.element));
            let ty = ty.ok_or(Refusal::Unsupported)?;
            return Ok(Binding::Register { reg: self.source(operand, ty)?, bits: ty.bits });
        };
        match self.lookup(name) {
            Some(binding @ (Binding::Local(_) | Binding::Register { .. })) => Ok(binding),
            _ => bad(),
        }
    }

    /// Lets the branch at `at` lead here.
    fn land(&mut self, at: usize) {
        let end = self.code.len() as u32;
        if let Op::Branch { target, .. } = &mut self.code[at].op {
            *target = end;
        }
    }

    fn called(&mut self, name: &'a str, returns: &[Binding], arguments: &[Binding]) -> Lower<()> {
        if let Some(Binding::Register { reg: Reg { class: Class::Long, slot }, .. }) =
            self.lookup(name)
        {
            return self.call_through(slot, returns, arguments);
        }
        let tree = self.tree;
        let callee = tree.functions.iter().find(|f| f.name == name && f.body.is_some());
        if let Some(callee) = callee {
            if !take(&callee.returns, returns) || !take(&callee.parameters, arguments) {
                return bad();
            }
            return self.inline(callee, returns, arguments, false);
        }
        match (name, returns, arguments) {
            ("vprintf", [count], [format, list]) => {
                let format = self.passed(*format, Class::Long)?;
                let arguments = self.passed(*list, Class::Long)?;
                let printed = self.fresh_word();
                self.push_rare(Rare::Print(Print { format, arguments, count: printed }));
                self.give_back(*count, printed);
                Ok(())
            }
            ("__assertfail", [], [message, file, line, function, _]) => {
                let what = Assert {
                    message: self.passed(*message, Class::Long)?,
                    file: self.passed(*file, Class::Long)?,
                    line: self.passed(*line, Class::Word)?,
                    function: self.passed(*function, Class::Long)?,
                };
                self.push_rare(Rare::Assert(what));
                Ok(())
            }
            _ => Err(Refusal::Missing(format!("call of {name}"))),
        }
    }

    /// The value of an argument.
    fn passed(&mut self, binding: Binding, class: Class) -> Lower<Slot> {
        match binding {
            Binding::Register { reg, .. } if reg.class == class => Ok(reg.slot),
            Binding::Local(at) => {
                let reg = self.fresh(class);
                self.accesses.push(variable(reg, at));
                self.emit(Op::Load(self.accesses.len() as u16 - 1));
                Ok(reg.slot)
            }
            _ => bad(),
        }
    }

    /// Sets a result of 32 bits.
    fn give_back(&mut self, binding: Binding, value: Slot) {
        let value = Self::as_word(value);
        match binding {
            Binding::Register { reg, .. } if reg.class == Class::Word => self.copy(reg, value),
            Binding::Local(at) => {
                self.accesses.push(variable(value, at));
                self.emit(Op::Store(self.accesses.len() as u16 - 1));
            }
            _ => {}
        }
    }

    /// Compares the pointer with each function that has such parameters.
    fn call_through(
        &mut self,
        pointer: Slot,
        returns: &[Binding],
        arguments: &[Binding],
    ) -> Lower<()> {
        let tree = self.tree;
        let mut ends = Vec::new();
        for callee in &tree.functions {
            let fits = take(&callee.returns, returns)
                && take(&callee.parameters, arguments)
                && callee.body.is_some();
            let (true, Some(address)) = (fits, function_address(tree, callee.name)) else {
                continue;
            };
            let b = self.long_constant(address);
            let other = self.fresh_predicate();
            self.emit(Op::Set64 { op: Compare::Ne, d: other, a: pointer, b });
            self.guard = (other, false);
            let next = self.code.len();
            self.emit_branch();
            self.guard = (0, false);
            self.inline(callee, returns, arguments, true)?;
            ends.push(self.code.len());
            self.emit_branch();
            self.land(next);
        }
        self.push_rare(Rare::CallNowhere { address: pointer });
        for end in ends {
            self.land(end);
        }
        Ok(())
    }

    /// What a callee takes in a register is its own: it may change it.
    fn by_value(&mut self, binding: Binding) -> Binding {
        let Binding::Register { reg, bits } = binding else {
            return binding;
        };
        let own = self.fresh(reg.class);
        self.copy(own, reg);
        Binding::Register { reg: own, bits }
    }

    /// The callee's statements; its formal parameters are the caller's variables.
    fn inline(
        &mut self,
        callee: &Function<'a>,
        returns: &[Binding],
        arguments: &[Binding],
        through_pointer: bool,
    ) -> Lower<()> {
        let within = self.calls.iter().filter(|name| **name == callee.name).count();
        // Each call through a pointer may become many.
        let grows = within > 0 || through_pointer && self.calls.len() > 2;
        let full =
            grows && (self.largest_kind() > MOST_FOLLOWED || self.code.len() > LARGEST_FOLLOWED);
        if full || within >= deepest(callee) || self.calls.len() > 2 * DEEPEST {
            self.push_rare(Rare::TooDeep);
            return Ok(());
        }
        let arguments: Vec<_> = arguments.iter().map(|binding| self.by_value(*binding)).collect();
        let formals = callee.returns.iter().chain(&callee.parameters);
        let bound: Vec<_> =
            formals.map(|formal| formal.name).zip(returns.iter().chain(&arguments)).collect();
        let outer = std::mem::take(&mut self.scopes);
        let outer_return = self.return_to;
        let label = self.returns;
        self.returns += 1;
        self.return_to = Some(label);
        self.calls.push(callee.name);
        self.open_scope();
        for (formal, binding) in bound {
            self.bind(formal, *binding);
        }
        let body = callee.body.as_deref().unwrap_or_default();
        let result = self.body(body);
        self.calls.pop();
        self.scopes = outer;
        self.return_to = outer_return;
        self.guard = (0, false);
        let pending = std::mem::take(&mut self.return_branches);
        for (at, owner) in pending {
            if owner == label {
                self.land(at);
            } else {
                self.return_branches.push((at, owner));
            }
        }
        result.map_err(|error| Refusal::Wrong(error.what))
    }
}

/// An access to a local variable as wide as its register.
fn variable(reg: Reg, at: u32) -> Access {
    Access {
        space: Space::Local,
        width_bytes: if reg.class == Class::Long { 8 } else { 4 },
        count: 1,
        signed: false,
        half: false,
        regs: [reg; 8],
        base: None,
        offset: at.into(),
        plus: None,
        strong: false,
        release: false,
        scope: Scope::Wide,
    }
}
