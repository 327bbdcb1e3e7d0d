//! `assay run` as its user meets it: the built binary on PTX that no contract knows, its exit codes,
//! what it prints, and what it refuses.
#![cfg(feature = "command")]

mod arguments;
#[path = "../support/mod.rs"]
mod support;
mod threads;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Said, shows};

const PTX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ptx/strangers.ptx");

fn assay(folder: &Path, arguments: &[&str]) -> Said {
    support::assay(arguments, |command| {
        command.current_dir(folder);
    })
}

/// A launch of one of the strangers' kernels: grid, block, then one word an argument.
fn run(folder: &Path, entry: &str, grid: &str, block: &str, rest: &[&str], args: &[&str]) -> Said {
    let mut all = vec!["run", PTX, "--entry", entry, "--grid", grid, "--block", block];
    all.extend(rest);
    for arg in args {
        all.extend(["--arg", arg]);
    }
    assay(folder, &all)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_read_past_the_end_is_found_in_one_command_and_its_near_miss_is_clean() {
    let folder = folder();
    let buffers = ["random:f32:1000:1", "inout:random:f32:1000:2"];
    let with =
        |n: &str| run(folder.path(), "saxpy", "4", "256", &[], &[n, "2", buffers[0], buffers[1]]);
    let said = with("1000");
    shows(
        &said,
        1,
        &[
            "a load of 4 bytes out of bounds: 0 bytes past the end of argument 2 `random:f32:1000:1` (4000 bytes)",
            "flat index 1000 of f32 [1000], 1000 elements (argument 2)",
            "ld.global.f32 %f2, [%rd6] (strangers.cu:8)",
            "block [3, 0, 0], thread [232, 0, 0]",
            "y[i] = a * x[i] + y[i];",
        ],
    );
    let said = with("999");
    shows(
        &said,
        0,
        &[
            "saxpy  grid 4×1×1, block 256×1×1",
            "f32 [1000], read-only",
            "clean      4 blocks, ",
            "3 of 3 PTX blocks, 4 of 4 source lines",
            "f32 [1000]: 1000 of 1000 elements written, least -2.9",
            "0 NaN",
        ],
    );
}

#[test]
fn files_go_in_and_come_out() {
    let folder = folder();
    let said = run(
        folder.path(),
        "saxpy",
        "1",
        "64",
        &[],
        &["9", "f32:2", "fill:f32:10:1.5", "inout:fill:f32:2x5:1=y.npy"],
    );
    shows(
        &said,
        0,
        &["f32 [2, 5]: 10 of 10 elements written, least 4.0, largest 4.0, 0 NaN; in y.npy"],
    );
    let bytes = std::fs::read(folder.path().join("y.npy")).expect("y.npy");
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let head = String::from_utf8_lossy(&bytes[10..bytes.len() - 40]).into_owned();
    assert!(
        head.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 5), }"),
        "{head}"
    );
    assert_eq!(&bytes[bytes.len() - 40..], 4f32.to_le_bytes().repeat(10));
    // What came out goes in again, as itself and as its bits.
    let again = ["9", "2", "in:y.npy", "inout:y.npy=y.npy"];
    let said = run(folder.path(), "saxpy", "1", "64", &[], &again);
    shows(&said, 0, &["least 12.0, largest 12.0"]);
    let said = run(folder.path(), "fill16", "1", "32", &[], &["bf16:1", "out:bf16:32=h.npy", "32"]);
    shows(&said, 0, &["bf16 [32]: 32 of 32 elements written, least 1.0, largest 1.0"]);
    let bytes = std::fs::read(folder.path().join("h.npy")).expect("h.npy");
    assert!(bytes.windows(5).any(|word| word == b"'<u2'"), "bf16 is stored as uint16");
    for (text, shown) in [("inout:bf16:h.npy", "bf16 [32]"), ("inout:h.npy", "u16 [32]")] {
        let said = run(folder.path(), "fill16", "1", "32", &[], &["u16:16256", text, "32"]);
        shows(&said, 0, &[shown]);
    }
    // Raw bytes.
    std::fs::write(folder.path().join("x.bin"), 3f32.to_le_bytes().repeat(8)).expect("written");
    let raw = ["7", "1", "raw:f32:x.bin", "inout:fill:f32:8:0"];
    shows(
        &run(folder.path(), "saxpy", "1", "32", &[], &raw),
        0,
        &["f32 [8], read-only", "least 3.0"],
    );
}

