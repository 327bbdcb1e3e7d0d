//! Syntax tree → program. Names become slots, labels become positions, device functions are
//! inlined at their calls. What the machine lacks becomes an `Unsupported` operation.

mod alive;
mod allocate;
mod arithmetic;
mod bits;
mod blocks;
mod calls;
mod cluster;
mod compare;
mod control;
pub(crate) mod convert;
mod data;
mod flatten;
mod float;
mod fold;
mod half;
mod matrix;
mod mbarrier;
mod memory;
mod modifiers;
mod operand;
mod packed;
mod quad;
mod stack;
mod targets;
mod tensor;
mod touches;
mod vectors;
mod visit;
mod visit_rare;
mod warp;
mod warpgroup;

use crate::module::{Entry, Owner, Parameter, ParameterType, Placed};
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::program::{
    Access, Atomic, Barrier, Class, Instr, Matrix, Op, Place, Pure, Reg, SharedArray, Shuffle,
    Slot, Special, Table, Vote,
};
use crate::rare::Rare;
use crate::syntax::{Function, Instruction, Space, Statement, Tree, Variable};
use data::{Data, LARGEST_VARIABLE_BYTES};
use std::collections::HashMap;

pub(crate) struct Lowered {
    pub entries: Vec<Entry>,
    pub data: Vec<u8>,
    pub owners: Vec<Owner>,
    pub variables: Vec<Placed>,
}

/// Why an instruction could not be lowered.
pub(crate) enum Refusal {
    /// The machine has no such operation.
    Unsupported,
    /// The machine lacks what this names.
    Missing(String),
    /// The text is wrong.
    Wrong(ParseErrorKind),
}

pub(crate) type Lower<T> = Result<T, Refusal>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    Register {
        reg: Reg,
        bits: u8,
    },
    /// 128 bits, the lower half first.
    Pair([Slot; 2]),
    Shared(u32),
    DynamicShared,
    Local(u32),
    Parameter {
        offset: u32,
    },
    /// Offset in the module's own data.
    Data(u64),
    /// One of [`Lowering::vectors`].
    Vector(usize),
}

/// `.reg .b32 %r<n>`: slots are given out when first named.
#[derive(Clone, Copy)]
struct Family {
    class: Class,
    bits: u8,
}

#[derive(Default)]
struct Scope<'a> {
    number: u32,
    names: HashMap<&'a str, Binding>,
    families: Vec<(&'a str, Family)>,
    branch_targets: HashMap<&'a str, Vec<&'a str>>,
}

struct Fixup<'a> {
    /// Operation to patch, or `(table, position)`.
    at: FixupAt,
    scopes: Vec<u32>,
    label: &'a str,
    line: u32,
}

enum FixupAt {
    Branch(usize),
    Table(usize, usize),
}

