//! What a one-off run is told: what ran, what it cost, and either the fault with everything known of
//! its place, or what the kernel left in memory.

use super::buffer::Made;
use super::{Given, Run, Watched, source_path};
use properties::report::Paint;
use ptx_vm::{BufferPlace, Fault, SourceLine, marks};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// The run for a terminal, ending in a newline.
pub fn text(run: &Run<'_>) -> String {
    let paint = Paint::stdout();
    let mut out = format!("{}  {}\n", paint.strong(run.entry.name()), geometry(run));
    for (number, (given, parameter)) in run.given.iter().zip(run.entry.parameters()).enumerate() {
        let name = paint.faint(&format!("{:<24}", parameter.name));
        let text = match given {
            Given::Scalar(text) | Given::Struct { text, .. } => text.clone(),
            Given::Buffer(made) => format!("{}  {}, {}", made.text, made.form(), made.access),
        };
        let _ = writeln!(out, "  {number:>2}  {name} {text}");
    }
    let mut row = |label: &str, value: &str| {
        for (number, line) in value.lines().enumerate() {
            let label = if number == 0 { label } else { "" };
            let _ = writeln!(out, "  {} {line}", paint.faint(&format!("{label:<10}")));
        }
    };
    match &run.result {
        Err(fault) => {
            row("fault", &paint.bad(&fault.kind.to_string()));
            if let Some(element) = element(run, fault) {
                row("element", &element);
            }
            row("by", &by(fault.ptx_line, &fault.instruction, fault.source.as_ref()));
            row("thread", &format!("block {:?}, thread {:?}", fault.block, fault.thread));
            if let Some(line) = source_text(run.path, fault.source.as_ref()) {
                row("source", &line);
            }
            if let Some(other) = &fault.other {
                row(
                    fault.kind.party(),
                    &by(other.ptx_line, &other.instruction, other.source.as_ref()),
                );
                let block = other.block.unwrap_or(fault.block);
                match other.thread {
                    Some(thread) => row("", &format!("block {block:?}, thread {thread:?}")),
                    None => row("", &format!("block {block:?}")),
                }
                if let Some(line) = source_text(run.path, other.source.as_ref()) {
                    row("", &line);
                }
            }
        }
        Ok(stats) => {
            let (blocks, instructions) = (stats.blocks, stats.warp_instructions);
            let plural = if blocks == 1 { "" } else { "s" };
            let checks =
                if run.arguments.no_checks { "bounds and barriers only" } else { "every check" };
            row(
                "clean",
                &format!(
                    "{blocks} block{plural}, {instructions} warp instructions in {:.1?}, {checks}",
                    run.elapsed
                ),
            );
            row("coverage", &coverage(run));
            for made in outputs(run) {
                row(&format!("arg {}", made.number), &left(run, made));
            }
        }
    }
    if let Some(printed) = printed(run) {
        row("printed", &shortened(printed));
    }
    for watched in &run.watched {
        row("watch", &watch(run, watched));
    }
    let wanted = run.arguments.lcov.is_some() || outputs(run).any(|made| made.save.is_some());
    if run.result.is_err() && wanted {
        row("note", "the launch did not finish: no file was written");
    }
    out
}

/// What the kernel printed, where it printed anything.
fn printed<'a>(run: &'a Run<'_>) -> Option<&'a str> {
    let printed = match &run.result {
        Ok(stats) => &stats.printed,
        Err(fault) => &fault.printed,
    };
    (!printed.is_empty()).then_some(printed)
}

/// The first lines of a text, and how many more there are.
fn shortened(text: &str) -> String {
    const LINES: usize = 40;
    let mut lines: Vec<String> = text.lines().take(LINES).map(str::to_owned).collect();
    if let Some(more) = text.lines().count().checked_sub(LINES + 1) {
        lines.push(format!("… and {} more lines", more + 1));
    }
    lines.join("\n")
}

fn geometry(run: &Run<'_>) -> String {
    let [grid, block] = [run.arguments.grid, run.arguments.block]
        .map(|extents| extents.map(|extent| extent.to_string()).join("×"));
    let mut text = format!("grid {grid}, block {block}");
    if run.arguments.shared > 0 {
        let _ = write!(text, ", {} bytes of dynamic shared memory", run.arguments.shared);
    }
    text
}

fn by(ptx_line: u32, instruction: &str, source: Option<&SourceLine>) -> String {
    let mut text = format!("PTX line {ptx_line}: {}", instruction.trim_end_matches(';'));
    if let Some(source) = source {
        let _ = write!(text, " ({source})");
    }
    text
}

