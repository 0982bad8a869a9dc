//! Lint: a cross-lane instruction never runs under a narrowed EXEC.
//!
//! A lane that is switched off does not deliver what a neighbour asks for: DPP and permlane then
//! read stale registers. clang 19 sinks such instructions past a narrowing branch (fixed in LLVM
//! pull request 142962), so the objects are checked, not the compiler trusted.
//!
//! The rule, over all paths of a kernel (a forward fixpoint on its control flow):
//! EXEC is *full* at entry. It is *narrow* after `v_cmpx_*`, `s_and_saveexec_b32`,
//! `s_and_not1_saveexec_b32` and every other write to `exec_lo` except these restores:
//! `s_mov_b32 exec_lo, -1`; `s_mov_b32 exec_lo, sN`, `s_or_b32 exec_lo, exec_lo, sN` and
//! `s_or_saveexec_b32 sM, sN` where sN holds a copy of EXEC made while it was full
//! (`s_mov_b32 sN, exec_lo` or a `*_saveexec_b32 sN`) and not written since, on every path.
//! Where paths join, narrow wins. An instruction that is cross-lane and reached with a narrow
//! EXEC is a finding. `v_readfirstlane_b32` is allowed: it is defined by the active lanes.
//!
//! What it cannot see: a value computed under a narrow EXEC and shared after the restore.

use crate::disasm::{Instruction, Listing};

/// SGPRs 0..105 and VCC_LO as 106, VCC_HI as 107.
const REGISTERS: usize = 108;
const VCC_LO: usize = 106;

/// The facts before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    full: bool,
    /// Registers that hold a copy of a full EXEC.
    saved: [bool; REGISTERS],
}

impl State {
    /// Narrow wins, and only what both paths saved stays saved. True if anything changed.
    fn join(&mut self, other: &State) -> bool {
        let before = *self;
        self.full &= other.full;
        for (mine, theirs) in self.saved.iter_mut().zip(other.saved) {
            *mine &= theirs;
        }
        before != *self
    }
}

/// The cross-lane instructions of a kernel that may run under a narrowed EXEC, as printed.
pub(crate) fn narrowed_cross_lane(listing: &Listing) -> Vec<String> {
    let code = &listing.instructions;
    let mut before: Vec<Option<State>> = vec![None; code.len()];
    let mut work = Vec::new();
    if let Some(first) = before.first_mut() {
        *first = Some(State {
            full: true,
            saved: [false; REGISTERS],
        });
        work.push(0);
    }
    while let Some(at) = work.pop() {
        let Some(mut state) = before[at] else {
            continue;
        };
        let instruction = &code[at];
        step(&mut state, instruction);
        let falls = !matches!(instruction.mnemonic.as_str(), "s_branch" | "s_endpgm");
        let next = falls.then_some(at + 1).filter(|&next| next < code.len());
        for successor in next.into_iter().chain(instruction.target) {
            let changed = match &mut before[successor] {
                Some(known) => known.join(&state),
                unknown => {
                    *unknown = Some(state);
                    true
                }
            };
            if changed {
                work.push(successor);
            }
        }
    }
    code.iter()
        .zip(&before)
        .filter(|(instruction, state)| {
            is_cross_lane(instruction) && state.is_some_and(|state| !state.full)
        })
        .map(|(instruction, _)| format!("{:#x}: {}", instruction.address, instruction.text))
        .collect()
}

/// Whether an instruction reads registers of other lanes.
pub(crate) fn is_cross_lane(instruction: &Instruction) -> bool {
    const PREFIXES: [&str; 6] = [
        "v_permlane",
        "v_readlane",
        "v_writelane",
        "ds_bpermute",
        "ds_permute",
        "ds_swizzle",
    ];
    const DPP: [&str; 4] = ["row_", "quad_perm:", "dpp8:", "wave_"];
    PREFIXES
        .iter()
        .any(|prefix| instruction.mnemonic.starts_with(prefix))
        || instruction.mnemonic.contains("_dpp")
        || instruction
            .operands
            .iter()
            .any(|word| DPP.iter().any(|dpp| word.starts_with(dpp)))
}