pub(crate) struct Lowering<'a, 't> {
    tree: &'t Tree<'a>,
    data: &'t HashMap<&'a str, u64>,
    scopes: Vec<Scope<'a>>,
    next_scope: u32,
    labels: HashMap<(u32, &'a str), u32>,
    fixups: Vec<Fixup<'a>>,
    calls: Vec<&'a str>,
    /// Where `ret` goes inside an inlined function: a label number of `returns`.
    return_to: Option<usize>,
    return_branches: Vec<(usize, usize)>,
    returns: usize,
    guard: (Slot, bool),
    place: Place,
    code: Vec<Instr>,
    places: Vec<Place>,
    label_names: HashMap<u32, &'a str>,
    next: [u32; 3],
    words: HashMap<u32, Slot>,
    longs: HashMap<u64, Slot>,
    specials: HashMap<(Special, bool), Reg>,
    parameter_slots: HashMap<(u32, u8, bool, Class), Reg>,
    carry: Option<Slot>,
    shared: Vec<SharedArray>,
    shared_end: u32,
    static_shared: u32,
    shared_names: HashMap<&'a str, u32>,
    dynamic_align: u32,
    local_end: u32,
    parameters: Vec<Parameter>,
    edges: u32,
    pures: Vec<Pure>,
    accesses: Vec<Access>,
    atomics: Vec<Atomic>,
    barriers: Vec<Barrier>,
    shuffles: Vec<Shuffle>,
    votes: Vec<Vote>,
    tables: Vec<Table>,
    matrices: Vec<Matrix>,
    rares: Vec<Rare>,
    unsupported: Vec<String>,
    simplified: bool,
    /// Lowered so far, for this kernel and those before.
    statements: u64,
    /// The asynchronous proxy reads what threads store: registers of products and such stores are
    /// looked after.
    watched: bool,
    /// Where the module's `.const` variables begin among its variables.
    constants: u64,
    /// The stack that `alloca` takes from, once something does.
    stack: Option<Stack>,
    /// Something in the module takes from it: what a function takes goes back when it returns.
    allocates: bool,
    /// Registers of several elements, with the bits of each.
    vectors: Vec<(Vec<Reg>, u8)>,
}

/// A thread's stack in local memory.
#[derive(Clone, Copy)]
struct Stack {
    /// The register of its pointer; 0 stands for the top.
    pointer: Slot,
    base: u32,
    top: u32,
}

/// Variables of one space in one kernel.
const LARGEST_SPACE_BYTES: u32 = 1 << 26;
/// Parameters of a kernel, some times what a device takes.
const LARGEST_PARAMETERS_BYTES: u64 = 1 << 16;
/// Operations of a kernel.
const MOST_OPERATIONS: usize = 1 << 20;
/// Registers of a class, and operations of one kind.
const MOST_OF_A_KIND: usize = 60_000;
/// Statements of a module, those of called functions at each call.
const MOST_STATEMENTS: u64 = 1 << 22;

/// Bytes kept free behind every variable of shared, global or constant memory, so that running over
/// its end is seen. No access is wider.
const REDZONE_BYTES: u32 = 32;

/// Lowers every kernel of a module; operations are left as they stand unless `simplified`.
pub(crate) fn lower(tree: &Tree<'_>, simplified: bool) -> Result<Lowered, ParseError> {
    let data = Data::of(tree)?;
    let watched = touches::asynchronous(tree);
    let allocates = touches::any(tree, |ins| ins.opcode.starts_with("alloca"));
    let mut entries = Vec::new();
    let mut statements = 0;
    for function in tree.functions.iter().filter(|f| f.is_entry) {
        let constants = data.constants;
        let fresh = Lowering::new(tree, &data.addresses);
        let lowering = Lowering { simplified, statements, watched, constants, allocates, ..fresh };
        let (entry, lowered) = lowering.entry(function)?;
        entries.push(entry);
        statements = lowered;
    }
    let Data { bytes, owners, variables, .. } = data;
    Ok(Lowered { entries, data: bytes, owners, variables })
}

pub(crate) fn too_large(what: &'static str, line: u32) -> ParseError {
    ParseError { line, what: ParseErrorKind::TooLarge(what) }
}

impl<'a, 't> Lowering<'a, 't> {
    fn new(tree: &'t Tree<'a>, data: &'t HashMap<&'a str, u64>) -> Self {
        Lowering {
            tree,
            data,
            scopes: Vec::new(),
            next_scope: 0,
            labels: HashMap::new(),
            fixups: Vec::new(),
            calls: Vec::new(),
            return_to: None,
            return_branches: Vec::new(),
            returns: 0,
            guard: (0, false),
            place: Place { ptx_line: 0, source: None },
            code: Vec::new(),
            places: Vec::new(),
            label_names: HashMap::new(),
            next: [1, 0, 0],
            words: HashMap::new(),
            longs: HashMap::new(),
            specials: HashMap::new(),
            parameter_slots: HashMap::new(),
            carry: None,
            shared: Vec::new(),
            shared_end: 0,
            static_shared: 0,
            shared_names: HashMap::new(),
            dynamic_align: 16,
            local_end: 0,
            parameters: Vec::new(),
            edges: 0,
            pures: Vec::new(),
            accesses: Vec::new(),
            atomics: Vec::new(),
            barriers: Vec::new(),
            shuffles: Vec::new(),
            votes: Vec::new(),
            tables: Vec::new(),
            matrices: Vec::new(),
            rares: Vec::new(),
            unsupported: Vec::new(),
            simplified: true,
            statements: 0,
            watched: false,
            constants: 0,
            stack: None,
            allocates: false,
            vectors: Vec::new(),
        }
    }

    /// The kernel, and how many statements were lowered by now.
    fn entry(mut self, function: &Function<'a>) -> Result<(Entry, u64), ParseError> {
        self.place.ptx_line = function.line;
        self.open_scope();
        self.declare_parameters(function)?;
        if let Some(body) = &function.body {
            self.calls.push(function.name);
            self.body(body)?;
        }
        self.guard = (0, false);
        self.emit(Op::Exit);
        let statements = self.statements;
        Ok((self.finish(function)?, statements))
    }