#[test]
fn every_checker_is_on_and_silent_on_its_near_miss() {
    let folder = folder();
    let sum =
        |rest: &[&str], args: [&str; 3]| run(folder.path(), "block_sum", "4", "256", rest, &args);
    let shared = ["--shared", "1024"];
    let x = "random:f32:1024:3";
    shows(
        &sum(&shared, [x, "out:f32:4", "inout:fill:i32:1:0"]),
        0,
        &["i32 [1]: 1 of 1", "largest 4"],
    );
    shows(
        &sum(&["--shared", "1020"], [x, "out:f32:4", "inout:fill:i32:1:0"]),
        1,
        &["shared memory"],
    );
    shows(
        &sum(&shared, ["uninit:f32:1024", "out:f32:4", "inout:fill:i32:1:0"]),
        1,
        &[
            "a load of bytes that nobody wrote: byte 0 of argument 0 `uninit:f32:1024`",
            "[0] of f32 [1024] (argument 0)",
        ],
    );
    shows(
        &sum(&shared, ["poison:f32:1024", "out:f32:4", "inout:fill:i32:1:0"]),
        1,
        &["which must not be read"],
    );
    shows(
        &sum(&shared, [x, "fill:f32:4:0", "inout:fill:i32:1:0"]),
        1,
        &["a store to byte 0 of argument 1 `fill:f32:4:0`", "which must not be written"],
    );
    shows(&sum(&shared, [x, "out:f32:4", "out:i32:1"]), 1, &["nobody wrote", "(argument 2)"]);
    // Unwritten memory is no fault where nobody looks.
    let quiet = ["--shared", "1024", "--no-checks"];
    shows(
        &sum(&quiet, ["uninit:f32:1024", "out:f32:4", "inout:fill:i32:1:0"]),
        0,
        &["bounds and barriers only", "4 NaN"],
    );
    let wait =
        |flag: &str| run(folder.path(), "wait_for", "1", "32", &["--budget", "100000"], &[flag]);
    shows(&wait("fill:i32:1:1"), 0, &["clean"]);
    shows(&wait("fill:i32:1:0"), 1, &["strangers.cu:53", "while (*flag == 0) {"]);
}

#[test]
fn a_watch_names_the_writer() {
    let folder = folder();
    let watch = [
        "--shared",
        "1024",
        "--watch",
        "1[2]",
        "--watch",
        "block_sum_param_2[0]",
        "--watch",
        "0[3,7]",
    ];
    let args = ["fill:f32:4x256:0.5", "out:f32:5", "inout:fill:i32:1:0"];
    let said = run(folder.path(), "block_sum", "4", "256", &watch, &args);
    shows(
        &said,
        0,
        &[
            "1[2] = 128.0 (0x43000000), stored once, by",
            "(strangers.cu:47)\n",
            "block_sum, block [2, 0, 0], thread [0, 0, 0]\n",
            "storing 0x43000000 (128.0)\n",
            "computed by PTX line",
            "2[0] = 4 (0x00000004), stored 4 times, last by",
            "block_sum, block [3, 0, 0], thread [0, 0, 0]\n",
            "combining 0x00000001 (1) with 0x00000003 (3)\n",
            "0[3, 7] = 0.5 (0x3f000000), as before the launch: no thread stored to it",
        ],
    );
    let said = run(
        folder.path(),
        "block_sum",
        "4",
        "256",
        &["--shared", "1024", "--watch", "1[4]"],
        &args,
    );
    shows(&said, 0, &["1[4] was never written", "4 of 5 elements written"]);
    // After a fault: what was stored before it.
    let args = ["1000", "2", "fill:f32:1000:1", "inout:fill:f32:1001:0=y.npy"];
    let said = run(folder.path(), "saxpy", "4", "256", &["--watch", "3[5]"], &args);
    shows(&said, 1, &["3[5] = 2.0", "stored once, by", "did not finish: no file was written"]);
    assert!(!folder.path().join("y.npy").exists());
}