fn step(state: &mut State, instruction: &Instruction) {
    let mnemonic = instruction.mnemonic.as_str();
    let operand = |index: usize| instruction.operands.get(index).map_or("", String::as_str);
    let holds = |state: &State, name: &str| register(name).is_some_and(|(r, _)| state.saved[r]);
    if mnemonic.starts_with("v_cmpx_") {
        state.full = false;
        return;
    }
    if let Some(logic) = mnemonic.strip_suffix("_saveexec_b32") {
        let was_full = state.full;
        let restored = logic == "s_or" && (was_full || holds(state, operand(1)));
        if let Some((saved, _)) = register(operand(0)) {
            state.saved[saved] = was_full;
        }
        state.full = restored;
        return;
    }
    match (mnemonic, operand(0)) {
        ("s_mov_b32", "exec_lo") => {
            state.full = operand(1) == "-1" || holds(state, operand(1));
        }
        ("s_or_b32", "exec_lo") => {
            let sources = [operand(1), operand(2)];
            let others = sources.iter().filter(|name| **name != "exec_lo");
            let keeps = sources.contains(&"exec_lo") && state.full;
            state.full = keeps || others.into_iter().any(|name| holds(state, name));
        }
        (_, "exec_lo" | "exec_hi" | "exec") => state.full = false,
        ("s_mov_b32", name) => {
            let copies = match operand(1) {
                "exec_lo" => state.full,
                source => holds(state, source),
            };
            clear(state, name);
            if let Some((to, 1)) = register(name) {
                state.saved[to] = copies;
            }
        }
        (_, name) => {
            clear(state, name);
            // The carry-out of VOP3 is the second operand; VOPC without a written destination
            // and _e32 carries write VCC.
            if mnemonic.starts_with("v_") {
                clear(state, operand(1));
                if instruction.operands.iter().any(|word| word == "vcc_lo") {
                    state.saved[VCC_LO] = false;
                }
            }
        }
    }
}

fn clear(state: &mut State, name: &str) {
    if let Some((first, count)) = register(name) {
        let end = (first + count).min(REGISTERS);
        state.saved[first..end].fill(false);
    }
}

/// First register and count of `s7`, `s[4:7]`, `vcc_lo` or `vcc`.
fn register(name: &str) -> Option<(usize, usize)> {
    let (first, last) = match name {
        "vcc_lo" => (VCC_LO, VCC_LO),
        "vcc" => (VCC_LO, VCC_LO + 1),
        _ => {
            let digits = name.strip_prefix('s')?;
            match digits
                .strip_prefix('[')
                .and_then(|range| range.strip_suffix(']'))
            {
                Some(range) => {
                    let (first, last) = range.split_once(':')?;
                    (first.parse().ok()?, last.parse().ok()?)
                }
                None => {
                    let one: usize = digits.parse().ok()?;
                    (one, one)
                }
            }
        }
    };
    (first <= last && last < REGISTERS).then(|| (first, last - first + 1))
}

#[cfg(test)]
mod tests {
    use super::narrowed_cross_lane;
    use crate::disasm::parse;

    /// A listing from bare instructions, 4 bytes each; `@N` in a branch names line N.
    fn findings(code: &[&str]) -> Vec<String> {
        let mut text = "0000000000000000 <k>:\n".to_owned();
        for (index, line) in code.iter().enumerate() {
            let (line, target) = line
                .split_once('@')
                .map_or((*line, String::new()), |(l, t)| {
                    (l, format!(" <k+0x{:X}>", t.parse::<usize>().unwrap() * 4))
                });
            text += &format!("\t{line} // {:012X}: 00000000{target}\n", index * 4);
        }
        narrowed_cross_lane(&parse(&text).unwrap()[0])
    }

    const XMASK: &str =
        "v_add_f32_dpp v1, v1, v1 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1";
    const PERMLANE: &str = "v_permlanex16_b32 v1, v1, s4, 0xfedcba98";

    /// `s = sum over 32 lanes; if (lane == 0) y[..] = s;` as clang 19.1.7 compiles it at -O3
    /// without -disable-machine-sink.
    #[test]
    fn what_clang_19_really_emits_is_found() {
        let text = include_str!("../fixtures/sunk_permlane.gfx1100.s");
        let found = narrowed_cross_lane(&parse(text).unwrap()[0]);
        assert_eq!(found, ["0x16a4: v_permlanex16_b32 v3, v3, s2, 0xfedcba98"]);
    }

    /// The listing of the software GPU's fixture `permlane.miscompiled.gfx1100.co`, whose sum is
    /// wrong when it is executed.
    #[test]
    fn the_miscompiled_fixture_is_named() {
        let text = include_str!("../fixtures/permlane.miscompiled.gfx1100.s");
        let found = narrowed_cross_lane(&parse(text).unwrap()[0]);
        assert_eq!(found, ["0x166c: v_permlanex16_b32 v1, v1, s2, 0xfedcba98"]);
    }

