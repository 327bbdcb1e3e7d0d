//! Forms of a whole warp: shuffles, votes, matches, reductions and moves of tiles.

use super::integers::EDGES;
use super::{Form, Operands, pairs};

fn shuffles(out: &mut Vec<Form>) {
    type From = fn(i32, i32, i32) -> (i32, bool);
    // Lane, distance and the segment mask give the lane read; the rest keeps its own.
    let modes: [(&str, From, u32); 4] = [
        ("up", |lane, by, segment| (lane - by, lane - by >= (lane & segment)), 0),
        (
            "down",
            |lane, by, segment| (lane + by, lane + by <= (lane & segment | 31 & !segment)),
            31,
        ),
        (
            "bfly",
            |lane, by, segment| (lane ^ by, lane ^ by <= (lane & segment | 31 & !segment)),
            31,
        ),
        ("idx", |lane, by, segment| (lane & segment | by & !segment, true), 31),
    ];
    for (mode, from, clamp) in modes {
        for width in [32, 8] {
            let name = format!("shfl.sync.{mode}.b32 width {width}");
            let c = (32 - width) << 8 | clamp;
            // The distance is the same in all lanes: it comes from lane 0.
            let code = format!(
                "shfl.sync.idx.b32 %r5, %r2, 0, 31, -1;and.b32 %r5, %r5, 31;shfl.sync.{mode}.b32 %r6|%p1, %r1, %r5, {c}, -1;selp.u32 %r8, 1, 0, %p1;mov.b64 %rd3, {{%r6,%r8}};"
            );
            out.push(Form::warp(name, code, &pairs(&EDGES), move |x| {
                let by = (x[0][1] & 31) as i32;
                std::array::from_fn(|lane| {
                    let (source, inside) = from(lane as i32, by, 32 - width as i32);
                    let source = if inside { source as usize } else { lane };
                    u64::from(x[source][0]) | u64::from(inside) << 32
                })
            }));
        }
    }
}

fn same(f: impl Fn(&[Operands; 32]) -> u64 + 'static) -> impl Fn(&[Operands; 32]) -> [u64; 32] {
    move |x| [f(x); 32]
}

fn votes(out: &mut Vec<Form>) {
    let holds = |x: &Operands| x[0] > 100;
    let count = move |x: &[Operands; 32]| x.iter().filter(|x| holds(x)).count();
    let before = "setp.gt.u32 %p1, %r1, 100;";
    type Test = Box<dyn Fn(&[Operands; 32]) -> bool>;
    let list: [(&str, Test); 3] = [
        ("any", Box::new(move |x| count(x) > 0)),
        ("all", Box::new(move |x| count(x) == 32)),
        ("uni", Box::new(move |x| count(x) % 32 == 0)),
    ];
    for (kind, f) in list {
        let code = format!("{before}vote.sync.{kind}.pred %p2, %p1, -1;selp.u32 %r3, 1, 0, %p2;");
        out.push(Form::warp(
            format!("vote.sync.{kind}.pred"),
            code,
            &pairs(&EDGES),
            same(move |x| f(x).into()),
        ));
    }
    let code = format!("{before}vote.sync.ballot.b32 %r3, %p1, -1;");
    let ballot = move |x: &[Operands; 32]| (0..32).map(|l| u64::from(holds(&x[l])) << l).sum();
    out.push(Form::warp("vote.sync.ballot.b32", code, &pairs(&EDGES), same(ballot)));
    let code = format!("{before}mov.u32 %r3, 0;@%p1 activemask.b32 %r3;");
    out.push(Form::warp("activemask.b32", code, &pairs(&EDGES), move |x| {
        let all: u64 = ballot(x);
        std::array::from_fn(|l| if holds(&x[l]) { all } else { 0 })
    }));
    let code = "match.any.sync.b32 %r3, %r2, -1;";
    out.push(Form::warp("match.any.sync.b32", code, &pairs(&EDGES), |x| {
        std::array::from_fn(|l| (0..32).map(|k| u64::from(x[k][1] == x[l][1]) << k).sum())
    }));
    let code = "match.any.sync.b64 %r3, %rd1, -1;";
    out.push(Form::warp("match.any.sync.b64", code, &pairs(&EDGES[..3]), |x| {
        std::array::from_fn(|l| (0..32).map(|k| u64::from(x[k][..2] == x[l][..2]) << k).sum())
    }));
    let code = "shr.u32 %r5, %r1, 1;match.all.sync.b32 %r3|%p1, %r5, -1;@%p1 add.u32 %r3, %r3, 7;";
    out.push(Form::warp(
        "match.all.sync.b32",
        code,
        &pairs(&EDGES[..2]),
        same(|x| if x.iter().all(|y| y[0] >> 1 == x[0][0] >> 1) { 6 } else { 0 }),
    ));
    out.push(Form::warp(
        "elect.sync",
        "elect.sync %r5|%p1, -1;selp.u32 %r3, 1, 0, %p1;",
        &pairs(&EDGES),
        |_| std::array::from_fn(|l| u64::from(l == 0)),
    ));
    let code = "bar.red.popc.u32 %r3, 0, %p1;";
    let code = format!("{before}{code}");
    out.push(Form::warp("bar.red.popc.u32", code, &pairs(&EDGES), same(move |x| count(x) as u64)));
    for (kind, f) in [("and", 32usize), ("or", 1)] {
        let code = format!("{before}bar.red.{kind}.pred %p2, 0, %p1;selp.u32 %r3, 1, 0, %p2;");
        out.push(Form::warp(
            format!("bar.red.{kind}.pred"),
            code,
            &pairs(&EDGES),
            same(move |x| u64::from(count(x) >= f)),
        ));
    }
}