#[test]
fn coverage_says_what_was_not_executed() {
    let folder = folder();
    let rest = ["--lcov", "c.info"];
    let affine: String = [2f64.to_le_bytes(), 1f64.to_le_bytes()]
        .concat()
        .iter()
        .chain(&8i32.to_le_bytes())
        .chain(&[0; 4])
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let said = run(
        folder.path(),
        "affine",
        "1",
        "8",
        &rest,
        &[&format!("hex:{affine}"), "fill:f64:8:3", "out:f64:8"],
    );
    shows(
        &said,
        0,
        &[
            "least 7.0, largest 7.0",
            "not executed: PTX line",
            "strangers.cu:29",
            "written to c.info",
        ],
    );
    let text = std::fs::read_to_string(folder.path().join("c.info")).expect("c.info");
    let records: Vec<&str> = text.split("end_of_record\n").collect();
    assert_eq!(records.len(), 3, "{text}");
    let source = records[0].lines().find_map(|line| line.strip_prefix("SF:")).expect("a source");
    // It lies beside the PTX, where genhtml finds it.
    assert!(Path::new(source).is_file(), "{source}");
    assert!(source.ends_with("strangers.cu"), "{source}");
    let lines: Vec<&str> = records[0].lines().collect();
    assert!(lines.contains(&"DA:30,0") && lines.contains(&"DA:28,1"), "{text}");
    let count = |prefix: &str| lines.iter().filter(|line| line.starts_with(prefix)).count();
    assert!(lines.contains(&format!("LF:{}", count("DA:")).as_str()), "{text}");
    assert!(records[1].contains("FNDA:1,affine\nFNF:1\nFNH:1\n"), "{text}");
    // No coverage of a launch that did not finish.
    let fault = ["8", "1", "fill:f32:8:0", "inout:fill:f32:8:0"];
    let said = run(folder.path(), "saxpy", "1", "32", &["--lcov", "f.info"], &fault);
    shows(&said, 1, &["no file was written"]);
    assert!(!folder.path().join("f.info").exists());
}

/// The kernels' own sources, through a stored case.
#[test]
fn a_replay_has_coverage_of_the_sources_in_the_repository() {
    let folder = folder();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora/argmax_rows");
    let mut cases: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .collect();
    cases.sort();
    let said = assay(folder.path(), &["replay", &cases[0], "--lcov", "r.info"]);
    shows(&said, 0, &["passes"]);
    let text = std::fs::read_to_string(folder.path().join("r.info")).expect("r.info");
    let files: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("SF:")).collect();
    assert!(files.iter().any(|file| file.ends_with("selection/argmax_rows.cu")), "{files:?}");
    assert!(files.iter().any(|file| file.ends_with("kernels/ptx/argmax_rows.ptx")), "{files:?}");
    for file in files {
        assert!(Path::new(file).is_file(), "{file}");
    }
    let hits = |hit: bool| {
        let all = text.lines().filter_map(|line| line.strip_prefix("DA:")?.split_once(','));
        all.filter(|(_, hits)| (*hits != "0") == hit).count()
    };
    assert!(hits(true) > 20 && hits(false) > 20, "one case executes some lines and not all");
    let said = assay(folder.path(), &["replay", &cases[0], "--lcov", "absent/r.info"]);
    shows(&said, 2, &["absent/r.info: No such file"]);
}

#[test]
fn json_has_the_same() {
    let folder = folder();
    let json = |n: &str| -> (Option<i32>, serde_json::Value) {
        let args = [n, "2", "fill:f32:8:1", "inout:fill:f32:8:0"];
        let said = run(folder.path(), "saxpy", "1", "32", &["--format", "json"], &args);
        (said.code, serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out)))
    };
    let (code, clean) = json("7");
    assert_eq!((code, &clean["verdict"]), (Some(0), &"clean".into()));
    assert_eq!(
        (&clean["outputs"][0]["written"], &clean["outputs"][0]["largest"]),
        (&8.into(), &2.0.into())
    );
    let (code, fault) = json("8");
    assert_eq!((code, &fault["verdict"]), (Some(1), &"fault".into()));
    assert_eq!((&fault["argument"], &fault["offset_bytes"]), (&2.into(), &32.into()));
    assert_eq!(fault["source"]["line"], 8);
}

#[test]
fn a_huge_tensor_costs_what_is_touched() {
    let folder = folder();
    // 2^33 elements in each buffer, 32 of them touched.
    let args = ["31", "2", "fill:f32:8589934592:1", "inout:fill:f32:8589934592:0"];
    let said = run(folder.path(), "saxpy", "1", "64", &[], &args);
    shows(&said, 0, &["32 of 8589934592 elements written"]);
    let memory = ["--memory", "2048"];
    shows(
        &run(folder.path(), "saxpy", "1", "64", &memory, &args),
        1,
        &["threads touch more than 2048 bytes of global memory"],
    );
}