    #[test]
    fn sunk_permlane_is_found() {
        for narrowing in ["v_cmpx_eq_u32_e32 0, v0", "s_and_saveexec_b32 s2, vcc_lo"] {
            let code = [
                narrowing,
                "s_cbranch_execz 2 @4",
                PERMLANE,
                "global_store_b32 v2, v1, off",
                "s_endpgm",
            ];
            assert_eq!(findings(&code).len(), 1, "{narrowing}");
        }
    }

    #[test]
    fn restored_exec_is_clean() {
        let code = [
            "s_mov_b32 s2, exec_lo",
            "v_cmpx_gt_u32_e32 s3, v0",
            "s_cbranch_execz 1 @4",
            "v_mov_b32_e32 v1, 0",
            "s_or_b32 exec_lo, exec_lo, s2",
            XMASK,
            PERMLANE,
            "s_cmp_eq_u32 s5, 0",
            "s_cbranch_scc1 1 @10",
            PERMLANE,
            "s_endpgm",
        ];
        assert_eq!(findings(&code), [""; 0]);
    }

    #[test]
    fn a_clobbered_or_partial_save_does_not_restore() {
        let clobbers = [
            "s_mov_b32 s2, 0",
            "s_load_b128 s[0:3], s[8:9], 0x0",
            "v_cmp_gt_f32_e64 s2, v1, v2",
            "v_readfirstlane_b32 s2, v1",
            "v_add_co_u32 v4, s2, v5, v6",
        ];
        for clobber in clobbers {
            let code = [
                "s_and_saveexec_b32 s2, vcc_lo",
                clobber,
                "s_or_b32 exec_lo, exec_lo, s2",
                PERMLANE,
                "s_endpgm",
            ];
            assert_eq!(findings(&code).len(), 1, "{clobber}");
        }
        // Saved while already narrow.
        let nested = [
            "v_cmpx_eq_u32_e32 0, v0",
            "s_and_saveexec_b32 s2, vcc_lo",
            "s_or_b32 exec_lo, exec_lo, s2",
            XMASK,
            "s_endpgm",
        ];
        assert_eq!(findings(&nested).len(), 1);
    }

    #[test]
    fn narrow_wins_where_paths_join_and_around_loops() {
        let joined = [
            "s_cbranch_scc1 1 @2",
            "v_cmpx_eq_u32_e32 0, v0",
            XMASK,
            "s_endpgm",
        ];
        assert_eq!(findings(&joined).len(), 1);
        // The instruction is clean the first time round and not the second.
        let looped = [
            XMASK,
            "v_cmpx_eq_u32_e32 0, v0",
            "s_cbranch_execnz 65533 @0",
            "s_endpgm",
        ];
        assert_eq!(findings(&looped).len(), 1);
        let uniform = [
            XMASK,
            "s_add_i32 s0, s0, 1",
            "s_cbranch_scc1 65533 @0",
            "s_endpgm",
        ];
        assert_eq!(findings(&uniform), [""; 0]);
    }

    #[test]
    fn a_save_on_one_path_only_does_not_restore() {
        let narrow = [
            "v_cmpx_eq_u32_e32 0, v0",
            "s_or_b32 exec_lo, exec_lo, s2",
            XMASK,
        ];
        let falling = ["s_cbranch_scc1 1 @2", "s_mov_b32 s2, exec_lo"];
        let taken = [
            "s_cbranch_scc1 1 @3",
            "s_nop 0",
            "s_branch 1 @4",
            "s_mov_b32 s2, exec_lo",
        ];
        for head in [&falling[..], &taken[..]] {
            let code = [head, &narrow, &["s_endpgm"]].concat();
            assert_eq!(findings(&code).len(), 1, "{head:?}");
        }
    }

    #[test]
    fn which_instructions_are_cross_lane() {
        let cases = [
            ("v_readlane_b32 s0, v1, s2", 1),
            ("ds_bpermute_b32 v1, v2, v3", 1),
            ("ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)", 1),
            (
                "v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
                1,
            ),
            ("v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0]", 1),
            ("v_readfirstlane_b32 s0, v1", 0),
            ("v_add_f32_e32 v1, v2, v3", 0),
        ];
        for (instruction, count) in cases {
            let code = ["v_cmpx_eq_u32_e32 0, v0", instruction, "s_endpgm"];
            assert_eq!(findings(&code).len(), count, "{instruction}");
        }
    }
}
