//! What a clause promises, in words and with the contract's numbers.

use contracts::format::{
    Bound, Contract, Drift, Overflow, Path, Reach, Rejection, Relation, Tolerance,
};

/// What the clause of this id promises; empty for an id the contract has not.
pub fn promise(contract: &Contract, id: &str) -> String {
    let (section, rest) = id.split_once('.').unwrap_or((id, ""));
    let (name, class) = rest.split_once('.').unwrap_or((rest, ""));
    let text = match section {
        "tolerance" => {
            contract.tolerance.get(name).and_then(|all| all.get(class)).map(|t| tolerance(name, t))
        }
        "drift" => contract.drift.get(name).and_then(|all| all.get(class)).map(|d| drift(name, d)),
        "nan" => {
            contract.nan.as_ref().and_then(|nan| nan.reach.get(name)).map(|reach| nan(name, *reach))
        }
        "relations" => contract.relations.get(rest).map(relation),
        "paths" => contract.paths.get(rest).map(path),
        "requires" => contract.requires.get(rest).map(|requirement| {
            format!(
                "a call that breaks only `{}` is refused as {:?}",
                requirement.that, requirement.otherwise
            )
        }),
        "rejects" if name == "auto" => Some(auto_rejection(class)),
        "rejects" => contract.rejects.get(rest).map(rejection),
        "house" => house_rule(rest).map(str::to_owned),
        "mutants" => contract
            .mutants
            .get(rest)
            .map(|mutant| format!("the wrong kernel `{rest}` fails {}", mutant.killed_by)),
        _ => None,
    };
    text.unwrap_or_default()
}

fn tolerance(tensor: &str, tolerance: &Tolerance) -> String {
    let when = tolerance.when.as_ref().map(|when| format!(", when {when}")).unwrap_or_default();
    match &tolerance.bound {
        Some(bound) => format!("|{tensor} - reference| <= {}{when}", bound_text(bound)),
        None => format!("{tensor} equals the reference bit for bit, NaN as a class{when}"),
    }
}

fn bound_text(bound: &Bound) -> String {
    let mut parts = vec![format!("half an ulp of {}", bound.round_out.0)];
    for (magnitude, term) in &bound.terms {
        parts.push(format!("{} u({}) {magnitude}", term.times, term.unit.0));
    }
    parts.push(format!("{:e}", bound.floor));
    let overflow = match bound.overflow {
        Overflow::Infinite => "",
        Overflow::Saturates => "; finite overflow stops at the largest number",
    };
    format!("{}{overflow}", parts.join(" + "))
}

fn drift(tensor: &str, drift: &Drift) -> String {
    let when = drift.when.as_ref().map(|when| format!(", when {when}")).unwrap_or_default();
    format!(
        "relative RMS of {tensor} per group of its first {} axes <= {:e} {} + {:e}{when}",
        drift.axes, drift.times, drift.of, drift.plus
    )
}

fn nan(tensor: &str, reach: Reach) -> String {
    let reach = match reach {
        Reach::Exact => "nowhere else",
        Reach::Row => "at most elsewhere in the same row",
        Reach::Chunk => "at most in earlier rows of the same chunk and head",
    };
    format!("NaN in {tensor} where the reference has it, and {reach}")
}

fn relation(relation: &Relation) -> String {
    let what = if let Some(over) = &relation.alone {
        format!("each index of {} run alone gives the same", over.axis)
    } else if let Some(split) = &relation.split {
        format!(
            "{} cut at a multiple of {}, {} carried, gives the same",
            split.list,
            split.at,
            split.carry.join(" and ")
        )
    } else if let Some(equals) = &relation.equals {
        format!("{} ({}) gives the same", equals.contract, equals.adapter)
    } else if let Some(same) = &relation.same {
        let set: Vec<_> =
            same.set.iter().map(|(name, word)| format!("{name} {}", word.0)).collect();
        format!("the same tensors with {} give the same", set.join(" and "))
    } else if let Some(copies) = &relation.copies {
        format!("{} holds the slot of {} that {} names", copies.into, copies.of, copies.by)
    } else if let Some(over) = &relation.append_dead {
        format!("dead elements after each row of {} change nothing", over.axis)
    } else if let Some(over) = &relation.permute {
        format!("{} in another order gives the same in that order", over.axis)
    } else if let Some(steps) = &relation.steps {
        let carry = steps.carry.join(" and ");
        format!("{} one row at a time, {carry} carried, gives the same", steps.list)
    } else if let Some(heads) = &relation.heads {
        format!("each of {} with its share of {} alone gives the same", heads.of, heads.with)
    } else if let Some(scale) = &relation.scale {
        let (inputs, outputs) = (scale.tensors.join(" and "), scale.outputs.join(" and "));
        format!("{inputs} times 2^{0} gives {outputs} times 2^{0}", scale.power)
    } else if let Some(recall) = &relation.recall {
        format!("a second call with another {} gives what it should", recall.change)
    } else if let Some(replay) = &relation.replay {
        format!("the launches planned once serve other {} in the same memory", replay.list)
    } else {
        String::new()
    };
    let compare = match relation.compare {
        contracts::format::Compare::Bits => "bit for bit",
        contracts::format::Compare::Bound => "within both bounds",
    };
    format!("{what}, {compare}")
}