/// The line of the source, where it is at hand: a file with a source's name only, since the PTX may
/// name any.
fn source_text(ptx: &Path, source: Option<&SourceLine>) -> Option<String> {
    const LIMIT_BYTES: u64 = 4 << 20;
    let source = source?;
    let path = source_path(ptx, &source.file)?;
    let kind = path.extension()?.to_str()?;
    let is_source = ["cu", "cuh", "h", "hpp", "c", "cc", "cpp", "inl", "py"].contains(&kind);
    let is_small = std::fs::metadata(&path).ok()?.len() <= LIMIT_BYTES;
    let text = (is_source && is_small).then(|| std::fs::read_to_string(&path).ok()).flatten()?;
    text.lines().nth(source.line.checked_sub(1)? as usize).map(|line| line.trim().to_owned())
}

/// Where a fault's buffer was hit, by index.
fn element(run: &Run<'_>, fault: &Fault) -> Option<String> {
    let place = fault.kind.buffer()?;
    let made = made_of(run, place)?;
    let size = made.element.size_bytes() as i64;
    let (flat, count) = (place.offset.div_euclid(size), made.count());
    Some(match u64::try_from(flat) {
        Ok(flat) if flat < count => {
            format!("{:?} of {} (argument {})", made.coordinates(flat), made.form(), made.number)
        }
        _ => format!(
            "flat index {flat} of {}, {count} elements (argument {})",
            made.form(),
            made.number
        ),
    })
}

fn made_of<'a>(run: &'a Run<'_>, place: &BufferPlace) -> Option<&'a Made> {
    run.given.iter().flat_map(Given::buffers).find(|made| made.id == place.id)
}

fn outputs<'a>(run: &'a Run<'_>) -> impl Iterator<Item = &'a Made> {
    run.given.iter().flat_map(Given::buffers).filter(|made| made.is_writable)
}

/// Executed and all: PTX blocks, CUDA source lines.
fn reached(run: &Run<'_>) -> [(usize, usize); 2] {
    let Some(counts) = run.coverage.entry(run.entry.name()) else { return [(0, 0); 2] };
    let hits = counts.block_hits(run.entry);
    let reachable = run.entry.reachable_blocks();
    let all = hits.iter().zip(&reachable).filter(|(_, reachable)| **reachable);
    let blocks = (all.clone().filter(|(hits, _)| **hits > 0).count(), all.count());
    [blocks, counts.line_hits(run.module, run.entry).source_lines()]
}

fn coverage(run: &Run<'_>) -> String {
    let [(blocks, all_blocks), (lines, all_lines)] = reached(run);
    let mut text = format!("{blocks} of {all_blocks} PTX blocks");
    if all_lines > 0 {
        let _ = write!(text, ", {lines} of {all_lines} source lines");
    }
    let unexecuted = unexecuted(run);
    if !unexecuted.is_empty() {
        let _ = write!(text, "; not executed: {unexecuted}");
    }
    if let Some(path) = &run.arguments.lcov {
        let _ = write!(text, "\nwritten to {}", path.display());
    }
    text
}

