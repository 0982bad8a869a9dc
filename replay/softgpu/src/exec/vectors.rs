//! Every operation that AMD's pseudocode can be evaluated for, against that pseudocode:
//! `tests/vectors/*.txt`, made by the script beside them. 1,024 operand sets per opcode from a seed;
//! the results of 32 are compared literally, of all by a digest, at both speeds. What is documented
//! to one unit in the last place, and what the text cannot decide, is compared with a plain second
//! implementation (`reference`). Every row of the table is covered here or names its test.

mod operands;
mod reference;
mod runner;

use crate::isa::op::Op;
use crate::isa::shape::Ty;
use crate::isa::{Format, Row as TableRow, Target, table};
use operands::{Set, sets};
use runner::{Outcome, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

/// The two vector files, read once.
static FILES: LazyLock<[String; 2]> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    ["gfx11.txt", "gfx12.txt"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
});

/// Operand sets per opcode.
const SETS: usize = 1024;

/// One opcode of a vector file.
struct Entry {
    name: &'static str,
    targets: Vec<Target>,
    /// `None` where only one unit in the last place is documented.
    digest: Option<&'static str>,
    literal: Vec<(Set, Outcome)>,
}

fn line(text: &str) -> (Set, Outcome) {
    let (left, right) = text.split_once(" = ").unwrap();
    let numbers = |part: &str| -> Vec<u64> {
        part.split(' ')
            .map(|w| u64::from_str_radix(w, 16).unwrap())
            .collect()
    };
    let (l, r) = (numbers(left), numbers(right));
    let set = Set {
        sources: [l[0], l[1], l[2]],
        old: l[3],
        scc: l[4] as u32,
        vcc: l[5] as u32,
    };
    let outcome = Outcome {
        result: r[0],
        mask: r[1],
        scc: r[2] as u8,
        exec: r[3] as u32,
    };
    (set, outcome)
}

fn entries() -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let lines = FILES.iter().flat_map(|f| f.lines());
    for text in lines.filter(|l| !l.starts_with(['#', '!', '-'])) {
        if let Some(head) = text.strip_prefix('[') {
            let mut words = head.split(' ');
            let name = words.next().unwrap().trim_end_matches(']');
            let targets = match words.next().unwrap() {
                "11" => vec![Target::Gfx1151],
                "12" => vec![Target::Gfx1201],
                _ => vec![Target::Gfx1151, Target::Gfx1201],
            };
            let digest = words.next().filter(|d| *d != "near");
            found.push(Entry {
                name,
                targets,
                digest,
                literal: Vec::new(),
            });
        } else {
            found.last_mut().unwrap().literal.push(line(text));
        }
    }
    found
}

/// Notes of the files that begin with `mark`: mnemonic and reason.
fn notes(mark: char) -> BTreeMap<&'static str, &'static str> {
    FILES
        .iter()
        .flat_map(|f| f.lines())
        .filter_map(|l| l.strip_prefix(mark)?.trim().split_once(": "))
        .collect()
}

fn rows(target: Target, name: &str) -> Vec<&'static TableRow> {
    let all = table(target.generation()).iter();
    all.copied().filter(|r| r.mnemonic == name).collect()
}

/// What differs between the executor and one entry.
fn differences(entry: &Entry) -> Vec<String> {
    let mut wrong = Vec::new();
    for target in &entry.targets {
        let found = rows(*target, entry.name);
        assert!(!found.is_empty(), "{target} has no {}", entry.name);
        for row in found {
            for speed in runner::SPEEDS {
                let mut runner = Runner::new(*target, speed(), row);
                let at = format!("{target} {} {:?}", entry.name, speed());
                let literal: Vec<Set> = entry.literal.iter().map(|(s, _)| *s).collect();
                let got = runner.run(&literal);
                for ((set, want), got) in entry.literal.iter().zip(&got) {
                    let near = entry.digest.is_none() && runner::near(row, got, want);
                    if got != want && !near {
                        wrong.push(format!("{at}: {set:x?}\n   got {got:x?}\n  want {want:x?}"));
                    }
                }
                let Some(digest) = entry.digest else { continue };
                let all = sets(row, SETS);
                assert_eq!(all[..literal.len()], literal[..], "{at}: operands");
                let mut hasher = blake3::Hasher::new();
                for outcome in runner.run(&all) {
                    hasher.update(&outcome.bytes());
                }
                if hasher.finalize().to_hex()[..32] != *digest {
                    wrong.push(format!("{at}: digest"));
                }
            }
        }
    }
    wrong
}