    fn declare_parameters(&mut self, function: &Function<'a>) -> Result<(), ParseError> {
        let mut end = 0u32;
        for variable in &function.parameters {
            let align = variable.align_bytes.max(1);
            let offset = end.next_multiple_of(align);
            let size = variable.size_bytes();
            if size + u64::from(offset) > LARGEST_PARAMETERS_BYTES {
                return Err(too_large("bytes of parameters", function.line));
            }
            let size = size as u32;
            end = offset + size;
            let ty = match (variable.count, variable.element) {
                (Some(_), _) => ParameterType::Bytes,
                (_, "u8" | "b8") => ParameterType::U8,
                (_, "s8") => ParameterType::S8,
                (_, "s16") => ParameterType::S16,
                (_, "u16" | "b16" | "f16" | "bf16") => ParameterType::U16,
                (_, "s32") => ParameterType::S32,
                (_, "f32") => ParameterType::F32,
                (_, "s64") => ParameterType::S64,
                (_, "f64") => ParameterType::F64,
                (_, "u64" | "b64") => ParameterType::U64,
                (_, "b128") => ParameterType::Bytes,
                _ => ParameterType::U32,
            };
            self.parameters.push(Parameter {
                name: variable.name.to_owned(),
                ty,
                size_bytes: size,
                align_bytes: align,
                offset_bytes: offset,
            });
            self.bind(variable.name, Binding::Parameter { offset });
        }
        Ok(())
    }

    fn open_scope(&mut self) {
        self.scopes.push(Scope { number: self.next_scope, ..Scope::default() });
        self.next_scope += 1;
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        self.scopes.last_mut().expect("a scope is always open")
    }

    fn bind(&mut self, name: &'a str, binding: Binding) {
        self.scope().names.insert(name, binding);
    }

    fn error(&self, what: ParseErrorKind) -> ParseError {
        ParseError { line: self.place.ptx_line, what }
    }

    fn body(&mut self, statements: &[Statement<'a>]) -> Result<(), ParseError> {
        for statement in statements {
            self.statements += 1;
            if let Some(what) = self.excess() {
                return Err(self.error(ParseErrorKind::TooLarge(what)));
            }
            match statement {
                Statement::Open => self.open_scope(),
                Statement::Close => {
                    self.scopes.pop();
                }
                Statement::Label(name) => {
                    let scope = self.scope().number;
                    let at = self.code.len() as u32;
                    self.labels.insert((scope, name), at);
                    self.label_names.entry(at).or_insert(name);
                }
                Statement::BranchTargets(name, targets) => {
                    self.scope().branch_targets.insert(name, targets.clone());
                }
                Statement::Registers(kind, name, count) => self.registers(kind, name, *count)?,
                Statement::VectorRegister(kind, name, len) => {
                    self.vector_register(kind, name, *len)?;
                }
                Statement::Variable(variable) => self.variable(variable)?,
                Statement::Instruction(instruction) => self.instruction(instruction)?,
            }
        }
        Ok(())
    }

    /// The most registers of a class, or operations of one kind, so far.
    fn largest_kind(&self) -> usize {
        let registers = self.next.iter().copied().max().unwrap_or(0);
        let kinds = [
            registers as usize,
            self.pures.len(),
            self.accesses.len(),
            self.matrices.len(),
            self.rares.len(),
            self.unsupported.len(),
            self.edges as usize,
        ];
        kinds.into_iter().max().unwrap_or(0)
    }

    /// What there is too much of already. One statement adds little to anything.
    fn excess(&self) -> Option<&'static str> {
        if self.largest_kind() > MOST_OF_A_KIND {
            Some("registers or instructions of one kind")
        } else if self.code.len() > MOST_OPERATIONS || self.statements > MOST_STATEMENTS {
            Some("instructions")
        } else if self.shared_end.max(self.local_end) > LARGEST_SPACE_BYTES {
            Some("bytes of variables")
        } else {
            None
        }
    }

    fn registers(
        &mut self,
        kind: &'a str,
        name: &'a str,
        count: Option<u32>,
    ) -> Result<(), ParseError> {
        let (class, bits) = self.register_type(kind)?;
        if count.is_some() {
            self.scope().families.push((name, Family { class, bits }));
        } else {
            let binding = self.new_register(class, bits);
            self.bind(name, binding);
        }
        Ok(())
    }

    fn register_type(&self, kind: &'a str) -> Result<(Class, u8), ParseError> {
        Ok(match kind {
            "pred" => (Class::Predicate, 1),
            "b128" => (Class::Long, 128),
            _ => match crate::syntax::type_bytes(kind) {
                Some(8) => (Class::Long, 64),
                Some(bytes) => (Class::Word, bytes as u8 * 8),
                None => return Err(self.error(ParseErrorKind::UnknownType(kind.to_owned()))),
            },
        })
    }

