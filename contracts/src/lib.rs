//! What a kernel promises, as data: the contract format, cases, their geometry and their YAML.
//!
//! A **contract** is one YAML file. It says what one kernel takes, what is legal, what it promises,
//! what it refuses, and which wrong kernels prove the promises have teeth. It promises and does not
//! compute: whatever needs a loop or a float formula is Rust with a name, and YAML names it. A **case**
//! is one concrete input: decisions and bits, no generator and no seed. [`Geometry`] is everything that
//! follows from a case. This page is the specification of the format; a field that is not here does not
//! exist and is refused.
//!
//! # Principles
//!
//! 1. *Integers that address are structure, numbers computed with are values.* Lengths, slots and ids
//!    live in `lists`; tensors carrying them are derived, never drawn, mutated or shrunk themselves.
//! 2. *One logical shape, several physical layouts.* References see logical tensors only.
//! 3. *Options mean something, variants do not.* The reference sees the options and cannot see the
//!    variants; each variant says how equal its values' results must be.
//! 4. *Legality is not distribution.* `one_of`, `multiple_of`, `at_least`, `is`, `segments`, `requires`
//!    and `domain` bind callers; `range`, `factor`, `slack`, `spare`, `edges` and `values` only steer
//!    what is drawn.
//! 5. *Every promise has a key.* Its id is the dotted path, as in `tolerance.o.f32`; see [`clauses`].
//! 6. *House rules are on, unwritten.* A contract may only weaken one, by name and with a reason.
//! 7. One document a file; no anchors, aliases, tags or repeated keys. A choice is a one-key map or a
//!    bare word. Names are letters, digits and `_`; dims, lists, options, variants and dtype symbols
//!    share one namespace. The order of keys means nothing.
//!
//! # Expressions
//!
//! Integers, conditions and words, checked in 128 bits; no floats. Evaluation is total: overflow and
//! division by zero are errors, and the right side of `and` and `or` is only looked at when needed.
//!
//! ```text
//! expr = and ("or" and)*      and = not ("and" not)*      not = "not" not | cmp
//! cmp  = sum (("=="|"!="|"<"|"<="|">"|">=") sum | "in" "[" atom ("," atom)* "]")?
//! sum  = prod (("+"|"-") prod)*      prod = atom (("*"|"/"|"%") atom)*
//! atom = ["-"] INT | NAME | CALL | "(" expr ")"
//! CALL = ceil_div(a,b) | align_up(a,b) | min(a,b) | max(a,b)
//!      | sum(list) | largest(list) | count(list) | bytes(dtype)
//! ```
//!
//! `/` floors and `%` has the divisor's sign. A name is a dim, list, option, variant or dtype symbol.
//! Beside a choice a bare name is one of the choice's own words, even where a dim or list has that name;
//! a word that spells an integer is that integer. `largest` of an empty list is 0. Where a list is
//! defined `each: A`, every list over `A` means its element. `when` ranges over options, variants and
//! dtype symbols only.
//!
//! # Sections
//!
//! | section | grammar |
//! |---|---|
//! | head | `contract` (the file's stem), `version`, `kind: kernel`, `summary`, `spec` |
//! | `dtypes` | `symbol: [type…]`; the first is the simplest |
//! | `options` | `name: [word…]`; the first is the simplest |
//! | `variants` | `name: {values: [word…], equal: bits or bound, where?: {value: condition}}` |
//! | `dims` | one of `range` (+ `edges`), `one_of`, `multiple_of` + `factor`, `at_least` + `slack`, `is`, `segments: list` (+ `spare`: rows past the last segment) |
//! | `lists` | `each: dim` and one of `length {range, edges}`, `slots {pool, pad}`, `ids {below, invalid, repeats}`, `is` |
//! | `requires` | `name: {that: condition, else: error}`: legal cases satisfy all; a case that breaks only one must be refused with its error |
//! | `scalars` | `name: {dtype, domain, values}`, passed by value |
//! | `stores` | `name: {along: dim, holds: [tensor…]}`: per case one packed row, or separate tensors |
//! | `tensors` | `access`, `dtype`, `shape`, and where they apply `when`, `layout`, `align`, `live: {by: list}`, `kind`, `from`, `domain`, `values` |
//! | `joint` | `name: {gdn_gates: {log, alpha?, beta, raw?: {a, b, dt_bias, a_log}, classes}}`: a generator that writes several tensors, in the form that is present |
//! | `nan` | `into: [tensor…]` where NaN may be planted, `reach: {output: exact, row or chunk}` how far it may spread |
//! | `tolerance` | `tensor: {class: {when?, bits: {} or bound: {…}}}` |
//! | `drift` | `tensor: {class: {when?, axes, times, of, plus}}` |
//! | `relations` | `name: {one relation, when?, compare: bits or bound}` |
//! | `paths` | `name: {takes or never: word, when?, where?, pieces?: {tensor: elements}}`: which entries a plan must choose; see [paths](#paths) |
//! | `rejects` | `name: {one edit, error, detected?}` |
//! | `fixtures`, `production` | named partial assignments of `dims`, `lists`, `dtypes`, `options`, `variants`, `layout`, `values`, `joint`; the rest is drawn. Fixtures always run; production shapes only on a GPU |
//! | `mutants` | `id: {killed_by: clause or prefix, with?: fixture, equivalent?: reason}`; an equivalent one need not be caught |
//! | `except` | `house rule: reason` |
//! | `history` | `[{version, clauses?: [clause…], because, link, renamed?, retired?, added?, axis?}]`, newest last; an entry that excuses a weaker clause names it as `assay review` does, and links the issue; see [older cases](#older-cases) |
//!
//! A tensor whose `when` fails is a null argument. `access` is `read`, `write` or `read_write`, or
//! `{by: {option: {word: access}}}`, total over the option's words; a `domain` may switch alike. Every written tensor has a tolerance
//! and no other; over all choices its classes neither overlap nor leave a hole. An input has a `domain`
//! and either `values` or a place in one joint generator; a derived tensor and an output have neither.
//!
//! # Closed lists
//!
//! * **Types**: `f32 f16 bf16 e4m3 i32 i64`.
//! * **Derivations** (`from`): `copy: list`, `prefix_sum: list` (0, then the running sums).
//! * **Layouts**: `dense`; `row_padded` and `outer_padded` (elements after each index of the first axis);
//!   `offset` (elements before the first); `wide` (the last row begins beyond 2³² elements); `rank0`
//!   (shape `[]` where the contract writes `["1"]`); `permuted` (the last two of three axes or more change
//!   places in memory); `odd_unit_strides` (axes of one index have strides that mean nothing). But for
//!   `permuted` the innermost axis is contiguous. Base, offset and row stride are multiples of `align`
//!   bytes, the element's size unless said.
//! * **Live**: `live: {by: list}` names the only part that may be touched along the first axis. If that
//!   axis is the list's pool: the indices listed. If it is the list's own axis: those whose entry is no
//!   pad. If it is segments over that axis: the rows of such segments. Rows past the last segment are
//!   dead in every tensor.
//! * **Domains**: `any finite positive nonzero`, `range: [low, high]`, `at_most: high` (−∞ included), `row_norm: most` (L2 norm of each
//!   innermost row). They bind live elements; where `nan.into` names the tensor, NaN is legal too.
//! * **Values**: `zero`, `constant: x`, `normal: σ`, `uniform`, `log_uniform: [low, high]` (exponents of
//!   2), `model_scale: dim` (1/√dim), `unit_rows`, `correlated_rows: [share…]`, `axis_rows: n` (one ±1 a row, at one of n places), `ramp`, `spike`,
//!   `spiked_rows` (one a row), `distinct_mantissas`, `all_codes`, `lattice` (eighths up to 2), `one_hot_rows`, `alternating`,
//!   `midpoints: dtype`, `nan_payloads`, `hashed`, `specials`, `ties: {places}`, `crowd: {band, count}`,
//!   `masked: {survivors}`, `planted: {value, at}`, `runs: [x…]` (stretches of one value each), `log_decays: lb, lbmax, mix or slow`
//!   (of key channels), `literal: [bits…]`. Each is a function of seed, tensor and coordinates.
//! * **Scale kinds**, never convertible: `tensor_bf16 tensor_f32_multiplier row_f32 block128_f32`.
//! * **Errors**: `shape dtype scale_shape scale_kind scale_value id_range align alias duplicate nonfinite
//!   state capacity`.
//! * **Relations**: `alone: {axis}` (each index run alone gives the same); `split: {list, at, carry}` (two
//!   runs one after the other give the same as one, cut at multiples of `at`); `equals: {contract,
//!   adapter, set?}` (another contract through an adapter in Rust; `set`: words of its options and
//!   variants that this contract lacks, the first otherwise); `append_dead: {axis}` (dead elements after
//!   every row change nothing); `same: {set}` (the same tensors under other words of options or variants
//!   leave the same in every output both runs write, under `bits` too but for NaN that is in one of them alone
//!   and within the `nan.reach` of its tensor: another word may be another kernel, and the policy leaves it
//!   open to each); `copies: {of, into, by}` (row n of `into` is the
//!   slot of `of` that the list `by` names, in one run); `permute: {axis}` (another order of the indices,
//!   or of a pool's places, gives the same in that order); `steps: {list, carry}` (one row of each segment
//!   a run); `heads: {of, with}` (each key head with its share of the value heads alone); `scale: {tensors,
//!   power, outputs}` (inputs times 2^power give outputs times it); `recall: {change}` (the call again with
//!   another scalar, then as it was); `replay: {list, carry}` (the planned launches again with other
//!   lengths in the same memory).
//! * **Edits** of a rejection, exactly one: `set_dtype`, `set_shape`, `set_stride`, `set_dim`. `detected:
//!   plan` (the default) is found from the arguments; `status` in a device word the kernel writes;
//!   `caller` is an obligation that is never generated.
//! * **House rules**: see [`HOUSE_RULES`]; `except: {repeat: why}` drops one of [`EXCUSABLE_RULES`].
//!
//! # Paths
//!
//! Where a launch function chooses between entries that are all right, say one that loads four elements at
//! once and one that takes any alignment, no result shows that the better one is never chosen.
//!
//! ```yaml
//! paths:
//!   vectors: {takes: fours, when: "io == f32", where: "D % 4 == 0", pieces: {x: 4, y: "16 / bytes(io)"}}
//!   no_tail: {never: single, where: "D % 4 == 0", pieces: {x: 4}}
//! ```
//!
//! `takes`: some launch of the plan has an entry with this word between two `_` of its name; `never`: none
//! has. Promised under the choices `when` names, for the sizes `where` names, where every row of the tensors
//! in `pieces`, an index of its first axis, begins on a multiple of so many elements (an absent one asks nothing),
//! and not of a plan that launches nothing. A choice that is an argument of one entry is not seen.
//!
//! # Protocols
//!
//! A contract of `kind: protocol` promises about events, not about one call. Its sections: the head,
//! `dtypes`, `options`, `history` and `mutants` as above, and
//!
//! | section | grammar |
//! |---|---|
//! | `dims` | `name: {range: [least, most]}`: sizes of a history |
//! | `states` | `name: {refuses?: refusal}`; a sequence starts in the first |
//! | `events` | `name: {from: [state…], to, otherwise?, by_ticket?, rows?: {range}, requires?: {refusal: condition}, publishes?, opens?, empties?, failing?: {launches, once, lasting}}` |
//! | `invariants` | `name: sentence`, each a check in Rust of that name |
//! | `limits` | `{events, illegal_one_in}` |
//!
//! Conditions speak of dims, of `rows`, the event's argument, of `length`, the rows published, and of
//! `verify_rows`, those of the round that is open. Refusals, the first that applies: `released broken
//! stale_id state rows capacity`. See [`protocol`].
//!
//! # What the numbers mean
//!
//! `bits` is equality, any NaN equal to any other. A bound is
//!
//! ```text
//! |y − r| ≤ u(round_out)·|r| + Σ times · u(unit) · magnitude + floor
//! ```
//!
//! with `r` the reference's value, `u` the unit roundoff of a type, and magnitudes that the reference
//! returns beside its value, computed from absolute values so that cancellation cannot shrink them. Every
//! coefficient is mandatory and larger means looser. A finite value past the largest number of
//! `round_out` becomes infinite, or stops there where the bound says `overflow: saturates`. `compare:
//! bound` between two runs allows both bounds. A drift clause is a second gate: the relative RMS error of
//! each group, a group being one index of the first `axes` axes, is at most `times · measure + plus`.
//!
//! # Cases
//!
//! ```yaml
//! case: 1
//! contract: gdn_decode
//! version: 1
//! found: {clause: tolerance.o.f32, backend: vm}
//! dtypes: {io: f32, state: f32}
//! options: {state_layout: vk, gate_form: log, head_map: block}
//! dims: {N: 1, Hk: 1, Hv: 1, Dk: 32, Dv: 32, slots: 1}
//! lists: {slot: [0]}
//! scalars: {scale: 0x3e000000}
//! stores: {qkv: {packed: 8}, gates: separate}
//! poison: quiet
//! schedule: 17
//! tensors:
//!   slot_of: {derived: [0]}
//!   k: {layout: dense, fill: 0x00000000, at: {"0,0,3": 0x3f800000}}
//!   g: {layout: {row_padded: 3}, fill: 0x00000000}
//!   o: {layout: dense}
//! ```
//!
//! Bits are hexadecimal in the width of their type. Contents are a `fill` (bits, or `{hashed: seed}`: the
//! frozen function [`case::hashed_bits`]) with the elements that differ `at` their logical coordinates,
//! or `bits: "…"`, the digits of every element in row-major order. Derived contents are stored and
//! recomputed; a difference is an error that shows both. Dead regions are not stored. `schedule` is the
//! seed of the order in which blocks and warps run; without it, or as `in_order`, they run by number.
//!
//! # Older cases
//!
//! A contract's `version` rises whenever an older case would not decode to the same meaning, and an entry
//! of its `history` with that version says how older cases are read:
//!
//! ```yaml
//! history:
//!   - version: 2
//!     because: rows are counted as tokens, and the order has a word of its own
//!     link: "https://example.org/issues/9"
//!     renamed: {dims.T: dims.tokens, tensors.o: tensors.out, options.order.rank: options.order.position}
//!     retired: {variants.plan: staged, scalars.unused: ~}
//!     added:   {options.finish: none, dims.groups: 1, lists.group: 0, tensors.bias: 0x00000000}
//!     axis:    [{tensor: s, at: 1, dim: groups}]
//! ```
//!
//! * `renamed`: another name, of a decision, of one word of an option or variant, or of a clause that
//!   cases may have been `found` by; a tensor's clauses follow its name.
//! * `retired`: a decision that is gone. A case that held this value means the same today; `~` stands for
//!   any. A case with another value cannot be carried over.
//! * `added`: a decision that is new, with what older cases meant. One number stands for all items of a
//!   list and all elements of a tensor. What is computed (`is`, `from`, outputs) needs no entry.
//! * `axis`: a tensor's new axis of extent 1; the elements keep their order.
//!
//! An entry without these says that older cases mean what they meant. Cases are brought to today's
//! version each time they are read; `assay corpus migrate` writes them so, and lists every case that
//! cannot be carried over, with the reason.
#![deny(unsafe_code)]