/// The first blocks nobody entered.
fn unexecuted(run: &Run<'_>) -> String {
    const MOST: usize = 6;
    let Some(counts) = run.coverage.entry(run.entry.name()) else { return String::new() };
    let hits = counts.block_hits(run.entry);
    let blocks = run.entry.blocks().iter().zip(&hits).zip(run.entry.reachable_blocks());
    let missed = blocks.filter(|((_, hits), reachable)| **hits == 0 && *reachable);
    let mut names: Vec<String> = missed
        .map(|((block, _), _)| match &block.source {
            Some(source) => {
                format!("PTX line {} ({}:{})", block.ptx_line, source.file, source.line)
            }
            None => format!("PTX line {}", block.ptx_line),
        })
        .collect();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

fn left(run: &Run<'_>, made: &Made) -> String {
    let left = made.left(&run.memory);
    let mut text =
        format!("{}: {} of {} elements written", made.form(), left.written, made.count());
    if let Some((low, high)) = left.range {
        let [low, high] = [low, high].map(|bits| made.element.text(bits));
        let _ = write!(text, ", least {low}, largest {high}");
    }
    if made.element.is_float() && left.written > 0 {
        let _ = write!(text, ", {} NaN", left.nan);
        if left.infinite > 0 {
            let _ = write!(text, ", {} infinite", left.infinite);
        }
    }
    if let Some(path) = &made.save {
        let _ = write!(text, "; in {}", path.display());
    }
    text
}

fn watch(run: &Run<'_>, watched: &Watched) -> String {
    let [made] = run.given[watched.number].buffers() else { return String::new() };
    let size = made.element.size_bytes();
    let at = watched.flat * size;
    let bits = made.bits(&run.memory, watched.flat);
    let index: Vec<String> = made.coordinates(watched.flat).iter().map(u64::to_string).collect();
    let mut text = format!("{}[{}] ", watched.number, index.join(", "));
    let marks = run.memory.marks(made.id, at..at + size);
    if marks.iter().all(|mark| mark & (marks::WRITTEN | marks::INIT) == 0) {
        return text + "was never written";
    }
    let _ = write!(text, "= {}", made.element.show(bits));
    if marks.iter().all(|mark| mark & marks::WRITTEN == 0) {
        return text + ", as before the launch: no thread stored to it";
    }
    // An element may have been stored in parts.
    let mut writers: Vec<String> = Vec::new();
    for byte in at..at + size {
        if let Some(write) = run.watch.last(made.id, byte).map(|write| format!("{write:#}"))
            && !writers.contains(&write)
        {
            writers.push(write);
        }
    }
    let stores = run.watch.stores(made.id, at);
    let times = if stores == 1 { "once, by" } else { &format!("{stores} times, last by") };
    let _ = write!(text, ", stored {times}");
    if writers.is_empty() {
        text.push_str(" an instruction that a watch does not follow");
    }
    for writer in writers {
        let _ = write!(text, "\n{writer}");
    }
    text
}

/// A source line; one of an inlined function with the call.
fn place(at: &SourceLine) -> Value {
    let mut value = json!({ "file": &*at.file, "line": at.line });
    if let Some(call) = &at.called_from {
        value["inlined_at"] = place(call);
    }
    value
}

/// The run under stable keys.
pub fn json(run: &Run<'_>) -> Value {
    let source = |source: Option<&SourceLine>| source.map(place);
    let output = |made: &Made| {
        let left = made.left(&run.memory);
        let value = |bits: u64| json!(made.element.value(bits));
        json!({
            "argument": made.number,
            "type": made.element.name(),
            "shape": made.shape,
            "written": left.written,
            "nan": left.nan,
            "infinite": left.infinite,
            "least": left.range.map(|(low, _)| value(low)),
            "largest": left.range.map(|(_, high)| value(high)),
            "file": made.save.as_ref().map(|path| path.display().to_string()),
        })
    };
    let mut value = json!({
        "entry": run.entry.name(),
        "grid": run.arguments.grid,
        "block": run.arguments.block,
        "checks": !run.arguments.no_checks,
        "elapsed_s": run.elapsed.as_secs_f64(),
        "watch": run.watched.iter().map(|watched| watch(run, watched)).collect::<Vec<_>>(),
        "printed": printed(run),
    });
    let detail = match &run.result {
        Ok(stats) => {
            let [(blocks, all_blocks), (lines, all_lines)] = reached(run);
            json!({
                "verdict": "clean",
                "blocks": stats.blocks,
                "warp_instructions": stats.warp_instructions,
                "ptx_blocks": { "executed": blocks, "all": all_blocks },
                "source_lines": { "executed": lines, "all": all_lines },
                "outputs": outputs(run).map(output).collect::<Vec<_>>(),
            })
        }
        Err(fault) => json!({
            "verdict": "fault",
            "fault": fault.kind.to_string(),
            "ptx_line": fault.ptx_line,
            "instruction": fault.instruction,
            "source": source(fault.source.as_ref()),
            "block_index": fault.block,
            "thread_index": fault.thread,
            "argument": fault.kind.buffer().and_then(|place| Some(made_of(run, place)?.number)),
            "offset_bytes": fault.kind.buffer().map(|place| place.offset),
            "element": element(run, fault),
            "other": fault.other.as_ref().map(|other| json!({
                "ptx_line": other.ptx_line,
                "instruction": other.instruction,
                "source": source(other.source.as_ref()),
                "block_index": other.block.unwrap_or(fault.block),
                "thread_index": other.thread,
            })),
        }),
    };
    if let (Value::Object(value), Value::Object(detail)) = (&mut value, detail) {
        value.extend(detail);
    }
    value
}
