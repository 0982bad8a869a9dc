//! Text of immediates with fields of their own: waits, delays, messages, hardware registers.

use crate::isa::Generation;
use std::fmt::Write;

/// Field layout: LLVM AMDGPUUsage, `s_delay_alu`.
pub(super) fn delay_alu(text: &mut String, imm: u16) {
    const ID: [&str; 12] = [
        "NO_DEP",
        "VALU_DEP_1",
        "VALU_DEP_2",
        "VALU_DEP_3",
        "VALU_DEP_4",
        "TRANS32_DEP_1",
        "TRANS32_DEP_2",
        "TRANS32_DEP_3",
        "FMA_ACCUM_CYCLE_1",
        "SALU_CYCLE_1",
        "SALU_CYCLE_2",
        "SALU_CYCLE_3",
    ];
    const SKIP: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
    let fields = [
        ("instid0", imm & 15, &ID[..], "/* invalid instid value */"),
        (
            "instskip",
            imm >> 4 & 7,
            &SKIP[..],
            "/* invalid instskip value */",
        ),
        (
            "instid1",
            imm >> 7 & 15,
            &ID[..],
            "/* invalid instid value */",
        ),
    ];
    let mut lead = " ";
    for (field, value, names, invalid) in fields {
        if value != 0 {
            let shown = names.get(usize::from(value)).unwrap_or(&invalid);
            add!(text, "{lead}{field}({shown})");
            lead = " | ";
        }
    }
    if lead == " " {
        text.push_str(" 0");
    }
}

/// gfx11 layout: vmcnt [15:10], lgkmcnt [9:4], expcnt [2:0]; full fields wait for nothing.
pub(super) fn waitcnt(text: &mut String, imm: u16) {
    let fields = [
        ("vmcnt", imm >> 10, 63),
        ("expcnt", imm & 7, 7),
        ("lgkmcnt", imm >> 4 & 63, 63),
    ];
    let all = fields.iter().all(|(_, v, full)| v == full);
    for (field, value, full) in fields {
        if all || value != full {
            add!(text, " {field}({value})");
        }
    }
}

/// Fields of `s_waitcnt_depctr` and `s_wait_alu`: name, lowest bit, width. All ones wait for nothing
/// (LLVM AMDGPUAsmUtils, `DepCtrInfo`).
const DEPCTR: [(&str, u16, u16); 7] = [
    ("hold_cnt", 7, 1),
    ("sa_sdst", 0, 1),
    ("va_vdst", 12, 4),
    ("va_sdst", 9, 3),
    ("va_ssrc", 8, 1),
    ("va_vcc", 1, 1),
    ("vm_vsrc", 2, 3),
];
/// Bits of no field; with one of them set LLVM prints a number.
const DEPCTR_NONE: u16 = 0x60;

pub(super) fn depctr(text: &mut String, imm: u16) {
    if imm & DEPCTR_NONE != 0 {
        add!(text, " {imm:#x}");
        return;
    }
    let idle = imm | DEPCTR_NONE == u16::MAX;
    for (name, lo, width) in DEPCTR {
        let full = (1 << width) - 1;
        let value = imm >> lo & full;
        if idle || value != full {
            add!(text, " depctr_{name}({value})");
        }
    }
}

/// The sets that have a name, as (gfx11, gfx12).
type Sets = (bool, bool);
const BOTH: Sets = (true, true);
const ONLY_11: Sets = (true, false);
const ONLY_12: Sets = (false, true);