fn reductions(out: &mut Vec<Form>) {
    type Join = fn(u32, u32) -> u32;
    let list: [(&str, Join); 9] = [
        ("add.u32", u32::wrapping_add),
        ("add.s32", u32::wrapping_add),
        ("min.u32", Ord::min),
        ("max.u32", Ord::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (op, f) in list {
        let name = format!("redux.sync.{op}");
        let code = format!("{name} %r3, %r2, -1;");
        out.push(Form::warp(
            name,
            code,
            &pairs(&EDGES),
            same(move |x| x.iter().map(|x| x[1]).reduce(f).unwrap_or_default().into()),
        ));
    }
}

fn tiles(out: &mut Vec<Form>) {
    /// Half `column` of line `row` of a tile whose lanes hold two halves each.
    fn half(x: &[Operands; 32], word: usize, row: usize, column: usize) -> u64 {
        u64::from(x[row * 4 + column / 2][word] >> (16 * (column % 2)) & 0xffff)
    }
    let turned = |x: &[Operands; 32], word: usize, l: usize| {
        let (row, column) = (l / 4, l % 4 * 2);
        half(x, word, column, row) | half(x, word, column + 1, row) << 16
    };
    let code = "movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r1;";
    out.push(Form::warp("movmatrix.sync.aligned.m8n8.trans.b16", code, &pairs(&EDGES), move |x| {
        std::array::from_fn(|l| turned(x, 0, l))
    }));
    // Thread l holds line l of the tiles in shared memory: four words of eight halves.
    let store = "st.shared.v4.u32 [%r15], {%r1,%r2,%r4,%r7};bar.sync 0;";
    let line = |x: &[Operands; 32], tile: usize, l: usize| u64::from(x[8 * tile + l / 4][l % 4]);
    let turned_line = |x: &[Operands; 32], tile: usize, l: usize| {
        let (row, column) = (l % 4 * 2, l / 4);
        let half =
            |row: usize| u64::from(x[8 * tile + row][column / 2] >> (16 * (column % 2)) & 0xffff);
        half(row) | half(row + 1) << 16
    };
    for (suffix, trans) in [("", false), (".trans", true)] {
        let pick = move |x: &[Operands; 32], tile: usize, l: usize| {
            if trans { turned_line(x, tile, l) } else { line(x, tile, l) }
        };
        let name = format!("ldmatrix.sync.aligned.m8n8.x1{suffix}.shared.b16");
        let code = format!("{store}{name} {{%r3}}, [%r15];");
        out.push(Form::warp(name, code, &pairs(&EDGES), move |x| {
            std::array::from_fn(|l| pick(x, 0, l))
        }));
        let name = format!("ldmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16");
        let code = format!(
            "{store}{name} {{%r5,%r6,%r8,%r9}}, [%r15];add.u32 %r5, %r5, %r6;add.u32 %r8, %r8, %r9;mov.b64 %rd3, {{%r5,%r8}};"
        );
        out.push(Form::warp(name, code, &pairs(&EDGES), move |x| {
            std::array::from_fn(|l| {
                let sum = |a: usize, b: usize| (pick(x, a, l) + pick(x, b, l)) & 0xffff_ffff;
                sum(0, 1) | sum(2, 3) << 32
            })
        }));
        let name = format!("stmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16");
        let code =
            format!("{name} [%r15], {{%r1,%r2,%r4,%r7}};bar.sync 0;ld.shared.u64 %rd3, [%r15+8];");
        out.push(Form::warp(name, code, &pairs(&EDGES), move |x| {
            std::array::from_fn(|l| {
                // Line l % 8 of tile l / 8, the last four halves.
                let (tile, row) = (l / 8, l % 8);
                let at = |column: usize| {
                    if trans { half(x, tile, column, row) } else { half(x, tile, row, column) }
                };
                (0..4).map(|i| at(4 + i) << (16 * i)).sum()
            })
        }));
    }
}

/// Special registers taken as vectors.
fn vectors(out: &mut Vec<Form>) {
    let code = "{.reg .v4 .u32 t;mov.v4.u32 t, %tid;.reg .v4 .b32 n;mov.v4.b32 n, %ntid;\
        mad.lo.u32 %r5, n.x, 1000, t.x;add.u32 %r6, t.y, t.z;add.u32 %r6, %r6, t.w;add.u32 %r6, %r6, n.w;mov.b64 %rd3, {%r5,%r6};}";
    out.push(Form::warp("mov.v4.u32 of %tid and %ntid", code, &pairs(&EDGES), |_| {
        std::array::from_fn(|lane| 32_000 + lane as u64)
    }));
}

pub fn forms() -> Vec<Form> {
    let mut out = Vec::new();
    shuffles(&mut out);
    votes(&mut out);
    reductions(&mut out);
    tiles(&mut out);
    vectors(&mut out);
    out
}
