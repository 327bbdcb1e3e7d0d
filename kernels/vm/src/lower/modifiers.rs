//! Which modifiers each arithmetic and memory instruction may bear here. A modifier that is not
//! listed makes the whole instruction unsupported: ignoring it would give a wrong result.

use super::operand::Ty;

const ROUNDING: &[&str] = &["rn", "rz", "rm", "rp"];
const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan", "and", "or", "xor", "ftz",
];
const INTEGRAL: &[&str] = &["rni", "rzi", "rmi", "rpi", "rna"];
const NARROW: &[&str] = &[
    "tf32",
    "e4m3x2",
    "e5m2x2",
    "e2m1x2",
    "ue8m0x2",
    "e4m3",
    "e5m2",
    "sat",
    "ftz",
    "satfinite",
    "relu",
];
const ORDER: &[&str] = &[
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys",
];
const SPACES: &[&str] = &[
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "local",
    "const",
    "param",
    "param::entry",
    "param::func",
];
const CACHE: &[&str] =
    &["nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified", "v2", "v4", "v8"];
const ATOMIC: &[&str] = &[
    "add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec", "noftz", "v2", "v4", "v8",
];

/// Whether every part of the opcode has a meaning here.
pub(super) fn known(parts: &[&str]) -> bool {
    let groups: &[&[&str]] = match parts[0] {
        "add" | "sub" => &[ROUNDING, &["ftz", "sat", "cc"]],
        "addc" | "subc" => &[&["cc"]],
        "mul" | "mad" => &[ROUNDING, &["ftz", "sat", "lo", "hi", "wide", "cc"]],
        "madc" => &[&["lo", "hi", "cc"]],
        "fma" => &[ROUNDING, &["ftz", "sat", "relu"]],
        "div" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
            &[ROUNDING, &["ftz", "approx", "full"]]
        }
        "abs" | "neg" => &[&["ftz"]],
        "min" | "max" => &[&["ftz", "NaN", "xorsign", "abs", "relu"]],
        "rem" | "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "bfe" | "bfi" | "brev"
        | "popc" | "clz" | "fns" | "sad" | "selp" => &[],
        "bfind" => &[&["shiftamt"]],
        "prmt" => &[&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]],
        "shf" => &[&["l", "r", "wrap", "clamp"]],
        "lop3" => &[&["and", "or"]],
        "bmsk" | "szext" => &[&["clamp", "wrap"]],
        "dp4a" | "dp2a" => &[&["lo", "hi"]],
        "mul24" | "mad24" => &[&["lo", "hi", "sat"]],
        "setp" | "set" => &[COMPARISONS],
        "slct" => &[&["ftz"]],
        "cvt" if parts.get(1) == Some(&"pack") => return true,
        "cvt" => &[ROUNDING, INTEGRAL, NARROW],
        "atom" | "ld" | "st" if parts.last() == Some(&"b128") => return true,
        // Matched as a whole where they are lowered.
        "st" | "red" if parts.get(1) == Some(&"async") => return true,
        "ld" | "ldu" | "st" => &[ORDER, SPACES, CACHE],
        "atom" | "red" => &[ORDER, SPACES, ATOMIC],
        "ret" | "exit" | "bra" | "brx" | "call" | "trap" | "brkpt" | "bar" | "barrier"
        | "nanosleep" | "membar" | "fence" | "pmevent" | "prefetch" | "prefetchu"
        | "griddepcontrol" | "setmaxnreg" | "discard" | "applypriority" | "createpolicy"
        | "cvta" | "isspacep" | "mov" | "ldmatrix" | "stmatrix" | "movmatrix" | "cp" | "mma"
        | "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" | "copysign"
        // These are matched as a whole where they are lowered.
        | "testp" | "alloca" | "stacksave" | "stackrestore" | "wgmma" | "wmma" | "mbarrier" | "mapa" | "getctarank" => return true,
        _ => return false,
    };
    parts[1..].iter().all(|part| {
        groups.iter().any(|group| group.contains(part))
            || Ty::parse(part).is_some()
            || matches!(*part, "u16x2" | "s16x2")
            || part.starts_with("L1::")
            || part.starts_with("L2::")
    })
}