fn lookup(
    names: &[(u16, &'static str, Sets)],
    generation: Generation,
    value: u16,
) -> Option<&'static str> {
    let has = |(on11, on12): Sets| match generation {
        Generation::Gfx11 => on11,
        Generation::Gfx12 => on12,
    };
    let found = names.iter().find(|(v, _, sets)| *v == value && has(*sets));
    found.map(|(_, name, _)| *name)
}

/// Messages (LLVM AMDGPUAsmUtils, `MsgOperands`).
const MESSAGES: [(u16, &str, Sets); 14] = [
    (1, "MSG_INTERRUPT", BOTH),
    (2, "MSG_HS_TESSFACTOR", BOTH),
    (3, "MSG_DEALLOC_VGPRS", BOTH),
    (5, "MSG_STALL_WAVE_GEN", ONLY_11),
    (6, "MSG_HALT_WAVES", ONLY_11),
    (9, "MSG_GS_ALLOC_REQ", BOTH),
    (128, "MSG_RTN_GET_DOORBELL", BOTH),
    (129, "MSG_RTN_GET_DDID", BOTH),
    (130, "MSG_RTN_GET_TMA", BOTH),
    (131, "MSG_RTN_GET_REALTIME", BOTH),
    (132, "MSG_RTN_SAVE_WAVE", BOTH),
    (133, "MSG_RTN_GET_TBA", BOTH),
    (134, "MSG_RTN_GET_TBA_TO_PC", BOTH),
    (135, "MSG_RTN_GET_SE_AID_ID", ONLY_12),
];

/// A message; its number is the low byte.
pub(super) fn message(generation: Generation, imm: u16) -> String {
    match lookup(&MESSAGES, generation, imm & 0xff) {
        Some(name) => format!("sendmsg({name})"),
        None if imm <= 0xff => format!("sendmsg({imm}, 0, 0)"),
        None => imm.to_string(),
    }
}

/// Hardware registers (LLVM AMDGPUAsmUtils, `Hwreg`).
const REGISTERS: [(u16, &str, Sets); 30] = [
    (1, "HW_REG_MODE", BOTH),
    (2, "HW_REG_STATUS", BOTH),
    (3, "HW_REG_TRAPSTS", ONLY_11),
    (4, "HW_REG_STATE_PRIV", ONLY_12),
    (5, "HW_REG_GPR_ALLOC", BOTH),
    (6, "HW_REG_LDS_ALLOC", BOTH),
    (7, "HW_REG_IB_STS", BOTH),
    (10, "HW_REG_PERF_SNAPSHOT_DATA", ONLY_12),
    (11, "HW_REG_PERF_SNAPSHOT_PC_LO", ONLY_12),
    (12, "HW_REG_PERF_SNAPSHOT_PC_HI", ONLY_12),
    (15, "HW_REG_SH_MEM_BASES", ONLY_11),
    (15, "HW_REG_PERF_SNAPSHOT_DATA1", ONLY_12),
    (16, "HW_REG_PERF_SNAPSHOT_DATA2", ONLY_12),
    (17, "HW_REG_EXCP_FLAG_PRIV", ONLY_12),
    (18, "HW_REG_PERF_SNAPSHOT_PC_LO", ONLY_11),
    (18, "HW_REG_EXCP_FLAG_USER", ONLY_12),
    (19, "HW_REG_PERF_SNAPSHOT_PC_HI", ONLY_11),
    (19, "HW_REG_TRAP_CTRL", ONLY_12),
    (20, "HW_REG_FLAT_SCR_LO", ONLY_11),
    (20, "HW_REG_SCRATCH_BASE_LO", ONLY_12),
    (21, "HW_REG_FLAT_SCR_HI", ONLY_11),
    (21, "HW_REG_SCRATCH_BASE_HI", ONLY_12),
    (23, "HW_REG_HW_ID1", BOTH),
    (24, "HW_REG_HW_ID2", BOTH),
    (27, "HW_REG_PERF_SNAPSHOT_DATA", ONLY_11),
    (29, "HW_REG_SHADER_CYCLES", ONLY_11),
    (29, "HW_REG_SHADER_CYCLES_LO", ONLY_12),
    (30, "HW_REG_SHADER_CYCLES_HI", ONLY_12),
    (31, "HW_REG_DVGPR_ALLOC_LO", ONLY_12),
    (32, "HW_REG_DVGPR_ALLOC_HI", ONLY_12),
];

/// A field of a hardware register: number [5:0], first bit [10:6], width less one [15:11].
pub(super) fn hardware_register(generation: Generation, imm: u16) -> String {
    let (id, first, width) = (imm & 63, imm >> 6 & 31, (imm >> 11) + 1);
    let name = match lookup(&REGISTERS, generation, id) {
        Some(name) => name.to_owned(),
        None => id.to_string(),
    };
    match (first, width) {
        (0, 32) => format!("hwreg({name})"),
        _ => format!("hwreg({name}, {first}, {width})"),
    }
}

/// Microcode versions and flags of `s_version` (LLVM AMDGPUAsmUtils, `UCVersion`).
pub(super) fn version(text: &mut String, imm: u16) {
    const VERSIONS: [(u16, &str); 4] = [
        (0, "UC_VERSION_GFX7"),
        (4, "UC_VERSION_GFX10"),
        (6, "UC_VERSION_GFX11"),
        (9, "UC_VERSION_GFX12"),
    ];
    const FLAGS: [(u16, &str); 3] = [
        (0x2000, "UC_VERSION_W64_BIT"),
        (0x4000, "UC_VERSION_W32_BIT"),
        (0x8000, "UC_VERSION_MDP_BIT"),
    ];
    if imm & 0x1f00 != 0 {
        add!(text, " {imm:#x}");
        return;
    }
    let number = imm & 0xff;
    let known = VERSIONS.iter().find(|(v, _)| *v == number);
    let mut shown = known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
    for (_, flag) in FLAGS.iter().filter(|(bit, _)| imm & bit != 0) {
        let inner = if shown.contains('|') {
            format!("({shown})")
        } else {
            shown
        };
        shown = format!("{inner}|{flag}");
    }
    add!(text, " {shown}");
}