#[test]
fn executor_follows_the_pseudocode() {
    let entries = entries();
    let mut wrong: Vec<String> = Vec::new();
    for entry in &entries {
        assert_eq!(entry.literal.len(), 32, "{}", entry.name);
        wrong.extend(differences(entry).into_iter().take(3));
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    let names: BTreeSet<&str> = entries.iter().map(|e| e.name).collect();
    assert!(names.len() > 850, "{}", names.len());
}

#[test]
fn approximations_are_within_one_unit_of_the_true_value() {
    for entry in entries().iter().filter(|e| e.digest.is_none()) {
        for target in &entry.targets {
            for row in rows(*target, entry.name) {
                let all = sets(row, SETS);
                for speed in runner::SPEEDS {
                    let got = Runner::new(*target, speed(), row).run(&all);
                    for (set, got) in all.iter().zip(got) {
                        let problem = reference::distance(row, set, got.result);
                        assert_eq!(problem, None, "{target} {} {set:x?}", entry.name);
                    }
                }
            }
        }
    }
}

#[test]
fn undecided_texts_follow_a_second_implementation() {
    let listed = notes('-');
    for (name, reason) in &listed {
        assert!(!reason.is_empty());
        let plain = reference::plain(name).unwrap_or_else(|| panic!("{name} has no reference"));
        for target in [Target::Gfx1151, Target::Gfx1201] {
            for row in rows(target, name) {
                let all = sets(row, SETS);
                for speed in runner::SPEEDS {
                    let got = Runner::new(target, speed(), row).run(&all);
                    for (set, got) in all.iter().zip(got) {
                        let want = plain(set).map(|w| runner::canonical(row, w));
                        let same = want.is_none_or(|w| w == got.result);
                        assert!(same, "{target} {name} {set:x?}: {got:x?} {want:x?}");
                    }
                }
            }
        }
    }
    assert_eq!(listed.len(), reference::PLAIN.len());
}

/// Rows that are no function of their operands: the beginning of the mnemonic, and the test.
const ELSEWHERE: [(&str, &str); 50] = [
    (
        "v_dual_",
        "exec::tests::alu (halves of a pair are the operations above)",
    ),
    ("v_nop", "exec::tests::alu::every_row_has_a_handler"),
    ("v_pipeflush", "exec::tests::alu::every_row_has_a_handler"),
    (
        "v_readlane",
        "exec::tests::alu::lanes_are_read_and_written_across",
    ),
    (
        "v_readfirstlane",
        "exec::tests::alu::lanes_are_read_and_written_across",
    ),
    (
        "v_writelane",
        "exec::tests::alu::lanes_are_read_and_written_across",
    ),
    ("v_swap_b", "exec::tests::alu, exec::tests::wide"),
    (
        "v_mbcnt",
        "exec::tests::alu::lanes_are_read_and_written_across",
    ),
    ("v_permlane", "exec::tests::alu, exec::tests::wide"),
    ("v_movrel", "exec::tests::wide::relative_registers"),
    ("v_swaprel", "exec::tests::wide::relative_registers"),
    ("v_cvt_f32_fp8", "exec::tests::wide::eight_bit_floats"),
    ("v_cvt_f32_bf8", "exec::tests::wide::eight_bit_floats"),
    ("v_cvt_pk_f32_", "exec::tests::wide::eight_bit_floats"),
    ("v_cvt_pk_fp8", "exec::tests::wide::eight_bit_floats"),
    ("v_cvt_pk_bf8", "exec::tests::wide::eight_bit_floats"),
    ("v_cvt_sr_", "exec::tests::wide::eight_bit_floats"),
    ("v_dot4_f32", "exec::tests::wide::eight_bit_floats"),
    ("v_dot2_bf16", "exec::tests::wide::brain_floats"),
    ("v_dot2_f32_bf16", "exec::tests::wide::brain_floats"),
    ("v_mqsad_u32", "exec::tests::wide::four_sums"),
    ("v_trig_preop", "exec::tests::wide::argument_reduction"),
    ("s_movrel", "exec::tests::wide::relative_registers"),
    ("s_getreg", "exec::tests::wide::hardware_registers"),
    ("s_setreg", "exec::tests::wide::hardware_registers"),
    ("s_round_mode", "exec::tests::modes"),
    ("s_denorm_mode", "exec::tests::modes"),
    ("s_load", "exec::tests::memory"),
    ("s_buffer_load", "exec::tests::wide::scalar_buffers"),
    ("ds_load", "exec::tests::memory"),
    ("ds_store", "exec::tests::memory, exec::tests::wide"),
    (
        "ds_permute",
        "exec::tests::alu::lds_crossbar_permutes_and_swizzles",
    ),
    ("ds_bpermute", "exec::tests::alu, exec::tests::wide"),
    (
        "ds_swizzle",
        "exec::tests::alu::lds_crossbar_permutes_and_swizzles",
    ),
    ("ds_condxchg", "exec::tests::wide::lds_exchanges"),
    ("ds_nop", "exec::tests::alu::every_row_has_a_handler"),
    ("ds_pk_add_", "exec::tests::wide::brain_floats"),
    ("global_load", "exec::tests::memory, exec::tests::wide"),
    ("global_store", "exec::tests::memory, exec::tests::wide"),
    (
        "global_",
        "exec::tests::wide (cmpswap_b64, pk_add_bf16), no-ops",
    ),
    (
        "flat_",
        "exec::tests::wide::flat_addresses_pick_their_memory",
    ),
    (
        "scratch_",
        "exec::tests::wide::scratch_is_private_and_bounded",
    ),
    ("buffer_gl", "cache controls, no-ops here"),
    ("s_barrier", "tests/execution.rs"),
    ("s_get_barrier", "exec::tests::wide::barrier_state"),
    ("s_getpc", "exec::tests::memory, tests/execution.rs"),
    ("s_setpc", "tests/execution.rs"),
    ("s_swappc", "tests/execution.rs"),
    ("s_call", "tests/execution.rs"),
    ("s_", "program control without a result"),
];

#[test]
fn every_row_is_covered_or_names_its_test() {
    let entries = entries();
    let covered: BTreeSet<&str> = entries.iter().map(|e| e.name).collect();
    let listed = notes('-');
    let replaced = notes('!');
    for (name, reason) in &replaced {
        assert!(covered.contains(name) && !reason.is_empty(), "{name}");
    }
    for target in [Target::Gfx1151, Target::Gfx1201] {
        for row in table(target.generation()) {
            let name = row.mnemonic;
            let elsewhere = ELSEWHERE.iter().any(|(start, _)| name.starts_with(start));
            // What writes a register by arithmetic must not hide behind the last, widest entry.
            let control = !name.starts_with("s_") || is_control(row);
            let found = covered.contains(name) || listed.contains_key(name);
            let refused = matches!(row.op, Op::Refused(_));
            assert!(
                found || refused || (elsewhere && control),
                "{target} {name}"
            );
        }
    }
}

/// Whether a scalar row has no arithmetic result.
fn is_control(row: &TableRow) -> bool {
    let writes = row.shape.dst != Ty::None;
    let known = [
        "s_load",
        "s_buffer",
        "s_getreg",
        "s_getpc",
        "s_swappc",
        "s_call",
        "s_movrel",
        "s_sendmsg_rtn",
        "s_get_barrier",
    ];
    !writes && row.format != Format::Sopc || known.iter().any(|k| row.mnemonic.starts_with(k))
}