mod builtin;
pub mod case;
mod case_error;
pub mod case_yaml;
mod check;
mod check_history;
mod check_promises;
mod check_tensors;
pub mod clause;
pub mod dtype;
pub mod expr;
mod expr_parse;
pub mod format;
pub mod geometry;
mod layout;
mod legality;
pub mod load;
pub mod logical;
pub mod migrate;
mod names;
mod order;
pub mod protocol;
mod scope;
mod yaml;

pub use builtin::{
    builtin, canary, check_builtin, contract, family, protocol_contract, protocols, source,
    test_kernels,
};
pub use case::{Case, CaseTensor, Content, Decisions, Fill, Layout, Schedule, StoreForm};
pub use case_error::{CaseError, printable};
pub use clause::{AutoReject, Clause, ClauseKind, EXCUSABLE_RULES, HOUSE_RULES, Need, clauses};
pub use dtype::{DType, Poison};
pub use expr::{Expr, ExprError, Scope, Value};
pub use format::Contract;
pub use geometry::{BufferGeometry, Geometry, TensorGeometry};
pub use layout::{LARGEST_BUFFER_BYTES, MOST_ELEMENTS};
pub use legality::{check_decisions, check_structure};
pub use load::{ContractError, parse_contract};
pub use logical::Logical;
pub use order::{Decision, decision_order};
pub use scope::CaseScope;