#[test]
fn bad_input_is_refused_with_the_way_out() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    };
    write("text.npy", b"no array");
    write("odd.bin", &[0; 7]);
    write("binary.ptx", &[0x7f, b'E', b'L', b'F', 0xff, 0xfe]);
    write("none.ptx", b".version 8.0\n.target sm_80\n.address_size 64\n");
    write(
        "broken.ptx",
        b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k( { ret; }\n",
    );
    let mut huge = b"\x93NUMPY\x01\x00".to_vec();
    let dictionary = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n";
    huge.extend_from_slice(&(dictionary.len() as u16).to_le_bytes());
    huge.extend_from_slice(dictionary);
    write("huge.npy", &huge);
    let saxpy = ["7", "2", "fill:f32:8:1", "inout:fill:f32:8:0"];
    let with = |at: usize, text: &'static str| {
        let mut args = saxpy;
        args[at] = text;
        args
    };
    for (args, names) in [
        (with(0, "1.5"), "--arg 0 `1.5`: saxpy_param_0 takes a 32-bit integer; say the type"),
        (with(0, "4294967296"), "takes a 32-bit integer"),
        (with(0, "i64:7"), "takes a 32-bit integer"),
        (with(0, "fill:f32:8:1"), "saxpy_param_0 takes a 32-bit integer"),
        (with(0, "null"), "saxpy_param_0 takes a 32-bit integer"),
        (with(1, "i32:2"), "saxpy_param_1 takes an f32"),
        (with(1, "two"), "`two` begins no argument"),
        (with(2, "f32:2"), "takes a buffer or a 64-bit integer"),
        (with(2, "in:absent.npy"), "absent.npy: No such file"),
        (with(2, "in:."), ".: not a regular file"),
        (with(2, "in:text.npy"), "text.npy: magic: not a .npy file"),
        (
            with(2, "in:huge.npy"),
            "huge.npy: shape: [1099511627776] needs 4398046511104 bytes of elements, the file has 0",
        ),
        (with(2, "raw:f32:odd.bin"), "odd.bin: 7 bytes are no whole number of f32"),
        (with(2, "fill:f32:99999999999:1"), "ran"),
        (with(2, "fill:f32:999999999999:1"), "larger than 2^39 bytes"),
        (with(2, "random:f32:9999999999:1"), "files and random numbers of a run are at most"),
        (with(3, "inout:fill:f32:8:0=."), ".: not a regular file; name another"),
        (with(3, "inout:fill:f32:8:0="), "no file is named after `=`"),
        (with(3, "inout:fill:f32:8:0=absent/y.npy"), "absent/y.npy: No such file"),
        (with(3, "out:f32:9999999999=y.npy"), "bytes; at most"),
    ] {
        let said = run(folder.path(), "saxpy", "1", "8", &[], &args);
        if names == "ran" {
            // Only large, and sparse.
            shows(&said, 0, &["clean"]);
            continue;
        }
        shows(&said, 2, &[names]);
        assert!(said.out.is_empty(), "{}", said.out);
    }
    for (rest, args, names) in [
        (
            &[][..],
            &saxpy[..3],
            "`saxpy` takes 4 arguments, 3 given:\n  0  saxpy_param_0            a 32-bit integer",
        ),
        (&["--watch", "3"], &saxpy, "--watch `3`: write ARG[INDEX]"),
        (&["--watch", "3[8]"], &saxpy, "--watch `3[8]`: the buffer is f32 [8]"),
        (&["--watch", "3[0,0]"], &saxpy, "the buffer is f32 [8]"),
        (&["--watch", "3[x]"], &saxpy, "`x` is no index"),
        (&["--watch", "4[0]"], &saxpy, "`4` is no argument of `saxpy`"),
        (&["--watch", "0[0]"], &saxpy, "argument 0 is no buffer"),
        (
            &["--shared", "9999999"],
            &saxpy,
            "`saxpy` cannot be launched: 9999999 bytes of shared memory",
        ),
        (&["--lcov", "absent/c.info"], &saxpy, "absent/c.info: No such file"),
        (&["--budget", "0"], &saxpy, "--budget"),
        (&["--model", "a100"], &saxpy, "--model"),
    ] {
        shows(&run(folder.path(), "saxpy", "1", "8", rest, args), 2, &[names]);
    }
    for (grid, block, names) in [
        ("0", "8", "`0` is no extent"),
        ("1,1,1,1", "8", "more than three extents"),
        ("-1", "8", "--grid"),
        ("1", "2048", "2048 threads in a block of at most 1024"),
        ("1,65536", "8", "cannot be launched"),
    ] {
        shows(&run(folder.path(), "saxpy", grid, block, &[], &saxpy), 2, &[names]);
    }
    shows(
        &run(folder.path(), "absent", "1", "8", &[], &saxpy),
        2,
        &[
            "--entry: the PTX has no kernel `absent`; it has saxpy, fill16, affine, block_sum, wait_for",
        ],
    );
    shows(
        &run(folder.path(), "fill16", "1", "8", &[], &["1", "out:u16:8", "8"]),
        2,
        &["write u16:, i16:, f16: or bf16: before the number"],
    );
    shows(
        &run(folder.path(), "affine", "1", "8", &[], &["hex:00", "null", "null"]),
        2,
        &["affine_param_0 has 24 bytes, 1 are given"],
    );
    for (file, names) in [
        (PTX, "--entry: name one of the PTX's kernels: saxpy, "),
        ("absent.ptx", "absent.ptx: No such file"),
        (".", ".: not a regular file"),
        ("binary.ptx", "binary.ptx: not text; a cubin or fatbin has none"),
        ("none.ptx", "none.ptx: no kernel (`.entry`) in it"),
        ("broken.ptx", "broken.ptx: PTX line 4: "),
    ] {
        shows(&assay(folder.path(), &["run", file, "--grid", "1", "--block", "1"]), 2, &[names]);
    }
}