    fn variable(&mut self, variable: &Variable<'a>) -> Result<(), ParseError> {
        if variable.size_bytes() > LARGEST_VARIABLE_BYTES {
            return Err(self.error(ParseErrorKind::TooLarge("bytes in one variable")));
        }
        let binding = match variable.space {
            Space::Shared if variable.external => Binding::DynamicShared,
            Space::Shared => Binding::Shared(self.place_shared(variable)),
            _ => {
                let at = self.local_end.next_multiple_of(variable.align_bytes.max(1));
                self.local_end =
                    at.saturating_add(u32::try_from(variable.size_bytes()).unwrap_or(u32::MAX));
                Binding::Local(at)
            }
        };
        self.bind(variable.name, binding);
        Ok(())
    }

    fn place_shared(&mut self, variable: &Variable<'a>) -> u32 {
        let align = variable.align_bytes.max(1);
        let size = variable.size_bytes() as u32;
        let at = self.shared_end.next_multiple_of(align);
        self.shared.push(SharedArray { offset_bytes: at, size_bytes: size });
        self.shared_end = at + size + REDZONE_BYTES;
        self.static_shared = self.static_shared.next_multiple_of(align) + size;
        at
    }

    fn instruction(&mut self, instruction: &Instruction<'a>) -> Result<(), ParseError> {
        self.place = Place { ptx_line: instruction.line, source: instruction.source };
        self.guard = (0, false);
        if let Some((name, negated)) = instruction.guard {
            match self.lookup(name) {
                Some(Binding::Register { reg: Reg { class: Class::Predicate, slot }, .. }) => {
                    self.guard = (slot, negated)
                }
                _ => return Err(self.error(ParseErrorKind::UnknownName(name.to_owned()))),
            }
        }
        let start = self.code.len();
        let described = self.reserve(instruction);
        match self.select(instruction) {
            Ok(()) => {
                if described {
                    self.describe(start);
                }
                Ok(())
            }
            Err(refusal @ (Refusal::Unsupported | Refusal::Missing(_))) => {
                self.code.truncate(start);
                self.places.truncate(start);
                self.unsupported.push(match refusal {
                    Refusal::Missing(name) => name,
                    _ => instruction.opcode.to_owned(),
                });
                self.emit(Op::Unsupported(self.unsupported.len() as u16 - 1));
                Ok(())
            }
            Err(Refusal::Wrong(ParseErrorKind::BadOperands(_))) => {
                Err(self.error(ParseErrorKind::BadOperands(instruction.opcode.to_owned())))
            }
            Err(Refusal::Wrong(what)) => Err(self.error(what)),
        }
    }

    /// Chooses the operations for one instruction.
    fn select(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let parts: Vec<&str> = ins.opcode.split('.').collect();
        let parts = parts.as_slice();
        if !modifiers::known(parts) {
            return Err(Refusal::Unsupported);
        }
        targets::admit(self.tree.target, ins, parts)?;
        match parts[0] {
            "ret" | "exit" | "bra" | "brx" | "call" | "trap" | "brkpt" | "bar" | "barrier"
            | "nanosleep" | "membar" | "fence" | "pmevent" | "prefetch" | "prefetchu"
            | "griddepcontrol" | "setmaxnreg" | "discard" | "applypriority" => {
                self.control(ins, parts)
            }
            "createpolicy" => self.policy(ins),
            "alloca" | "stacksave" | "stackrestore" => self.stack_operation(ins, parts),
            "st" | "red" if parts.get(1) == Some(&"async") => self.async_store(ins, parts),
            "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "isspacep" | "mov" => {
                self.memory(ins, parts)
            }
            "cp" if parts.contains(&"tensor") => self.tensor(ins, parts),
            "cp" if parts.contains(&"bulk") || parts.get(2) == Some(&"mbarrier") => {
                self.bulk(ins, parts)
            }
            "ldmatrix" | "stmatrix" | "movmatrix" | "cp" | "mma" => self.matrix(ins, parts),
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => self.warp(ins, parts),
            "mbarrier" => self.mbarrier(ins, parts),
            "mapa" | "getctarank" => self.cluster(ins, parts),
            "wmma" => self.tiles(ins, parts),
            "wgmma" => self.warpgroup(ins, parts),
            "cvt" => self.convert(ins, parts),
            _ => self.arithmetic(ins, parts),
        }
    }

    fn emit(&mut self, op: Op) {
        self.code.push(Instr { op, guard: self.guard.0, flip: self.guard.1 });
        self.places.push(self.place);
    }

    fn scope_chain(&self) -> Vec<u32> {
        self.scopes.iter().rev().map(|s| s.number).collect()
    }
}

/// The operands do not fit; the caller names the instruction.
pub(crate) fn bad<T>() -> Lower<T> {
    Err(Refusal::Wrong(ParseErrorKind::BadOperands(String::new())))
}
