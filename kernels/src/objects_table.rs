//! table: what each code object's metadata says. Written by `cargo xtask kernels`.

use crate::KernelFacts;
use crate::objects::ObjectTable;

const fn facts(
    symbol: &'static str,
    kernarg_bytes: u32,
    lds_bytes: u32,
    scratch_bytes: u32,
    sgprs: u32,
    vgprs: u32,
) -> KernelFacts {
    KernelFacts {
        symbol,
        kernarg_bytes,
        lds_bytes,
        scratch_bytes,
        sgprs,
        vgprs,
    }
}

pub(crate) const COMPILER: &str = "Debian clang version 19.1.7 (3~deb12u1)";

#[rustfmt::skip]
pub(crate) static GFX1100: ObjectTable = ObjectTable {
    digest: [65, 67, 150, 27, 131, 249, 110, 15, 140, 20, 220, 74, 144, 228, 73, 72, 185, 188, 247, 34, 106, 128, 188, 19, 240, 99, 178, 11, 177, 105, 232, 165],
    kernels: &[
        facts("advance", 24, 0, 0, 18, 3),
        facts("argmax", 20, 256, 0, 10, 7),
        facts("attn_decode_f16_d128", 52, 4160, 0, 52, 29),
        facts("attn_decode_f16_d256", 52, 8256, 0, 52, 38),
        facts("attn_decode_f16_d32", 52, 1088, 0, 80, 26),
        facts("attn_decode_f16_d64", 52, 2112, 0, 54, 27),
        facts("attn_decode_f32_d128", 52, 4160, 0, 52, 46),
        facts("attn_decode_f32_d256", 52, 8256, 0, 52, 55),
        facts("attn_decode_f32_d32", 52, 1088, 0, 80, 42),
        facts("attn_decode_f32_d64", 52, 2112, 0, 54, 44),
        facts("embed_bf16", 28, 0, 0, 18, 4),
        facts("embed_f16", 28, 0, 0, 18, 4),
        facts("embed_f32", 28, 0, 0, 18, 4),
        facts("embed_q8_0", 32, 0, 0, 18, 4),
        facts("gemv_bf16", 36, 0, 0, 18, 57),
        facts("gemv_bf16_add", 44, 0, 0, 18, 57),
        facts("gemv_f16", 36, 0, 0, 18, 56),
        facts("gemv_f16_add", 44, 0, 0, 18, 56),
        facts("gemv_f32", 36, 0, 0, 18, 72),
        facts("gemv_f32_add", 44, 0, 0, 18, 72),
        facts("gemv_q8_0", 40, 0, 0, 18, 54),
        facts("gemv_q8_0_add", 48, 0, 0, 18, 54),
        facts("kv_write_f16", 44, 0, 0, 18, 6),
        facts("kv_write_f32", 44, 0, 0, 18, 6),
        facts("qk_norm", 48, 0, 0, 18, 7),
        facts("rmsnorm", 32, 32, 0, 15, 16),
        facts("rope", 52, 0, 0, 22, 19),
        facts("silu_mul", 28, 0, 0, 18, 8),
    ],
};