/// A pipe that nobody writes to would be waited for without end.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_file() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let file = pipe.display().to_string();
    let refused = "not a regular file";
    shows(&assay(folder.path(), &["run", &file, "--grid", "1", "--block", "1"]), 2, &[refused]);
    for text in [format!("in:{file}"), format!("raw:{file}")] {
        let args = ["7", "2", &text, "inout:fill:f32:8:0"];
        shows(&run(folder.path(), "saxpy", "1", "8", &[], &args), 2, &[refused]);
    }
    let out = format!("inout:fill:f32:8:0={file}");
    let args = ["7", "2", "fill:f32:8:0", &out];
    shows(&run(folder.path(), "saxpy", "1", "8", &[], &args), 2, &[refused]);
}

#[test]
fn the_only_kernel_needs_no_name() {
    let folder = folder();
    let text = std::fs::read_to_string(PTX).expect("the PTX");
    let end = text.find(".visible .entry fill16").expect("the second kernel");
    let path: PathBuf = folder.path().join("one.ptx");
    std::fs::write(&path, &text[..end]).expect("written");
    let mut all = vec!["run", "one.ptx", "--grid", "1", "--block", "8"];
    for arg in ["7", "-2.5", "fill:f32:8:1", "inout:fill:f32:8:0"] {
        all.extend(["--arg", arg]);
    }
    shows(&assay(folder.path(), &all), 0, &["least -2.5"]);
}

/// `printf("%d\\n", tid)` of every thread, and then what is asked for.
fn printing(folder: &Path, then: &str) -> PathBuf {
    let path = folder.join("printing.ptx");
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .global .align 1 .b8 text[4] = {{37, 100, 10, 0}};\n\
         .visible .entry tell()\n{{.reg .b32 %r<3>;.reg .b64 %rd<5>;.local .align 8 .b8 list[8];\n\
         {{.param .b64 n;.param .b64 m;.param .b32 c;\n\
         mov.u32 %r1, %tid.x;st.local.u32 [list], %r1;\n\
         mov.u64 %rd1, text;cvta.global.u64 %rd1, %rd1;st.param.b64 [n], %rd1;\n\
         mov.u64 %rd3, list;cvta.local.u64 %rd3, %rd3;st.param.b64 [m], %rd3;\n\
         call.uni (c), vprintf, (n, m);\n}}\n{then}\nret;\n}}\n"
    );
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn what_a_kernel_prints_is_shown_before_a_fault_too() {
    let folder = folder();
    let run = |then: &str, block: &str, rest: &[&str]| {
        let path = printing(folder.path(), then);
        let path = path.to_str().expect("a path");
        let all =
            [&["run", path, "--entry", "tell", "--grid", "1", "--block", block], rest].concat();
        assay(folder.path(), &all)
    };
    let said = run("", "3", &[]);
    shows(&said, 0, &["clean", "printed    0\n             1\n             2\n"]);
    shows(&run("trap;", "1", &[]), 1, &["fault", "printed    0"]);
    let many = run("", "64", &[]);
    shows(&many, 0, &["             39\n", "… and 24 more lines"]);
    assert!(!many.out.contains("             40\n"), "{}", many.out);
    let json: serde_json::Value =
        serde_json::from_str(&run("", "2", &["--format", "json"]).out).expect("JSON");
    assert_eq!(json["printed"], "0\n1\n");
}