fn path(path: &Path) -> String {
    let chosen = if path.takes.is_some() { "an entry with" } else { "no entry with" };
    let word = path.word().unwrap_or_default();
    let mut text = format!("the plan takes {chosen} `{word}` in its name");
    for condition in [&path.when, &path.sizes].into_iter().flatten() {
        text += &format!(", where {condition}");
    }
    if !path.pieces.is_empty() {
        let pieces = path.pieces.iter().map(|(tensor, elements)| format!("{tensor} by {elements}"));
        text += &format!(", rows in whole pieces: {}", pieces.collect::<Vec<_>>().join(", "));
    }
    text
}

fn rejection(rejection: &Rejection) -> String {
    let mut edits: Vec<String> = Vec::new();
    edits.extend(
        rejection.set_dtype.iter().map(|(tensor, dtype)| format!("{tensor} of type {dtype}")),
    );
    edits.extend(rejection.set_shape.iter().map(|(tensor, shape)| {
        let axes: Vec<String> = shape.iter().map(ToString::to_string).collect();
        format!("{tensor} of shape [{}]", axes.join(", "))
    }));
    edits.extend(
        rejection
            .set_stride
            .iter()
            .map(|(tensor, stride)| format!("{tensor} of row stride {stride}")),
    );
    edits.extend(rejection.set_dim.iter().map(|(dim, value)| format!("{dim} = {value}")));
    format!("a call with {} is refused as {:?}", edits.join(" and "), rejection.error)
}

fn auto_rejection(rest: &str) -> String {
    let (what, tensor) = rest.split_once('.').unwrap_or((rest, ""));
    let edit = match what {
        "dtype" => "of a type it must not have",
        "shape" => "of a shape its dims contradict",
        "stride" => "of a stride too small for its rows",
        "align" => "off its alignment",
        "kind" => "of another scale kind",
        "alias" => "overlapping another tensor",
        _ => "edited",
    };
    format!("a call with {tensor} {edit} is refused, untouched")
}

fn house_rule(rule: &str) -> Option<&'static str> {
    Some(match rule {
        "accepts" => "a legal call is planned, not refused",
        "bounds" => "every access lies inside a buffer and is aligned",
        "initialised" => "nothing is read before it is written",
        "races" => "no two threads touch a byte unordered when one of them writes",
        "barriers" => "every barrier and shuffle is reached by all it waits for",
        "budget" => "the kernel ends within its budget of instructions",
        "read_only" => "inputs stay unchanged, bit for bit",
        "dead_untouched" => "bytes that belong to no live element stay unchanged",
        "unread" => "bytes that belong to no live element stay unread",
        "written" => "every live element of an output is written",
        "schedule" => "the order in which blocks and warps run changes no bit",
        "poison_agree" => "outputs do not depend on what unread memory holds",
        "repeat" => "the same call gives the same bits again",
        "guard" => "the bands around each buffer stay unchanged",
        "capture" => "a captured graph gives the bits of the eager call",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_of_every_contract_has_words() {
        let mut clauses = 0;
        for contract in contracts::builtin().iter().chain(contracts::canary()) {
            for clause in contracts::clause::clauses(contract) {
                assert!(
                    !promise(contract, &clause.id).is_empty(),
                    "{}: {}",
                    contract.contract,
                    clause.id
                );
                clauses += 1;
            }
        }
        assert!(clauses > 100, "{clauses} clauses");
    }

    #[test]
    fn a_tolerance_is_said_with_its_numbers() {
        let contract = contracts::canary().expect("the canary loads");
        let expected = "|y - reference| <= half an ulp of f32 + 256 u(f32) abs_sum + 1e-30";
        assert_eq!(promise(contract, "tolerance.y.all"), expected);
        assert_eq!(promise(contract, "tolerance.y.none"), "");
    }
}