#[rustfmt::skip]
pub(crate) static GFX1151: ObjectTable = ObjectTable {
    digest: [20, 91, 242, 34, 54, 204, 12, 111, 104, 86, 219, 1, 19, 77, 121, 74, 248, 123, 10, 94, 57, 164, 179, 189, 84, 184, 215, 240, 28, 128, 93, 22],
    kernels: &[
        facts("advance", 24, 0, 0, 18, 3),
        facts("argmax", 20, 256, 0, 10, 7),
        facts("attn_decode_f16_d128", 52, 4160, 0, 52, 29),
        facts("attn_decode_f16_d256", 52, 8256, 0, 52, 38),
        facts("attn_decode_f16_d32", 52, 1088, 0, 80, 26),
        facts("attn_decode_f16_d64", 52, 2112, 0, 54, 27),
        facts("attn_decode_f32_d128", 52, 4160, 0, 52, 46),
        facts("attn_decode_f32_d256", 52, 8256, 0, 52, 55),
        facts("attn_decode_f32_d32", 52, 1088, 0, 80, 42),
        facts("attn_decode_f32_d64", 52, 2112, 0, 54, 44),
        facts("embed_bf16", 28, 0, 0, 10, 4),
        facts("embed_f16", 28, 0, 0, 10, 4),
        facts("embed_f32", 28, 0, 0, 10, 4),
        facts("embed_q8_0", 32, 0, 0, 14, 4),
        facts("gemv_bf16", 36, 0, 0, 14, 57),
        facts("gemv_bf16_add", 44, 0, 0, 14, 57),
        facts("gemv_f16", 36, 0, 0, 14, 56),
        facts("gemv_f16_add", 44, 0, 0, 14, 56),
        facts("gemv_f32", 36, 0, 0, 14, 72),
        facts("gemv_f32_add", 44, 0, 0, 14, 72),
        facts("gemv_q8_0", 40, 0, 0, 14, 54),
        facts("gemv_q8_0_add", 48, 0, 0, 14, 54),
        facts("kv_write_f16", 44, 0, 0, 17, 6),
        facts("kv_write_f32", 44, 0, 0, 17, 6),
        facts("qk_norm", 48, 0, 0, 17, 7),
        facts("rmsnorm", 32, 32, 0, 16, 15),
        facts("rope", 52, 0, 0, 18, 18),
        facts("silu_mul", 28, 0, 0, 10, 8),
    ],
};

#[rustfmt::skip]
pub(crate) static GFX1201: ObjectTable = ObjectTable {
    digest: [39, 133, 132, 121, 100, 8, 138, 230, 164, 157, 95, 235, 149, 145, 22, 143, 4, 112, 103, 44, 126, 43, 175, 8, 132, 28, 56, 106, 104, 195, 155, 91],
    kernels: &[
        facts("advance", 24, 0, 0, 18, 3),
        facts("argmax", 20, 256, 0, 10, 7),
        facts("attn_decode_f16_d128", 52, 4160, 0, 56, 29),
        facts("attn_decode_f16_d256", 52, 8256, 0, 57, 38),
        facts("attn_decode_f16_d32", 52, 1088, 0, 78, 26),
        facts("attn_decode_f16_d64", 52, 2112, 0, 55, 27),
        facts("attn_decode_f32_d128", 52, 4160, 0, 64, 46),
        facts("attn_decode_f32_d256", 52, 8256, 0, 65, 55),
        facts("attn_decode_f32_d32", 52, 1088, 0, 78, 42),
        facts("attn_decode_f32_d64", 52, 2112, 0, 55, 44),
        facts("embed_bf16", 28, 0, 0, 10, 4),
        facts("embed_f16", 28, 0, 0, 10, 4),
        facts("embed_f32", 28, 0, 0, 10, 4),
        facts("embed_q8_0", 32, 0, 0, 14, 4),
        facts("gemv_bf16", 36, 0, 0, 13, 57),
        facts("gemv_bf16_add", 44, 0, 0, 13, 57),
        facts("gemv_f16", 36, 0, 0, 13, 56),
        facts("gemv_f16_add", 44, 0, 0, 13, 56),
        facts("gemv_f32", 36, 0, 0, 13, 72),
        facts("gemv_f32_add", 44, 0, 0, 13, 72),
        facts("gemv_q8_0", 40, 0, 0, 16, 54),
        facts("gemv_q8_0_add", 48, 0, 0, 16, 54),
        facts("kv_write_f16", 44, 0, 0, 15, 6),
        facts("kv_write_f32", 44, 0, 0, 15, 6),
        facts("qk_norm", 48, 0, 0, 17, 7),
        facts("rmsnorm", 32, 32, 0, 16, 15),
        facts("rope", 52, 0, 0, 18, 18),
        facts("silu_mul", 28, 0, 0, 10, 8),
    ],
};
