//! What the sets have and the table lacks, with the reason: single opcodes of the modelled formats,
//! and whole encoding families. Tested for completeness against the enums of a third project.

use super::row::Format;

/// An opcode that does not decode.
#[derive(Debug)]
pub struct Absent {
    /// The format it belongs to.
    pub format: Format,
    /// Its mnemonic in AMD's ISA documents.
    pub mnemonic: &'static str,
    /// Whether gfx11 and gfx12 have it.
    pub sets: [bool; 2],
    /// Why it is not here.
    pub reason: &'static str,
}

/// An encoding family that is only named.
#[derive(Debug)]
pub struct Family {
    /// Name in the ISA documents.
    pub name: &'static str,
    /// Bits of the top byte that decide, and their value.
    pub(super) top: (u32, u32),
    /// Opcodes in gfx11 and in gfx12.
    pub opcodes: [u16; 2],
}

const GFX11: [bool; 2] = [true, false];
const GFX12: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

const GLOBAL_SHARE: &str = "global data share and wave sync: no such unit is modelled";
const RAYS: &str = "ray traversal stack of the LDS: graphics is not modelled";
const NO_LLVM: &str = "LLVM has no such instruction on these targets";
const ALIAS: &str = "listed twice: the instruction is a GLOBAL one and is decoded there";
const BLOCK: &str = "spills 32 registers by mask in a trap handler: none is modelled";
const SPARSE: &str = "sparse matrix instructions are not modelled";

const fn absent(
    format: Format,
    mnemonic: &'static str,
    sets: [bool; 2],
    reason: &'static str,
) -> Absent {
    Absent {
        format,
        mnemonic,
        sets,
        reason,
    }
}

/// By reason.
#[rustfmt::skip]
pub const ABSENT: &[Absent] = &[
    absent(Format::Ds, "ds_gws_sema_release_all", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_gws_init", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_gws_sema_v", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_gws_sema_br", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_gws_sema_p", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_gws_barrier", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_ordered_count", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_add_gs_reg_rtn", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_sub_gs_reg_rtn", GFX11, GLOBAL_SHARE),
    absent(Format::Ds, "ds_bvh_stack_rtn_b32", GFX11, RAYS),
    absent(Format::Ds, "ds_bvh_stack_push4_pop1_rtn_b32", GFX12, RAYS),
    absent(Format::Ds, "ds_bvh_stack_push8_pop1_rtn_b32", GFX12, RAYS),
    absent(Format::Ds, "ds_bvh_stack_push8_pop2_rtn_b64", GFX12, RAYS),
    absent(Format::Flat, "global_load_addtid_b32", BOTH, ALIAS),
    absent(Format::Flat, "global_store_addtid_b32", BOTH, ALIAS),
    absent(Format::Global, "global_load_lds_addtid_b32", GFX11, NO_LLVM),
    absent(Format::Global, "global_load_lds_u8", GFX11, NO_LLVM),
    absent(Format::Global, "global_load_lds_i8", GFX11, NO_LLVM),
    absent(Format::Global, "global_load_lds_u16", GFX11, NO_LLVM),
    absent(Format::Global, "global_load_lds_i16", GFX11, NO_LLVM),
    absent(Format::Global, "global_load_lds_b32", GFX11, NO_LLVM),
    absent(Format::Flat, "global_load_lds_addtid_b32", GFX11, NO_LLVM),
    absent(Format::Flat, "flat_atomic_csub_u32", GFX11, NO_LLVM),
    absent(Format::Scratch, "scratch_load_lds_u8", GFX11, NO_LLVM),
    absent(Format::Scratch, "scratch_load_lds_i8", GFX11, NO_LLVM),
    absent(Format::Scratch, "scratch_load_lds_u16", GFX11, NO_LLVM),
    absent(Format::Scratch, "scratch_load_lds_i16", GFX11, NO_LLVM),
    absent(Format::Scratch, "scratch_load_lds_b32", GFX11, NO_LLVM),
    absent(Format::Sopp, "s_waitcnt", GFX12, NO_LLVM),
    absent(Format::Global, "global_load_block", GFX12, BLOCK),
    absent(Format::Global, "global_store_block", GFX12, BLOCK),
    absent(Format::Scratch, "scratch_load_block", GFX12, BLOCK),
    absent(Format::Scratch, "scratch_store_block", GFX12, BLOCK),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_f16", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_bf16", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f16_16x16x32_f16", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_bf16_16x16x32_bf16", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_i32_16x16x32_iu8", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_i32_16x16x32_iu4", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_i32_16x16x64_iu4", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_fp8_fp8", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_fp8_bf8", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_bf8_fp8", GFX12, SPARSE),
    absent(Format::Vop3p, "v_swmmac_f32_16x16x32_bf8_bf8", GFX12, SPARSE),
];

const fn family(name: &'static str, top: (u32, u32), opcodes: [u16; 2]) -> Family {
    Family { name, top, opcodes }
}

/// Whole families. Of MUBUF the cache controls are decoded.
pub const FAMILIES: &[Family] = &[
    family("EXP export", (0xfc, 0xf8), [1, 1]),
    family("LDSDIR parameter load", (0xff, 0xce), [2, 2]),
    family("MIMG image", (0xfc, 0xf0), [84, 0]),
    family("MTBUF typed buffer", (0xfc, 0xe8), [16, 0]),
    family("MUBUF buffer", (0xfc, 0xe0), [79, 0]),
    family("VBUFFER buffer", (0xfc, 0xc4), [0, 89]),
    family("VIMAGE image", (0xfc, 0xd0), [0, 33]),
    family("VINTERP interpolation", (0xff, 0xcd), [6, 6]),
    family("VSAMPLE image sample", (0xfc, 0xe4), [0, 58]),
];
